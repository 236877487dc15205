/** The job's graph: a box for each vertex, a line for each exchange, and the same figures as a table. */

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { BOX, arrange } from "./layout.js";
import { bytes, chained, count, duration, isTime, rate, share, watermark } from "./format.js";
import { Bar, Empty, Panel, Table } from "./ui.js";

const LEAST_SCALE = 0.62;
const METER = { x: 72, width: 82 };

/** How much of its time a vertex works: the word that goes with the colour. */
export const busyTone = (n) => (n >= 0.8 ? "hot" : n >= 0.5 ? "warm" : "calm");
/** How much of its time a vertex waits for those behind it; Flink's limits. */
export const pressureTone = (n) => (n > 0.5 ? "hot" : n > 0.1 ? "warm" : "calm");
const PRESSURE = { hot: "high", warm: "low", calm: "ok" };

function said(vertex, now) {
  return [
    `${vertex.name}, parallelism ${vertex.parallelism}`,
    `busy ${share(vertex.busy)}`,
    `back-pressured ${share(vertex.back_pressured)}`,
    `${rate(vertex.records_in_per_second)} records a second in, ${rate(vertex.records_out_per_second)} out`,
    `watermark ${watermark(vertex.watermark, now)}`,
  ].join("; ");
}

function Meter({ y, label, value, text, tone }) {
  const part = Math.max(0, Math.min(1, value ?? 0));
  return html`<g class="meter ${tone}">
    <text x="14" y=${y + 9} class="label">${label}</text>
    <rect x=${METER.x} y=${y + 1} width=${METER.width} height="9" rx="2" class="track" />
    <rect x=${METER.x} y=${y + 1} width=${METER.width * part} height="9" rx="2" class="level" />
    <text x=${BOX.width - 12} y=${y + 9} class="figure">${text}</text>
  </g>`;
}

function Box({ box, vertex, now, chosen, choose }) {
  const below = 22 + box.lines.length * BOX.line;
  const pressure = pressureTone(vertex.back_pressured);
  const tone = pressure === "hot" ? "pressed" : busyTone(vertex.busy);
  const open = () => choose(vertex.id);
  const key = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  };
  const behind = vertex.watermark_lag;
  const late = behind === null || behind === undefined ? "" : ` · ${duration(behind)} behind`;
  return html`<g
    class="vertex ${tone} ${chosen ? "chosen" : ""}"
    id="vertex-${vertex.id}"
    transform="translate(${box.x},${box.y})"
    role="button"
    tabindex="0"
    aria-label=${said(vertex, now)}
    aria-expanded=${chosen ? "true" : "false"}
    onClick=${open}
    onKeyDown=${key}
  >
    <title>${vertex.name}</title>
    <rect class="box" width=${BOX.width} height=${box.height} rx="5" />
    <path class="stripe" d="M5,0 a5,5 0 0 0 -5,5 v${box.height - 10} a5,5 0 0 0 5,5 z" />
    ${box.lines.map((line, i) => html`<text key=${i} x="14" y=${22 + i * BOX.line} class="name">${line}</text>`)}
    <text x="14" y=${below} class="label">${vertex.kind} · ${vertex.parallelism}×</text>
    <text x=${BOX.width - 12} y=${below} class="figure">${rate(vertex.records_in_per_second)}/s in</text>
    <${Meter} y=${below + 9} label="busy" value=${vertex.busy} text=${share(vertex.busy)} tone=${busyTone(vertex.busy)} />
    <${Meter}
      y=${below + 25}
      label="pressure"
      value=${vertex.back_pressured}
      text="${PRESSURE[pressure]} ${share(vertex.back_pressured)}"
      tone="pressure ${pressure}"
    />
    <text x="14" y=${below + 51} class="label">${isTime(vertex.watermark) ? `watermark ${watermark(vertex.watermark, now)}${late}` : "no watermark"}</text>
  </g>`;
}

/** The width of an element, as it changes. */
function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

