/** One job: headline figures, what can be done to it, and its pages. */

import { html, useCallback, useEffect, useRef } from "./vendor/preact.js";
import { Actions } from "./actions.js";
import { usePolled } from "./api.js";
import { CheckpointsPage } from "./checkpoints.js";
import { ConfigurationPage } from "./configuration.js";
import { ExceptionsPage } from "./exceptions.js";
import { absolute, ago, bytes, count, duration, exact, rate } from "./format.js";
import { GraphPage } from "./graph.js";
import { ENDED } from "./jobs.js";
import { LogPage } from "./log.js";
import { MetricsPage } from "./metrics.js";
import { StatePage } from "./state.js";
import { Trouble } from "./trouble.js";
import { Copy, Empty, Figure, Outside, State } from "./ui.js";
import { VertexDrawer } from "./vertex.js";

const PAGES = [
  ["graph", "Graph", GraphPage],
  ["metrics", "Metrics", MetricsPage],
  ["checkpoints", "Checkpoints", CheckpointsPage],
  ["exceptions", "Exceptions", ExceptionsPage],
  ["state", "State", StatePage],
  ["log", "Log", LogPage],
  ["configuration", "Configuration", ConfigurationPage],
];

/** The largest of what is there. */
const most = (values) => {
  const found = values.filter((value) => value !== null && value !== undefined);
  return found.length ? Math.max(...found) : null;
};

function Headline({ job }) {
  const over = ENDED.has(job.state);
  const slowest = job.latency.toSorted((a, b) => (b.p99 ?? 0) - (a.p99 ?? 0))[0];
  const behind = over ? null : most(job.vertices.map((vertex) => vertex.watermark_lag));
  const checkpoint = job.checkpoints.history.find(({ status, savepoint }) => status === "COMPLETED" && !savepoint);
  const late = job.vertices.reduce((sum, vertex) => sum + (vertex.late ?? 0), 0);
  const bad = job.vertices.reduce((sum, vertex) => sum + (vertex.bad ?? 0), 0);
  return html`<dl class="figures headline" aria-label="Headline figures">
    <${Figure} label="Records/s" value=${over ? "–" : rate(job.records_per_second)} note="${count(job.records)} in all" title="${exact(job.records)} records since the start" />
    <${Figure} label="Lag" value=${count(job.backlog)} note="records" title="Records that are there to be read" />
    <${Figure} label="Watermark lag" value=${duration(behind)} title="How far the watermark of the last vertex is behind the clock" />
    <${Figure} label="Latency p50" value=${duration(slowest?.p50)} title=${slowest && `From source to sink, ${slowest.name}`} />
    <${Figure} label="p95" value=${duration(slowest?.p95)} title=${slowest && `From source to sink, ${slowest.name}`} />
    <${Figure} label="p99" value=${duration(slowest?.p99)} title=${slowest && `From source to sink, ${slowest.name}`} />
    <${Figure} label="Epoch" value=${job.epoch < 0 ? "–" : count(job.epoch)} />
    <${Figure} label="Checkpoint" value=${duration(checkpoint && checkpoint.seconds * 1000)} note=${checkpoint && bytes(checkpoint.full_size)} title="The last one that completed" />
    <${Figure} label="Late" value=${count(late)} tone=${late ? "warn" : ""} title="Records that came after their window had ended, and were dropped" />
    <${Figure} label="Bad" value=${count(bad)} tone=${bad ? "bad" : ""} title="Records that a function failed on, and that were skipped or put aside" />
    <${Figure} label="Restarts" value=${count(job.restarts)} tone=${job.restarts ? "warn" : ""} />
    <${Figure} label=${over ? "Ran for" : "Uptime"} value=${duration(job.duration)} title="since ${absolute(job["start-time"])}" />
  </dl>`;
}

function Head({ job }) {
  const { ui } = job.engine ?? {};
  return html`<div class="head">
    <div>
      <h1>${job.name}</h1>
      <p class="facts">
        <${State} state=${job.state} />
        <span>started ${absolute(job["start-time"]).slice(0, 19)} <span class="muted">${ago(job["start-time"], job.now)}</span></span>
        <span class="muted">${[job.engine?.name, job.engine?.version].filter(Boolean).join(" ")}</span>
        ${ui && html`<${Outside} href=${ui}>Spark’s page ↗<//>`}
        <span class="id"><code class="muted">${job.jid}</code> <${Copy} text=${job.jid} /></span>
      </p>
    </div>
    <${Actions} job=${job} />
  </div>`;
}

function Pages({ job, page }) {
  const failures = job.exceptions.length;
  const nav = useRef(null);
  useEffect(() => {
    nav.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [page]);
  return html`<nav class="pages" aria-label="Pages of the job" ref=${nav}>
    ${PAGES.map(
      ([name, title]) => html`<a key=${name} href="#/job/${job.jid}/${name}" aria-current=${name === page ? "page" : undefined}
        >${title}${name === "exceptions" && failures > 0 && html` <span class="badge">${failures}</span>`}</a
      >`,
    )}
  </nav>`;
}

export function JobPage({ jid, page, chosen }) {
  const polled = usePolled(`millstream/jobs/${encodeURIComponent(jid)}`, (job) => (ENDED.has(job.state) ? 5 : 1));
  const job = polled.data;
  const choose = useCallback((id) => (location.hash = `#/job/${jid}/graph/${id}`), [jid]);
  const close = useCallback(() => {
    location.hash = `#/job/${jid}/graph`;
    document.getElementById(`vertex-${chosen}`)?.focus({ preventScroll: true });
  }, [jid, chosen]);
  useEffect(() => {
    document.title = job ? `${job.name} · ${job.state.toLowerCase()} · Millstream` : "Millstream";
  }, [job?.name, job?.state]);
  if (polled.error?.status === 404 && !job) {
    return html`<${Empty} title="There is no such job here">It ran in another process, or is too long over. <a href="#/">All jobs</a><//>`;
  }
  if (!job) return html`<${Trouble} polled=${polled} />${!polled.error && html`<p class="empty">Loading …</p>`}`;
  const [name, , Page] = PAGES.find(([known]) => known === page) ?? PAGES[0];
  const vertex = name === "graph" && job.vertices.find(({ id }) => id === chosen);
  return html`
    <${Trouble} polled=${polled} />
    <${Head} job=${job} />
    <${Headline} job=${job} />
    <${Pages} job=${job} page=${name} />
    <div class="content ${vertex ? "with-drawer" : ""}">
      <div class="page"><${Page} job=${job} chosen=${vertex ? chosen : null} choose=${choose} /></div>
      ${vertex && html`<${VertexDrawer} job=${job} vertex=${vertex} close=${close} />`}
    </div>
  `;
}
