/** What the job runs with: engine, execution, checkpoints, and the program's settings. */

import { html } from "./vendor/preact.js";
import { usePolled } from "./api.js";
import { configured } from "./checkpoints.js";
import { count } from "./format.js";
import { Empty, Outside, Pairs, Panel, Table } from "./ui.js";

function engine({ name, version, master, application, ui } = {}) {
  return [
    ["Engine", [name, version].filter(Boolean).join(" ") || undefined],
    ["Master", master || undefined],
    ["Application", application || undefined],
    ["Spark’s page", ui && html`<${Outside} href=${ui}>${ui}<//>`],
  ];
}

function Settings({ jid }) {
  const { data, error } = usePolled(`jobs/${jid}/jobmanager/config`, () => 30);
  const found = Array.isArray(data) ? data : [];
  if (!data && !error) return html`<p class="empty">Loading …</p>`;
  if (!found.length) return html`<${Empty} title="Nothing was set">All options have their defaults.<//>`;
  return html`<${Table} kind="settings" label="Settings" columns=${[["Key", ""], ["Value", ""]]}>
    ${found.map(({ key, value }) => html`<tr key=${key}><th scope="row"><code>${key}</code></th><td><code class="wide">${String(value)}</code></td></tr>`)}
  <//>`;
}

export function ConfigurationPage({ job }) {
  const execution = [
    ["Job id", html`<code>${job.jid}</code>`],
    ["Mode", job.mode?.toLowerCase()],
    ["Parallelism", count(job.parallelism)],
    ...engine(job.engine),
  ];
  return html`
    <div class="columns">
      <${Panel} title="Execution"><${Pairs} of=${execution} /><//>
      <${Panel} title="Checkpoints"><${Pairs} of=${configured(job.checkpoints.config)} /><//>
    </div>
    <${Panel} title="Settings of the program" note="What is secret is not shown"><${Settings} jid=${job.jid} /><//>
  `;
}