function Drawing({ job, chosen, choose }) {
  const [ref, room] = useWidth();
  const [zoom, setZoom] = useState(1);
  const upright = room > 0 && room < 640;
  const shape = JSON.stringify([
    job.vertices.map(({ id, name }) => [id, name]),
    job.edges.map(({ from, to }) => [from, to]),
    upright,
  ]);
  const places = useMemo(() => arrange(job.vertices, job.edges, upright), [shape]);
  const fitting = room ? Math.min(1, Math.max(LEAST_SCALE, room / places.width)) : 1;
  const scale = fitting * zoom;
  const vertices = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const steps = [["−", "Smaller", zoom / 1.25], ["+", "Larger", zoom * 1.25], ["Fit", "As large as fits", 1]];
  return html`<div class="drawing">
    <div class="canvas" ref=${ref} tabindex="-1">
      <svg
        width=${places.width * scale}
        height=${places.height * scale}
        viewBox="0 0 ${places.width} ${places.height}"
        role="group"
        aria-label="Graph of the job"
      >
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0,0.5 L8,4 L0,7.5 z" />
          </marker>
        </defs>
        ${places.edges.map(({ index, path }) => html`<path key=${index} class="edge" d=${path} marker-end="url(#arrow)" />`)}
        ${places.edges.map(({ index, x, y }) => {
          const edge = job.edges[index];
          return html`<g key=${index} class="edge-label" transform="translate(${x},${y})">
            <text y="-5" class="rate">${rate(edge.records_per_second)}/s</text>
            <text y="13">${String(edge.strategy ?? "").toLowerCase()}</text>
          </g>`;
        })}
        ${places.boxes.map(
          (box) => html`<${Box} key=${box.id} box=${box} vertex=${vertices.get(box.id)} now=${job.now} chosen=${chosen === box.id} choose=${choose} />`,
        )}
      </svg>
    </div>
    <div class="legend">
      <p class="muted">
        <span class="swatch calm"></span>busy <span class="swatch warm"></span>50 % and more <span class="swatch hot"></span>80 % and more
        <span class="swatch press"></span>back pressure: waits for what is behind it
      </p>
      <div class="zoom" role="group" aria-label="Size of the graph">
        ${steps.map(
        ([sign, label, to]) => html`<button key=${sign} type="button" class="small" aria-label=${label} title=${label} onClick=${() => setZoom(Math.min(3, Math.max(0.3, to)))}>${sign}</button>`,
        )}
      </div>
    </div>
  </div>`;
}

function Row({ vertex, now, most, chosen, choose }) {
  const { id, name } = vertex;
  return html`<tr class=${chosen ? "chosen" : ""}>
    <th scope="row"><button type="button" class="link" onClick=${() => choose(id)}>${chained(name)}</button></th>
    <td class="num">${vertex.parallelism}</td>
    <td><${Bar} value=${vertex.busy} of=${1} text=${share(vertex.busy)} tone=${busyTone(vertex.busy)} /></td>
    <td><${Bar} value=${vertex.back_pressured} of=${1} text=${share(vertex.back_pressured)} tone="pressure ${pressureTone(vertex.back_pressured)}" /></td>
    <td class="num">${rate(vertex.records_in_per_second)}</td>
    <td class="num">${rate(vertex.records_out_per_second)}</td>
    <td class="num">${count(vertex.records_in)}</td>
    <td class="num">${count(vertex.records_out)}</td>
    <td class="num">${watermark(vertex.watermark, now)}</td>
    <td class="num">${duration(vertex.watermark_lag)}</td>
    <td><${Bar} value=${vertex.state_bytes} of=${most} text=${bytes(vertex.state_bytes)} /></td>
    <td class="num ${vertex.late ? "warn" : ""}">${count(vertex.late)}</td>
    <td class="num ${vertex.bad ? "bad" : ""}">${count(vertex.bad)}</td>
  </tr>`;
}

const COLUMNS = [
  ["Vertex", ""],
  ["Subtasks", "num"],
  ["Busy", "num", "Share of time that the busiest subtask works"],
  ["Pressure", "num", "Share of time that a subtask waits for those behind it, at most"],
  ["In/s", "num", "Records a second"],
  ["Out/s", "num", "Records a second"],
  ["In", "num", "Records since the job started"],
  ["Out", "num", "Records since the job started"],
  ["Watermark", "num"],
  ["Behind", "num", "How far the watermark is behind the clock"],
  ["State", "num", "Bytes of state in the last checkpoint"],
  ["Late", "num", "Records that came after their window had ended"],
  ["Bad", "num", "Records that were skipped or put aside because a function failed on them"],
];

export function GraphPage({ job, chosen, choose }) {
  if (!job.vertices.length) {
    return html`<${Empty} title="No graph yet">It is drawn as soon as the job has a plan.<//>`;
  }
  const most = Math.max(...job.vertices.map((vertex) => vertex.state_bytes ?? 0));
  return html`
    <${Drawing} job=${job} chosen=${chosen} choose=${choose} />
    <${Panel} title="Vertices">
      <${Table} label="Vertices" columns=${COLUMNS}>
        ${job.vertices.map((vertex) => html`<${Row} key=${vertex.id} vertex=${vertex} now=${job.now} most=${most} chosen=${chosen === vertex.id} choose=${choose} />`)}
      <//>
    <//>
  `;
}
