/** Where the boxes and lines of a job's graph stand: names are broken into lines, dagre does the rest. */

import { Graph, layout } from "./vendor/dagre.js";
import { chained } from "./format.js";

export const BOX = { width: 236, line: 17, rest: 88 };
const NAME_LINES = 3;
const LABEL = { width: 76, height: 34 };

let context = null;

function width(text) {
  if (context === null) {
    context = document.createElement("canvas").getContext("2d");
    context.font = "600 13px system-ui, sans-serif";
  }
  return context.measureText(text).width;
}

/** A name in lines that fit into a box; what does not fit ends in dots. Names of chains break at their arrows. */
export function lines(name, room = BOX.width - 28) {
  const words = chained(name).split(/\s+/).filter(Boolean);
  const found = [""];
  for (const word of words) {
    const longer = found.at(-1) ? `${found.at(-1)} ${word}` : word;
    if (width(longer) <= room || !found.at(-1)) found[found.length - 1] = longer;
    else found.push(word);
  }
  const shown = found.slice(0, NAME_LINES);
  if (found.length > NAME_LINES) shown[NAME_LINES - 1] += " …";
  return shown.map((line) => {
    if (width(line) <= room) return line;
    const letters = [...line];
    while (letters.length > 1 && width(`${letters.join("")}…`) > room) letters.pop();
    return `${letters.join("")}…`;
  });
}

/** A line through points, rounded at each but the ends. */
function curve(points) {
  const [first, ...others] = points;
  let path = `M${first.x},${first.y}`;
  others.forEach((point, i) => {
    const next = others[i + 1];
    path += next
      ? ` Q${point.x},${point.y} ${(point.x + next.x) / 2},${(point.y + next.y) / 2}`
      : ` L${point.x},${point.y}`;
  });
  return path;
}

/** The places of everything: boxes with `x`, `y` (their corner), `height` and `lines`, edges with `path` and the place of their label. */
export function arrange(vertices, edges, upright) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({
    rankdir: upright ? "TB" : "LR",
    nodesep: upright ? 30 : 26,
    ranksep: upright ? 18 : 30,
    marginx: 6,
    marginy: 6,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  const named = new Map(vertices.map(({ id, name }) => [id, lines(name)]));
  for (const [id, name] of named) {
    graph.setNode(id, { width: BOX.width, height: BOX.rest + name.length * BOX.line });
  }
  const drawn = edges
    .map((edge, index) => ({ ...edge, index }))
    .filter(({ from, to }) => named.has(from) && named.has(to));
  for (const { from, to, index } of drawn) graph.setEdge(from, to, { ...LABEL, labelpos: "c" }, String(index));
  layout(graph);
  const boxes = vertices.map(({ id }) => {
    const { x, y, height } = graph.node(id);
    return { id, x: x - BOX.width / 2, y: y - height / 2, height, lines: named.get(id) };
  });
  const found = drawn.map(({ from, to, index }) => {
    const { points, x, y } = graph.edge(from, to, String(index));
    return { index, x, y, path: curve(points) };
  });
  const size = graph.graph();
  return { boxes, edges: found, width: Math.max(1, size.width), height: Math.max(1, size.height) };
}
