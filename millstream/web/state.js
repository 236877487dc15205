/** How large the state is, by vertex and subtask. */

import { html } from "./vendor/preact.js";
import { bytes, chained, share } from "./format.js";
import { HistoryChart } from "./history.js";
import { Bar, Empty, Panel, Table } from "./ui.js";

const COLUMNS = [["Vertex", ""], ["State", "num"], ["Of all", "num"], ["Largest subtask", "num"], ["Mean", "num"], ["By subtask", ""]];

/** A column for each subtask, as high as its state. */
function Columns({ subtasks, most }) {
  return html`<span class="columns-of" role="img" aria-label=${subtasks.map((s) => `#${s.index} ${bytes(s.state_bytes)}`).join(", ")}>
    ${subtasks.map((s) => html`<span key=${s.index} title="#${s.index} ${bytes(s.state_bytes)}" style=${{ height: `${most > 0 ? (100 * s.state_bytes) / most : 0}%` }}></span>`)}
  </span>`;
}

export function StatePage({ job }) {
  const keeping = job.vertices.filter(({ state_bytes: size }) => size > 0).sort((a, b) => b.state_bytes - a.state_bytes);
  const total = keeping.reduce((sum, { state_bytes: size }) => sum + size, 0);
  const row = (vertex) => {
    const sizes = vertex.subtasks.map(({ state_bytes: size }) => size);
    const most = Math.max(...sizes);
    return html`<tr key=${vertex.id}>
      <th scope="row"><a href="#/job/${job.jid}/graph/${vertex.id}">${chained(vertex.name)}</a></th>
      <td><${Bar} value=${vertex.state_bytes} of=${keeping[0].state_bytes} text=${bytes(vertex.state_bytes)} /></td>
      <td class="num">${share(vertex.state_bytes / total)}</td>
      <td class="num">#${sizes.indexOf(most)} ${bytes(most)}</td>
      <td class="num">${bytes(vertex.state_bytes / sizes.length)}</td>
      <td><${Columns} subtasks=${vertex.subtasks} most=${most} /></td>
    </tr>`;
  };
  return html`
    <${Panel} title="Over time"><${HistoryChart} job=${job} name="state_bytes" /><//>
    <${Panel} title="By vertex" note=${total ? `${bytes(total)} in the last checkpoint` : ""}>
      ${keeping.length
        ? html`<${Table} label="State by vertex" columns=${COLUMNS}>${keeping.map(row)}<//>`
        : html`<${Empty} title="No state yet">Sizes are those of the last checkpoint; vertices that keep nothing are left out.<//>`}
    <//>
  `;
}
