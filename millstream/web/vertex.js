/** The drawer of one vertex: its subtasks side by side, its operators, its figures over time. */

import { html, useEffect, useRef } from "./vendor/preact.js";
import { Chart } from "./charts.js";
import { bytes, chained, count, duration, exact, number, rate, share, watermark } from "./format.js";
import { busyTone, pressureTone } from "./graph.js";
import { Bar, Figure, Outside, Panel, Table } from "./ui.js";

/** How uneven subtasks are: the largest beside the mean. */
function skew(subtasks, of) {
  const values = subtasks.map(of);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.length > 1 && mean > 0 ? Math.max(...values) / mean : null;
}

const SUBTASKS = [
  ["#", "num"],
  ["In/s", "num"],
  ["Out/s", "num"],
  ["Busy", "num"],
  ["Pressure", "num"],
  ["Idle", "num"],
  ["In", "num"],
  ["Out", "num"],
  ["State", "num"],
  ["Watermark", "num"],
  ["Host", ""],
];

function Subtasks({ vertex, now }) {
  const { subtasks } = vertex;
  const most = (name) => Math.max(0, ...subtasks.map((subtask) => subtask[name] ?? 0));
  const [fastest, largest, sent] = [most("records_in_per_second"), most("state_bytes"), most("records_out_per_second")];
  const uneven = skew(subtasks, (subtask) => subtask.records_in ?? 0);
  const note = uneven === null ? "" : `busiest has ${uneven.toFixed(1)}× the mean of records`;
  return html`<${Panel} title="Subtasks" note=${note}>
    <${Table} label="Subtasks" columns=${SUBTASKS}>
      ${subtasks.map(
        (subtask) => html`<tr key=${subtask.index}>
          <th scope="row" class="num">${subtask.index}</th>
          <td><${Bar} value=${subtask.records_in_per_second} of=${fastest} text=${rate(subtask.records_in_per_second)} /></td>
          <td><${Bar} value=${subtask.records_out_per_second} of=${sent} text=${rate(subtask.records_out_per_second)} /></td>
          <td><${Bar} value=${subtask.busy} of=${1} text=${share(subtask.busy)} tone=${busyTone(subtask.busy)} /></td>
          <td><${Bar} value=${subtask.back_pressured} of=${1} text=${share(subtask.back_pressured)} tone="pressure ${pressureTone(subtask.back_pressured)}" /></td>
          <td class="num">${share(subtask.idle)}</td>
          <td class="num" title=${exact(subtask.records_in)}>${count(subtask.records_in)}</td>
          <td class="num" title=${exact(subtask.records_out)}>${count(subtask.records_out)}</td>
          <td><${Bar} value=${subtask.state_bytes} of=${largest} text=${bytes(subtask.state_bytes)} /></td>
          <td class="num">${watermark(subtask.watermark, now)}</td>
          <td class="muted">${subtask.host ? `${subtask.host} · ${subtask.pid}` : "not run yet"}</td>
        </tr>`,
      )}
    <//>
  <//>`;
}

/** What a metric of the user's says, by its kind. */
const FIGURES = {
  counter: ({ count: n }) => count(n),
  gauge: ({ value }) => number(value),
  meter: ({ count: n, value }) => `${rate(value)}/s, ${count(n)} in all`,
  distribution: ({ count: n, value, least, largest }) =>
    `${count(n)} values, mean ${number(n ? value / n : null)}, least ${number(least)}, largest ${number(largest)}`,
};

