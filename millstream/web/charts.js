/** Figures over time, drawn with uPlot in the colours of the style sheet. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";
import { DASH, bytes, clock } from "./format.js";

const HEIGHT = 132;
const DASHES = [[], [5, 3], [2, 2]];

/** A colour of the style sheet as the canvas understands it. */
function colour(name) {
  const probe = document.createElement("span");
  probe.className = `probe ${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

function options(width, series, format, top, onCursor) {
  const axis = {
    stroke: colour("muted"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 }, sync: { key: "time" } },
    scales: {
      y: { range: (_, _least, most) => [0, top ?? Math.max(most * 1.08, 1e-9)] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        space: 70,
        values: (_, splits, _axis, _space, step) =>
          splits.map((s) => (step < 60 ? clock(s * 1000) : clock(s * 1000).slice(0, 5))),
      },
      { ...axis, size: 58, space: 28, incrs: format === bytes ? BINARY : undefined, values: (_, splits) => splits.map((y) => format(y)) },
    ],
    series: [
      {},
      ...series.map(({ tone }, i) => ({
        stroke: colour(tone),
        fill: i === 0 ? colour(`${tone}-faint`) : undefined,
        width: 1.5,
        dash: DASHES[i],
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
  };
}

/** Changes when the colours do. */
function useTheme() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(changed);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    system.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", changed);
    };
  }, []);
  return turn;
}

/**
 * One chart. `times` are milliseconds; `series` are {label, values, tone}; `format` gives the words for a value;
 * `top` is the largest value of the axis, if that is known.
 */
export function Chart({ title, times = [], series, format, top }) {
  const theme = useTheme();
  const place = useRef(null);
  const plot = useRef(null);
  const [cursor, setCursor] = useState(null);
  const there = times.length > 1 && series.some(({ values }) => values?.some((v) => v !== null));
  const shape = series.map(({ label, tone }) => `${label}/${tone}`).join();
  useEffect(() => {
    if (!there) return undefined;
    const made = new uPlot(options(place.current.clientWidth, series, format, top, setCursor), null, place.current);
    const resized = new ResizeObserver(() => made.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resized.observe(place.current);
    plot.current = made;
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [there, theme, shape]);
  useEffect(() => {
    const absent = times.map(() => null);
    plot.current?.setData([times.map((t) => t / 1000), ...series.map(({ values }) => values ?? absent)]);
  });
  const at = cursor !== null && cursor < times.length ? cursor : null;
  const last = (values) => values?.findLast((v) => v !== null);
  const now = series.map(({ label, values }) => `${label} ${format(last(values))}`).join(", ");
  return html`<figure class="chart">
    <figcaption>
      <span class="title">${title}</span>
      ${series.map(
        ({ label, values, tone }, i) => html`<span key=${label} class="key">
          <svg width="18" height="8" aria-hidden="true"
            ><line x1="0" x2="18" y1="4" y2="4" class="stroke-${tone}" stroke-width="2" stroke-dasharray=${DASHES[i].join(" ")}
          /></svg>
          ${series.length > 1 && `${label} `}<b>${there ? format(at === null ? last(values) : values?.[at]) : DASH}</b>
        </span>`,
      )}
      <span class="muted at">${at === null ? "" : clock(times[at])}</span>
    </figcaption>
    ${there
      ? html`<div ref=${place} class="plot" role="img" aria-label="${title} over time; last: ${now}"></div>`
      : html`<div class="plot none">no data yet</div>`}
  </figure>`;
}
