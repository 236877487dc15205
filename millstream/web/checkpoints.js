/** Checkpoints and savepoints: how many, how configured, and the last of them one by one. */

import { html } from "./vendor/preact.js";
import { bytes, chained, count, duration } from "./format.js";
import { HistoryChart } from "./history.js";
import { Bar, Copy, Empty, Figure, Pairs, Panel, State, Table, Time } from "./ui.js";

const ms = (seconds) => (seconds === null || seconds === undefined ? null : seconds * 1000);

/** The configuration, in words. */
export function configured(config) {
  const interval = config.interval ? `every ${duration(config.interval)}` : "with each epoch";
  return [
    ["Guarantee", config.mode?.replaceAll("_", " ").toLowerCase()],
    ["Interval", "interval" in config ? interval : undefined],
    ["Timeout", config.timeout === null ? "none" : duration(config.timeout)],
    ["Least pause", duration(config.min_pause)],
    ["Kept", "retained" in config ? count(config.retained) : undefined],
    ["State backend", config.backend],
    ["Incremental", "incremental" in config ? (config.incremental ? "yes" : "no") : undefined],
    ["Folder", config.dir ? html`<code>${config.dir}</code>` : "temporary, deleted with the job"],
    ["Savepoints in", config.savepoint_dir ? html`<code>${config.savepoint_dir}</code>` : undefined],
  ];
}

function Counts({ counts, history }) {
  const last = history.find(({ status, savepoint }) => status === "COMPLETED" && !savepoint);
  return html`<dl class="figures">
    <${Figure} label="Completed" value=${count(counts.completed)} />
    <${Figure} label="Failed" value=${count(counts.failed)} tone=${counts.failed ? "bad" : ""} />
    <${Figure} label="In progress" value=${count(counts.in_progress)} />
    <${Figure} label="Savepoints" value=${count(counts.savepoints)} />
    <${Figure} label="Restored" value=${count(counts.restored)} />
    <${Figure} label="Last duration" value=${duration(last && ms(last.seconds))} />
    <${Figure} label="Last written" value=${bytes(last?.size)} note=${last ? `of ${bytes(last.full_size)}` : ""} />
  </dl>`;
}

const COLUMNS = [
  ["Id", "num"],
  ["Kind", ""],
  ["Status", ""],
  ["Started", "num"],
  ["Duration", "num", "Until the slowest task had written its state, and from the last task's end to the manifest"],
  ["Written", "num", "Bytes that this checkpoint added"],
  ["Full size", "num", "Bytes of everything that it consists of"],
  ["Waited", "num", "How long tasks waited for the slowest of their level, at most"],
  ["Slowest subtask", ""],
  ["Path", ""],
];

function Slowest({ slowest }) {
  if (!slowest) return html`<span class="muted">–</span>`;
  const names = slowest.vertices.map(chained).join(", ");
  return html`<span class="clip" title=${names}>${names} #${slowest.subtask}</span> <span class="muted num">${duration(ms(slowest.seconds))}</span>`;
}

function Row({ one, now, longest, largest }) {
  return html`<tr>
      <th scope="row" class="num">${one.id}</th>
      <td>${one.savepoint ? "savepoint" : "checkpoint"}</td>
      <td><${State} state=${one.status} /></td>
      <td class="num"><${Time} at=${one.started} now=${now} both /></td>
      <td><${Bar} value=${one.seconds} of=${longest} text=${one.status === "IN_PROGRESS" ? "–" : duration(ms(one.seconds))} /></td>
      <td><${Bar} value=${one.size} of=${largest} text=${bytes(one.size)} /></td>
      <td class="num">${bytes(one.full_size)}</td>
      <td class="num">${duration(ms(one.alignment_seconds))}</td>
      <td><${Slowest} slowest=${one.slowest} /></td>
      <td>${one.path ? html`<span class="path"><code class="clip" title=${one.path}>${one.path}</code><${Copy} text=${one.path} /></span>` : "–"}</td>
    </tr>
    ${one.failure && html`<tr class="reason"><td></td><td colspan="9" class="bad">${one.failure}</td></tr>`}`;
}

function History({ history, now }) {
  if (!history.length) return html`<${Empty} title="No checkpoint yet">The first one is listed as soon as it begins.<//>`;
  const longest = Math.max(...history.map(({ seconds }) => seconds ?? 0));
  const largest = Math.max(...history.map(({ size }) => size ?? 0));
  return html`<${Table} label="History of checkpoints" columns=${COLUMNS}>
    ${history.map((one) => html`<${Row} key="${one.id} ${one.savepoint} ${one.started}" one=${one} now=${now} longest=${longest} largest=${largest} />`)}
  <//>`;
}

function Restored({ restored, now }) {
  if (!restored) return html`<p class="muted">This run began without one.</p>`;
  return html`<p>
    Checkpoint ${restored.id}, <${Time} at=${restored.at} now=${now} both />${restored.path && html`<br /><code class="wide">${restored.path}</code>`}
  </p>`;
}

export function CheckpointsPage({ job }) {
  const { counts, config, restored, history } = job.checkpoints;
  return html`
    <${Counts} counts=${counts} history=${history} />
    <div class="columns">
      <${Panel} title="Over time"><${HistoryChart} job=${job} name="checkpoint_seconds" /><//>
      <${Panel} title="Configuration"><${Pairs} of=${configured(config)} /><//>
      <${Panel} title="Last restored"><${Restored} restored=${restored} now=${job.now} /><//>
    </div>
    <${Panel} title="History"><${History} history=${history} now=${job.now} /><//>
  `;
}
