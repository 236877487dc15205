/** What the job has failed with: the operator, the user's line, the record, and how to run it again. */

import { html } from "./vendor/preact.js";
import { Empty, Pairs, Snippet, Time } from "./ui.js";

const code = (text) => (text ? html`<code class="wide">${text}</code>` : undefined);

function Failure({ one, now }) {
  const facts = [
    ["Operator", one.operator ?? undefined],
    ["Your line", code(one.line)],
    ["Record", code(one.record)],
    ["Position", code(one.position)],
    ["After epoch", one.epoch >= 0 ? String(one.epoch) : undefined],
  ];
  return html`<li class="panel failure">
    <header>
      <h2><code class="code">${one.code}</code> <span class="what">${one.what}</span></h2>
      <p><${Time} at=${one.at} now=${now} both /></p>
    </header>
    <${Pairs} of=${facts} />
    ${one.replay &&
    html`<div class="replay"><p class="muted">To run this epoch again on this machine, with a debugger if you like:</p><${Snippet} text=${one.replay} /></div>`}
    ${one.text && html`<details><summary>Whole text</summary><pre tabindex="0">${one.text}</pre></details>`}
  </li>`;
}

export function ExceptionsPage({ job }) {
  const { exceptions } = job;
  if (!exceptions.length) return html`<${Empty} title="No failures">What the job fails with is kept here, the newest first, also after it was started again.<//>`;
  return html`<ul class="failures">${exceptions.map((one) => html`<${Failure} key="${one.at} ${one.epoch}" one=${one} now=${job.now} />`)}</ul>`;
}
