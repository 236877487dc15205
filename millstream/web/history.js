/** The charts of figures that a whole job has. */

import { html } from "./vendor/preact.js";
import { Chart } from "./charts.js";
import { bytes, count, duration, rate } from "./format.js";

const seconds = (s) => duration(s === null || s === undefined ? null : s * 1000);

/** By the name of the series: title, words for a value, colour. */
export const CHARTS = {
  records_per_second: ["Records a second", rate, "one"],
  backlog: ["Lag, records to be read", count, "two"],
  watermark_lag: ["Watermark behind the clock", seconds, "one"],
  latency_p99: ["Latency from source to sink, p99", seconds, "two"],
  checkpoint_seconds: ["Duration of checkpoints", seconds, "one"],
  state_bytes: ["State", bytes, "two"],
};

/** What each of the last checkpoints took; the history has only one point a second. */
function durations({ checkpoints }) {
  const ended = checkpoints.history.filter(({ status, savepoint }) => status === "COMPLETED" && !savepoint).reverse();
  return [ended.map(({ started }) => started), ended.map((one) => one.seconds)];
}

export function HistoryChart({ job, name }) {
  const [title, format, tone] = CHARTS[name];
  const { times, series } = job.history;
  const [at, values] = name === "checkpoint_seconds" ? durations(job) : [times, series[name]];
  return html`<${Chart} title=${title} times=${at} format=${format} series=${[{ label: title, values, tone }]} />`;
}
