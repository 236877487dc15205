/** What is said when the server does not answer as it should. */

import { html, useState } from "./vendor/preact.js";
import { keepToken } from "./api.js";
import { clock } from "./format.js";

function Token({ again }) {
  const [token, setToken] = useState("");
  const send = (event) => {
    event.preventDefault();
    keepToken(token.trim());
    again();
  };
  return html`<form class="panel token" onSubmit=${send}>
    <h2>This server asks for a token</h2>
    <p class="muted">It stands in the file that the server named when it started. It is kept until this tab is closed.</p>
    <label>Token <input type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
    <button type="submit" class="primary" disabled=${!token.trim()}>Go on</button>
  </form>`;
}

/** A notice, or nothing if the last request was answered. The page goes on asking, so it goes away by itself. */
export function Trouble({ polled }) {
  const { data, error, lost, again } = polled;
  if (!error) return html`<div role="status"></div>`;
  if (error.status === 401) return html`<${Token} again=${again} />`;
  const what = error.status ? `The server answered: ${error.message}.` : "The server does not answer.";
  return html`<div role="status" class="notice bad">
    <strong>${what}</strong> ${data ? `What is shown is from before ${clock(lost)}; the page` : "The page"} keeps trying.
  </div>`;
}
