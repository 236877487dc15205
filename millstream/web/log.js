/** The last lines that the package's loggers wrote in the job's process. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { usePolled } from "./api.js";
import { Copy, Empty } from "./ui.js";

const tone = (line) => (/\b(ERROR|CRITICAL)\b/.test(line) ? "bad" : /\bWARNING\b/.test(line) ? "warn" : "");

export function LogPage({ job }) {
  const { data, error } = usePolled(`millstream/jobs/${job.jid}/log?lines=500`, () => 2);
  const [filter, setFilter] = useState("");
  const [follow, setFollow] = useState(true);
  const box = useRef(null);
  const wanted = filter.toLowerCase();
  const lines = (data?.lines ?? []).filter((line) => line.toLowerCase().includes(wanted));
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, lines.at(-1), follow]);
  if (!data) return error ? html`<${Empty} title="No log">${error.message}<//>` : html`<p class="empty">Loading …</p>`;
  return html`<section class="panel">
    <header class="tools">
      <h2>Log</h2>
      <label>Only lines with <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> <span>follow</span></label>
      <${Copy} text=${lines.join("\n")} label="Copy ${lines.length} lines" />
    </header>
    ${lines.length
      ? html`<div class="log" ref=${box} role="log" aria-live="off" aria-label="Log" tabindex="0">
          ${lines.map((line, i) => html`<div key=${i} class=${tone(line)}>${line}</div>`)}
        </div>`
      : html`<${Empty} title=${data.lines.length ? "No line has that in it" : "Nothing has been written yet"} />`}
  </section>`;
}
