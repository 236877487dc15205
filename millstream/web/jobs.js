/** The list of jobs. */

import { html } from "./vendor/preact.js";
import { usePolled } from "./api.js";
import { count, duration, exact, rate } from "./format.js";
import { Trouble } from "./trouble.js";
import { Empty, Panel, State, Table, Time } from "./ui.js";

export const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);

const COLUMNS = [
  ["Name", ""],
  ["State", "state-column"],
  ["Started", "num"],
  ["Duration", "num"],
  ["Epoch", "num"],
  ["Records", "num"],
  ["Records/s", "num"],
  ["Restarts", "num"],
  ["Job id", ""],
];

function Row({ job, now }) {
  return html`<tr>
    <th scope="row"><a href="#/job/${job.jid}/graph">${job.name}</a></th>
    <td><${State} state=${job.state} /></td>
    <td class="num"><${Time} at=${job["start-time"]} now=${now} /></td>
    <td class="num">${duration(job.duration)}</td>
    <td class="num">${job.epoch < 0 ? "–" : count(job.epoch)}</td>
    <td class="num" title=${exact(job.records)}>${count(job.records)}</td>
    <td class="num">${ENDED.has(job.state) ? "–" : rate(job.records_per_second)}</td>
    <td class="num ${job.restarts ? "warn" : ""}">${count(job.restarts)}</td>
    <td><code class="muted" title=${job.jid}>${job.jid.slice(0, 8)}</code></td>
  </tr>`;
}

function List({ title, jobs, now, none }) {
  return html`<${Panel} title="${title} (${jobs.length})">
    ${jobs.length
      ? html`<${Table} kind="jobs" label=${title} columns=${COLUMNS}>${jobs.map((job) => html`<${Row} key=${job.jid} job=${job} now=${now} />`)}<//>`
      : none}
  <//>`;
}

export function JobsPage() {
  const polled = usePolled("millstream/jobs");
  const { data, at } = polled;
  const jobs = [...(data?.jobs ?? [])].sort((a, b) => b["start-time"] - a["start-time"]);
  const running = jobs.filter(({ state }) => !ENDED.has(state));
  const ended = jobs.filter(({ state }) => ENDED.has(state));
  return html`
    <${Trouble} polled=${polled} />
    ${data &&
    html`<h1>Jobs</h1>
      <${List}
        title="Running"
        jobs=${running}
        now=${at}
        none=${html`<${Empty} title="Nothing runs">A job is listed here from the moment that a program of this process calls execute().<//>`}
      />
      ${ended.length > 0 && html`<${List} title="Ended" jobs=${ended} now=${at} />`}`}
    ${!data && !polled.error && html`<p class="empty">Loading …</p>`}
  `;
}
