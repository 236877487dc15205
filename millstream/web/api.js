/** Requests to the server that serves this page, and a hook that repeats one of them. */

import { useCallback, useEffect, useState } from "./vendor/preact.js";

const TIMEOUT = 10_000;
const LONGEST_PAUSE = 5_000;
const TOKEN = "millstream.token";

/** How often the page asks, in milliseconds. */
let refresh = 1000;
/** What `web.refresh-interval` is if nobody has set it; it is meant for pages that ask for many things at a time. */
const UNSET = 3000;

/** Take the interval that somebody has configured at the server. */
export function adopt(interval) {
  if (interval >= 200 && interval !== UNSET) refresh = interval;
}

/** A request that was not answered, or answered with an error: `status` is 0 if nobody was there. */
export class Failed extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Keep a token for this tab; the server asks for one if it listens beyond this machine. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    throw new Failed(error.name === "TimeoutError" ? "no answer in time" : "no answer");
  }
  let body = null;
  try {
    body = await response.json();
  } catch {
    // An answer without a document; the status says enough.
  }
  if (!response.ok) {
    const said = body?.errors?.filter(Boolean).join("\n");
    throw new Failed(said || `${response.status} ${response.statusText}`, response.status);
  }
  return body ?? {};
}

/** A document. */
export function get(path, signal) {
  const timeout = AbortSignal.timeout(TIMEOUT);
  const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
  return answered(path, { headers: headers({ Accept: "application/json" }), signal: either });
}

/** A request that changes something. */
export function change(method, path, body) {
  const more = { "Content-Type": "application/json", "X-Millstream": "1" };
  return answered(path, { method, headers: headers(more), body: JSON.stringify(body ?? {}) });
}

/**
 * A document, asked for again and again while the page is visible.
 * `data` is the last answer, `error` is set while the last request failed, and `lost` since when that is so.
 * `pace(data)` is how many times longer than usual to wait for the next answer.
 */
export function usePolled(path, pace = () => 1) {
  const [state, set] = useState({ path });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let asking = false;
    let pause = refresh;
    async function ask() {
      clearTimeout(timer);
      if (asking || document.hidden) return;
      asking = true;
      try {
        const data = await get(path, stop.signal);
        pause = refresh * pace(data);
        if (!stop.signal.aborted) set({ path, data, at: Date.now() });
      } catch (error) {
        pause = Math.min(LONGEST_PAUSE, pause * 1.5);
        if (!stop.signal.aborted) {
          set((last) => ({ ...last, path, error, lost: last.lost ?? Date.now() }));
        }
      }
      asking = false;
      if (!stop.signal.aborted && !document.hidden) timer = setTimeout(ask, pause);
    }
    document.addEventListener("visibilitychange", ask);
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", ask);
    };
  }, [path, turn]);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  return { ...(state.path === path ? state : {}), again };
}
