/** Numbers, sizes, durations and times as people read them. What is not there is a dash. */

export const DASH = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

const missing = (n) => n === null || n === undefined || !Number.isFinite(Number(n));

/** Three digits and a unit: 12.3 k. */
function scaled(n, units, base) {
  let unit = 0;
  let value = Math.abs(n);
  // 999.6 is shown as 1000, so it already belongs to the next unit.
  while (value >= base - 0.5 && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  const text = value.toFixed(digits);
  return `${n < 0 ? "−" : ""}${text}${units[unit] && " "}${units[unit]}`;
}

/** How many: in full as long as that is short. */
export function count(n) {
  if (missing(n)) return DASH;
  return Math.abs(n) < 1e6 ? whole.format(n) : scaled(n, ["", "k", "M", "G", "T", "P"], 1000);
}

/** The number itself, for tooltips. */
export const exact = (n) => (missing(n) ? "" : plain.format(n));

/** A user's number: whole numbers as counts, others with a few digits. */
export function number(n) {
  if (missing(n)) return DASH;
  return Number.isInteger(n) ? count(n) : Math.abs(n) >= 1e6 ? count(n) : plain.format(n);
}

/** So many a second, without the unit. */
export function rate(n) {
  if (missing(n)) return DASH;
  if (n === 0) return "0";
  if (n < 0.05) return "<0.1";
  if (n < 9.95) return n.toFixed(1);
  return n < 10_000 ? whole.format(n) : scaled(n, ["", "k", "M", "G"], 1000);
}

export function bytes(n) {
  return missing(n) ? DASH : scaled(n, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
}

/** A share of 1. */
export function share(n) {
  return missing(n) ? DASH : `${Math.round(n * 100)} %`;
}

const two = (n) => String(n).padStart(2, "0");

/** Milliseconds, in the two largest units that matter. */
export function duration(ms) {
  if (missing(ms)) return DASH;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const seconds = Math.round(s);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The range of times that a `Date` can hold; watermarks before and after it mean the beginning and the end of time. */
const LAST_DATE = 8.64e15;

export const isTime = (ms) => !missing(ms) && Math.abs(ms) <= LAST_DATE;

/** Day and time with milliseconds, in the reader's time zone. */
export function absolute(ms) {
  if (!isTime(ms)) return DASH;
  const d = new Date(ms);
  const fraction = String(d.getMilliseconds()).padStart(3, "0");
  return `${day(d)} ${clock(ms)}.${fraction}`;
}

const day = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;

/** The time of day. */
export function clock(ms) {
  if (!isTime(ms)) return DASH;
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** The time of day if it is today's, else the day too. */
export function when(ms, now) {
  if (!isTime(ms)) return DASH;
  return day(new Date(ms)) === day(new Date(now)) ? clock(ms) : `${day(new Date(ms))} ${clock(ms)}`;
}

export function ago(ms, now) {
  if (!isTime(ms)) return DASH;
  const passed = now - ms;
  return passed < 1000 ? "now" : `${duration(passed).replace(/ 00 [sm]$/, "")} ago`;
}

/** A watermark in words. */
export function watermark(ms, now) {
  if (missing(ms) || ms < -LAST_DATE) return "none";
  return ms > LAST_DATE ? "end of input" : when(ms, now);
}

/** The name of a vertex; those of its operators are joined by arrows. */
export const chained = (name) => String(name).replaceAll(" -> ", " → ");
