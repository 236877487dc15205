/** The dashboard begins here: what the address names is shown. #/ is the list of jobs, #/job/<id>/<page>/<vertex> one. */

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { adopt, get } from "./api.js";
import { JobPage } from "./job.js";
import { JobsPage } from "./jobs.js";

function route() {
  const [, ...parts] = location.hash.split("/");
  return parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function useRoute() {
  const [found, set] = useState(route);
  useEffect(() => {
    const changed = () => set(route());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return found;
}

const ICON = new URL("icon.svg", import.meta.url).href;

const THEMES = { auto: "System", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const choose = (event) => {
    const { value } = event.target;
    document.documentElement.dataset.theme = value;
    setTheme(value);
    try {
      localStorage.setItem("millstream.theme", value);
    } catch {
      // Storage may be off; then it lasts until the page is closed.
    }
  };
  return html`<label class="theme"
    ><span class="muted">Theme</span>
    <select value=${theme} onChange=${choose}>
      ${Object.entries(THEMES).map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
    </select></label
  >`;
}

function App() {
  const [kind, jid, page, chosen] = useRoute();
  const [version, setVersion] = useState("");
  useEffect(() => {
    get("millstream/jobs").then(
      (found) => setVersion(found.version ?? ""),
      () => {},
    );
  }, []);
  const inJob = kind === "job" && jid;
  useEffect(() => {
    if (!inJob) document.title = "Jobs · Millstream";
  }, [inJob]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>To the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src=${ICON} alt="" width="20" height="20" /> Millstream</a>
      <span class="muted version">${version}</span>
      <nav aria-label="Main"><a href="#/" aria-current=${inJob ? undefined : "page"}>Jobs</a></nav>
      <${Theme} />
    </header>
    <main id="main" tabindex="-1">${inJob ? html`<${JobPage} key=${jid} jid=${jid} page=${page} chosen=${chosen} />` : html`<${JobsPage} />`}</main>
  `;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
get("config").then((config) => adopt(config["refresh-interval"]), () => {});
