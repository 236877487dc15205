/** Small parts that all pages use. Whatever comes from a job is given to them as text, never as markup. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { DASH, absolute, ago, isTime, when } from "./format.js";

/** A moment: how long ago, and when exactly. */
export function Time({ at, now, both = false }) {
  if (!isTime(at) || at < 0) return html`<span class="muted">${DASH}</span>`;
  const said = both ? html`${when(at, now)} <span class="muted">${ago(at, now)}</span>` : ago(at, now);
  return html`<time datetime=${new Date(at).toISOString()} title=${absolute(at)}>${said}</time>`;
}

const SIGNS = {
  RUNNING: ["●", "good"],
  RESTARTING: ["↻", "warn"],
  FAILING: ["✕", "bad"],
  FAILED: ["✕", "bad"],
  COMPLETED: ["✓", "good"],
  IN_PROGRESS: ["…", "warn"],
  FINISHED: ["✓", "calm"],
  CANCELED: ["■", "calm"],
  CANCELLING: ["■", "warn"],
};

/** A status by sign, colour and word. */
export function State({ state }) {
  const [sign, tone] = SIGNS[state] ?? ["○", "calm"];
  const word = String(state ?? "unknown").replaceAll("_", " ").toLowerCase();
  return html`<span class="state ${tone}"><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

/** What stands where there is nothing to show. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p><strong>${title}</strong></p>${children && html`<p>${children}</p>`}</div>`;
}

/** A number in its cell of a table, with a bar behind it: how large it is beside the largest. */
export function Bar({ value, of, text, tone = "" }) {
  const part = of > 0 && value > 0 ? Math.min(1, value / of) : 0;
  return html`<span class="bar ${tone}"
    ><span class="fill" style=${{ width: `${(part * 100).toFixed(1)}%` }}></span><span class="num">${text}</span></span
  >`;
}

/** A headline figure. */
export function Figure({ label, value, note, title, tone = "" }) {
  return html`<div class="figure ${tone}" title=${title}>
    <dt>${label}</dt>
    <dd><span class="value">${value}</span> <span class="note">${note}</span></dd>
  </div>`;
}

/** Names and values, one under the other. */
export function Pairs({ of }) {
  return html`<dl class="pairs">
    ${of
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? DASH}</dd></div>`)}
  </dl>`;
}

/** A section with a heading. */
export function Panel({ title, note, children, ...more }) {
  return html`<section class="panel" ...${more}>
    <header><h2>${title}</h2>${note && html`<p class="muted">${note}</p>`}</header>
    ${children}
  </section>`;
}

/** A table that scrolls sideways by itself where there is no room. Columns: [heading, class]. */
export function Table({ label, columns, kind = "", children }) {
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table class=${kind}>
      <thead><tr>${columns.map(([head, kind, title]) => html`<th key=${head} scope="col" class=${kind} title=${title}>${head}</th>`)}</tr></thead>
      <tbody>${children}</tbody>
    </table>
  </div>`;
}

async function toClipboard(text) {
  // Only pages from this machine or by TLS have the clipboard; the old way works everywhere.
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return true;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** A button that copies a text. */
export function Copy({ text, label = "Copy" }) {
  const [said, say] = useState("");
  useEffect(() => {
    if (!said) return undefined;
    const timer = setTimeout(() => say(""), 1500);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = () =>
    toClipboard(text).then(
      (copied) => say(copied ? "Copied" : "Not copied"),
      () => say("Not copied"),
    );
  return html`<button type="button" class="small" onClick=${copy} aria-live="polite">${said || label}</button>`;
}

/** A command or path to take along. */
export function Snippet({ text }) {
  return html`<div class="snippet"><code>${text}</code><${Copy} text=${text} /></div>`;
}

/** A link to another page, if it is one that a browser may follow. */
export function Outside({ href, children }) {
  let url = null;
  try {
    url = new URL(href);
  } catch {
    // Not an address: shown as the text that it is.
  }
  if (!url || !["http:", "https:"].includes(url.protocol)) return html`<span>${href}</span>`;
  return html`<a href=${url.href} target="_blank" rel="noreferrer noopener">${children}</a>`;
}

/** A window over the page that is opened by `open` and closed by Escape; the browser keeps the focus inside. */
export function Dialog({ open, onClose, title, children }) {
  const ref = useRef(null);
  useEffect(() => {
    const dialog = ref.current;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  return html`<dialog ref=${ref} onClose=${onClose} aria-labelledby="dialog-title">
    ${open && html`<h2 id="dialog-title">${title}</h2>${children}`}
  </dialog>`;
}