function Metric({ metric }) {
  const labels = Object.entries(metric.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const figures = FIGURES[metric.kind] ?? FIGURES.gauge;
  return html`<tr>
    <th scope="row">${metric.name}${labels.length > 0 && html` <span class="muted">${labels.join(", ")}</span>`}</th>
    <td class="muted">${metric.kind}</td>
    <td class="num">${figures(metric)}</td>
  </tr>`;
}

function Operator({ operator }) {
  const { user = [] } = operator;
  const facts = [
    ["in", count(operator.records_in), operator.records_in],
    ["out", count(operator.records_out), operator.records_out],
    ["late", count(operator.late), operator.late],
    ["bad", count(operator.bad), operator.bad],
  ];
  return html`<li class="operator">
    <p class="head"><strong>${operator.name}</strong>${operator.guarantee && html` <span class="tag">${operator.guarantee}</span>`}</p>
    <p class="muted">
      uid <code>${operator.uid}</code>${operator.declared_at && html` · declared at <code>${operator.declared_at}</code>`}
    </p>
    <p class="facts">
      ${facts.map(
        ([name, text, value]) => html`<span key=${name} title=${exact(value)} class=${value && (name === "bad" ? "bad" : name === "late" ? "warn" : "")}>${name} <b>${text}</b></span>`,
      )}
    </p>
    ${user.length > 0 &&
    html`<table class="metrics"><tbody>${user.map((metric, i) => html`<${Metric} key=${i} metric=${metric} />`)}</tbody></table>`}
  </li>`;
}

function Charts({ vertex, history }) {
  const { times, series } = history;
  const of = (name) => series[`${name}.${vertex.id}`];
  return html`<${Panel} title="Over time">
    <${Chart}
      title="Time of the busiest subtask"
      times=${times}
      top=${1}
      format=${share}
      series=${[
        { label: "busy", values: of("busy"), tone: "busy" },
        { label: "back-pressured", values: of("back_pressured"), tone: "press" },
      ]}
    />
    <${Chart}
      title="Records a second"
      times=${times}
      format=${rate}
      series=${[
        { label: "in", values: of("in"), tone: "one" },
        { label: "out", values: of("out"), tone: "two" },
      ]}
    />
  <//>`;
}

/** Where Spark's own page, if it is turned on, shows the tasks of the last epoch. */
function Stage({ engine, stage }) {
  if (!engine?.ui || !(stage >= 0)) return null;
  return html`<p class="facts"><${Outside} href="${engine.ui}/stages/stage/?id=${stage}&attempt=0">Spark’s stage ${stage} ↗<//></p>`;
}

export function VertexDrawer({ job, vertex, close }) {
  const heading = useRef(null);
  useEffect(() => {
    heading.current.focus({ preventScroll: true });
    const escape = (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) close();
    };
    document.addEventListener("keydown", escape);
    return () => document.removeEventListener("keydown", escape);
  }, [vertex.id]);
  return html`<aside class="drawer" aria-labelledby="drawer-title">
    <header>
      <h2 id="drawer-title" tabindex="-1" ref=${heading}>${chained(vertex.name)}</h2>
      <button type="button" class="small" onClick=${close} aria-label="Close the vertex">✕</button>
    </header>
    <${Stage} engine=${job.engine} stage=${vertex.stage} />
    <dl class="figures">
      <${Figure} label="Busy" value=${share(vertex.busy)} tone=${busyTone(vertex.busy)} />
      <${Figure} label="Back-pressured" value=${share(vertex.back_pressured)} tone=${pressureTone(vertex.back_pressured)} />
      <${Figure} label="In" value=${count(vertex.records_in)} note=${bytes(vertex.bytes_in)} title=${exact(vertex.records_in)} />
      <${Figure} label="Out" value=${count(vertex.records_out)} note=${bytes(vertex.bytes_out)} title=${exact(vertex.records_out)} />
      <${Figure} label="Watermark" value=${watermark(vertex.watermark, job.now)} note=${vertex.watermark_lag === null || vertex.watermark_lag === undefined ? "" : `${duration(vertex.watermark_lag)} behind`} />
      <${Figure} label="State" value=${bytes(vertex.state_bytes)} />
    </dl>
    <${Subtasks} vertex=${vertex} now=${job.now} />
    <${Charts} vertex=${vertex} history=${job.history} />
    <${Panel} title="Operators">
      <ul class="operators">${vertex.operators.map((operator) => html`<${Operator} key=${operator.uid} operator=${operator} />`)}</ul>
    <//>
  </aside>`;
}
