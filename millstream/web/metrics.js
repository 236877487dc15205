/** Figures of the whole job over time, latency by sink, lag by split. */

import { html } from "./vendor/preact.js";
import { count, duration, exact } from "./format.js";
import { CHARTS, HistoryChart } from "./history.js";
import { Bar, Empty, Panel, Table } from "./ui.js";

const MOST_SPLITS = 100;

const LATENCY = [
  ["Sink", ""],
  ["p50", "num"],
  ["p95", "num"],
  ["p99", "num"],
  ["Max", "num"],
  ["Markers", "num", "How many were measured"],
];

function Latency({ latency }) {
  if (!latency.length) {
    return html`<${Empty} title="No latency yet">It is measured with markers that travel with the records from the sources to the sinks.<//>`;
  }
  const most = Math.max(...latency.map(({ p99 }) => p99 ?? 0));
  return html`<${Table} label="Latency by sink" columns=${LATENCY}>
    ${latency.map(
      (sink) => html`<tr key=${sink.uid}>
        <th scope="row">${sink.name} <code class="muted">${sink.uid}</code></th>
        <td class="num">${duration(sink.p50)}</td>
        <td class="num">${duration(sink.p95)}</td>
        <td><${Bar} value=${sink.p99} of=${most} text=${duration(sink.p99)} /></td>
        <td class="num">${duration(sink.max)}</td>
        <td class="num" title=${exact(sink.count)}>${count(sink.count)}</td>
      </tr>`,
    )}
  <//>`;
}

function Lag({ lag }) {
  const splits = Object.entries(lag).flatMap(([source, found]) =>
    Object.entries(found).map(([split, behind]) => ({ source, split, behind })),
  );
  if (!splits.length) return html`<${Empty} title="No splits yet">Sources name them when they are first read.<//>`;
  splits.sort((a, b) => b.behind - a.behind);
  const most = splits[0].behind;
  const shown = splits.slice(0, MOST_SPLITS);
  const more = splits.length - shown.length;
  return html`<${Table} label="Lag by split" columns=${[["Source", ""], ["Split", ""], ["To be read", "num"]]}>
      ${shown.map(
        ({ source, split, behind }) => html`<tr key="${source} ${split}">
          <th scope="row">${source}</th>
          <td><code>${split}</code></td>
          <td><${Bar} value=${behind} of=${most} text=${count(behind)} /></td>
        </tr>`,
      )}
    <//>
    ${more > 0 && html`<p class="muted more">and ${count(more)} with less</p>`}`;
}

export function MetricsPage({ job }) {
  return html`
    <${Panel} title="Over time">
      <div class="charts">${Object.keys(CHARTS).map((name) => html`<${HistoryChart} key=${name} job=${job} name=${name} />`)}</div>
    <//>
    <div class="columns">
      <${Panel} title="Latency by sink"><${Latency} latency=${job.latency} /><//>
      <${Panel} title="Lag by split"><${Lag} lag=${job.lag ?? {}} /><//>
    </div>
  `;
}
