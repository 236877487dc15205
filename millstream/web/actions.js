/** What can be done to a job: savepoint, stop, cancel. */

import { html, useState } from "./vendor/preact.js";
import { change, get } from "./api.js";
import { ENDED } from "./jobs.js";
import { Dialog, Snippet } from "./ui.js";

const EVERY = 500;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** What became of a savepoint that was asked for. The server may have ended with the job before it could say so. */
async function outcomeOf(jid, request, stop) {
  try {
    return await get(`jobs/${jid}/savepoints/${request}`);
  } catch (error) {
    if (!stop || error.status) throw error;
    throw new Error("The server has ended, with the job it seems. Its log names the savepoint.");
  }
}

/** Wait for a savepoint that was asked for; its path. */
async function savepointOf(jid, request, stop) {
  for (;;) {
    const { status, operation } = await outcomeOf(jid, request, stop);
    if (status?.id === "COMPLETED") {
      const failure = operation?.["failure-cause"];
      if (failure) throw new Error(failure["stack-trace"] || failure.class || "the savepoint failed");
      return operation?.location ?? "";
    }
    await pause(EVERY);
  }
}

/** What is under way: nothing, `busy`, or how it ended. */
function useTask() {
  const [task, set] = useState({});
  const run = async (work) => {
    set({ busy: true });
    try {
      set({ done: true, ...(await work()) });
    } catch (error) {
      set({ error: error.message });
    }
  };
  return [task, run, () => set({})];
}

function Outcome({ task, busy, done }) {
  return html`<div role="status" class="outcome">
    ${task.busy && html`<p>${busy}</p>`} ${task.error && html`<pre class="error">${task.error}</pre>`}
    ${task.done && html`<p>${done}</p>`} ${task.path && html`<${Snippet} text=${task.path} />`}
  </div>`;
}

function Buttons({ task, close, go, word, kind = "primary" }) {
  return html`<div class="buttons">
    <button type="button" onClick=${close}>${task.done ? "Close" : "Back"}</button>
    ${!task.done && html`<button type="button" class=${kind} disabled=${task.busy} onClick=${go}>${word}</button>`}
  </div>`;
}

function Folder({ value, set, configured }) {
  return html`<label class="field"
    >Folder
    <input type="text" spellcheck="false" value=${value} placeholder=${configured || "as configured"} onInput=${(event) => set(event.target.value)} />
  </label>`;
}

function SavepointDialog({ job, open, close }) {
  const [task, run, reset] = useTask();
  const [folder, setFolder] = useState("");
  const [drain, setDrain] = useState(false);
  const stop = open === "stop";
  const end = () => {
    reset();
    setDrain(false);
    close();
  };
  const go = () =>
    run(async () => {
      const target = folder.trim() || undefined;
      const asked = stop
        ? await change("POST", `jobs/${job.jid}/stop`, { targetDirectory: target, drain })
        : await change("POST", `jobs/${job.jid}/savepoints`, { "target-directory": target, "cancel-job": false });
      return { path: await savepointOf(job.jid, asked["request-id"], stop) };
    });
  return html`<${Dialog} open=${open === "stop" || open === "savepoint"} onClose=${end} title=${stop ? "Stop with a savepoint" : "Take a savepoint"}>
    <p>
      ${stop
        ? "The job ends after a savepoint from which it, or a changed version of it, can go on. Nothing is lost or repeated."
        : "The job goes on. From the savepoint it, or a changed version of it, can be started again."}
    </p>
    ${!task.done && html`<${Folder} value=${folder} set=${setFolder} configured=${job.checkpoints?.config?.savepoint_dir} />`}
    ${stop &&
    !task.done &&
    html`<label class="check">
      <input type="checkbox" checked=${drain} onChange=${(event) => setDrain(event.target.checked)} />
      <span>Drain: fire all windows and timers first, as at the end of the input. For a job that is not to go on.</span>
    </label>`}
    <${Outcome} task=${task} busy=${stop ? "Stopping …" : "Taking the savepoint …"} done=${stop ? "The job has stopped. Savepoint:" : "Savepoint completed:"} />
    <${Buttons} task=${task} close=${end} go=${go} word=${stop ? "Stop the job" : "Take savepoint"} />
  <//>`;
}

function CancelDialog({ job, open, close }) {
  const [task, run, reset] = useTask();
  const end = () => {
    reset();
    close();
  };
  const go = () =>
    run(async () => {
      await change("PATCH", `jobs/${job.jid}?mode=cancel`);
      return {};
    });
  return html`<${Dialog} open=${open === "cancel"} onClose=${end} title="Cancel the job?">
    <p><strong>${job.name}</strong> ends at once, without a savepoint. What came after the last completed checkpoint is not committed.</p>
    <${Outcome} task=${task} busy="Cancelling …" done="The job is being cancelled." />
    <${Buttons} task=${task} close=${end} go=${go} word="Cancel the job" kind="danger" />
  <//>`;
}

export function Actions({ job }) {
  const [open, setOpen] = useState(null);
  const over = ENDED.has(job.state) || job.state === "CANCELLING";
  const close = () => setOpen(null);
  return html`<div class="actions">
    <button type="button" disabled=${over} onClick=${() => setOpen("savepoint")}>Savepoint</button>
    <button type="button" disabled=${over} onClick=${() => setOpen("stop")}>Stop …</button>
    <button type="button" disabled=${over} class="danger" onClick=${() => setOpen("cancel")}>Cancel …</button>
    <${SavepointDialog} job=${job} open=${open} close=${close} />
    <${CancelDialog} job=${job} open=${open} close=${close} />
  </div>`;
}
