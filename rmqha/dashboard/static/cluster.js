// The cluster, drawn: masters and leaders at the left, who follows them at the right, and what each lacks in between.

import { bytes, count, draw, el, pill, seconds } from "./dom.js";

const WIDTH = 250, HEIGHT = 62, GAP = 22, BETWEEN = 320, PAD = 4;
const cut = (text, size) => (text.length > size ? `${text.slice(0, size - 1)}…` : text);

function places(group) {
  const columns = [group.nodes.filter((node) => node.first), group.nodes.filter((node) => !node.first)];
  const rows = Math.max(columns[0].length, columns[1].length, 1);
  const place = new Map();
  columns.forEach((nodes, column) => {
    const top = ((rows - nodes.length) * (HEIGHT + GAP)) / 2;
    nodes.forEach((node, row) => place.set(node.key, { x: PAD + column * (WIDTH + BETWEEN), y: PAD + top + row * (HEIGHT + GAP) }));
  });
  return { place, width: 2 * PAD + 2 * WIDTH + BETWEEN, height: 2 * PAD + rows * (HEIGHT + GAP) - GAP };
}

function drawnNode(node, { x, y }) {
  const name = [node.role || "broker", node.label].filter(Boolean).join(" · ");
  const below = node.watched ? node.address : "seen by others only";
  const state = node.state || (node.end === null ? "" : `log ends at ${count(node.end)}`);
  return draw("g", { class: `node ${node.level}${node.watched ? "" : " unwatched"}`, transform: `translate(${x} ${y})` },
    draw("title", {}, `${name}, ${node.address || node.label}: ${node.state || node.level}`),
    draw("rect", { width: WIDTH, height: HEIGHT, rx: 9 }),
    draw("rect", { class: "bar", width: 5, height: HEIGHT - 16, x: 7, y: 8, rx: 2.5 }),
    draw("text", { x: 22, y: 22, class: "name" }, cut(name, 28)),
    draw("text", { x: 22, y: 38 }, cut(below, 34)),
    draw("text", { x: 22, y: 53, class: node.state ? "state" : "" }, cut(state, 34)));
}

function drawnEdge(edge, place) {
  const from = place.get(edge.from), to = place.get(edge.to);
  if (!from || !to) return null;
  const sameColumn = from.x === to.x;
  const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
  const [x2, y2] = [sameColumn ? to.x + WIDTH : to.x, to.y + HEIGHT / 2];
  const middle = sameColumn ? x1 + 60 : (x1 + x2) / 2;
  const [above, below] = y2 < y1 ? [-21, -7] : y2 > y1 ? [16, 30] : [-7, 16]; // beside the line, not on it
  const lag = [edge.lagBytes === null ? "" : bytes(edge.lagBytes), edge.lagSeconds === null ? "" : seconds(edge.lagSeconds)];
  const lacks = lag.filter(Boolean).join(", ");
  return draw("g", { class: `edge ${edge.level}` },
    draw("title", {}, [edge.state, lacks && `lag ${lacks}`, edge.why].filter(Boolean).join(": ")),
    draw("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }),
    draw("circle", { cx: x2, cy: y2, r: 4 }),
    draw("text", { x: x2 - 12, y: y2 + above }, cut(edge.state, 26)),
    draw("text", { x: x2 - 12, y: y2 + below, class: "lag" }, lacks && cut(`lag ${lacks}`, 30)));
}

export function drawing(group) {
  const { place, width, height } = places(group);
  const picture = draw("svg", { class: "cluster", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Who follows whom in ${group.name}` },
    group.edges.map((edge) => drawnEdge(edge, place)),
    group.nodes.map((node) => drawnNode(node, place.get(node.key))));
  return el("div", { class: "scroll" }, picture);
}

const open = new Set();

function progress({ what, done, total, seconds: since }) {
  const of = total ? ` of ${bytes(total)}` : "";
  const told = `${what}: ${bytes(done)}${of}, ${seconds(since)} since its start`;
  return el("p", {}, el("progress", { max: total || 1, value: total ? done : null, "aria-label": "recovery" }), " ", told);
}

function facts(row) {
  const log = row.log ?? {};
  const told = [
    ["version", row.version], ["up", row.upSeconds === null ? "" : seconds(row.upSeconds)],
    ["disk", row.diskPercent === null ? "" : `${row.diskPercent} % used`],
    ["log", log.max === null ? "" : `${count(log.min)} to ${count(log.max)}`],
    ["answered", row.trouble && row.answeredSecondsAgo !== null ? `${seconds(row.answeredSecondsAgo)} ago` : ""],
  ].filter(([, value]) => value);
  return el("p", { class: "facts" }, told.map(([name, value]) => el("span", {}, el("b", {}, name), ` ${value}`)));
}

export function brokerRow(row) {
  const command = `rmqha status -b ${row.address}`;
  const title = row.trouble ? `its last words, as ${command} told them: no longer true, perhaps` : `as ${command} tells it`;
  const status = row.text && el("details", {
    open: open.has(row.address),
    ontoggle: (event) => (event.target.open ? open.add(row.address) : open.delete(row.address)),
  }, el("summary", {}, title), el("pre", {}, row.text));
  return el("article", { class: `broker ${row.level}` },
    el("p", { class: "verdict" }, pill(row.level), el("strong", {}, row.summary)),
    row.reasons.length ? el("ul", {}, row.reasons.map((reason) => el("li", {}, reason))) : null,
    row.recovering && !row.trouble ? progress(row.recovering) : null,
    "version" in row ? facts(row) : null,
    status || null);
}
