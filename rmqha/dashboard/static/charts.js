// The last hour, a line for each broker. Times are milliseconds; null is "not told", and breaks the line.

import { ask, bytes, count, draw, el, rate, seconds } from "./dom.js";

const HOUR_MS = 3600000, WIDTH = 360, HEIGHT = 130, TOP = 12, BOTTOM = 18, LEFT = 2, RIGHT = 2, COLOURS = 8;
export const CHARTS = [
  ["putTps", "Messages in, a second", rate],
  ["getTps", "Messages out, a second", rate],
  ["bytesPerSecond", "Log growth, a second", bytes],
  ["putP99Ms", "P99 of the answers to sends", (value) => (value === null ? "–" : `${value.toFixed(1)} ms`)],
  ["replicaLagSeconds", "Lag of replicas", seconds],
  ["consumerLag", "Lag of consumers, messages", count],
];

let columns = [];
const series = new Map(); // by address: points, oldest first
let newestMs = 0, nowMs = 0;

export async function fetchHistory() {
  const told = await ask("history", { since: newestMs });
  columns = told.columns;
  nowMs = told.nowMs;
  for (const address of series.keys()) if (!(address in told.series)) series.delete(address);
  for (const [address, { points }] of Object.entries(told.series)) {
    const known = (series.get(address) ?? []).concat(points).filter((point) => point[0] > nowMs - HOUR_MS);
    series.set(address, known);
    for (const [at] of points) newestMs = Math.max(newestMs, at);
  }
}

// A round number that is not below, of bytes in their units.
function ceiling(value, format) {
  if (!(value > 0)) return 1;
  const unit = format === bytes ? 1024 ** Math.max(Math.floor(Math.log2(value) / 10), 0) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((one) => one * power).find((one) => one >= (value / unit) * 0.999);
}

const xOf = (at) => LEFT + (1 - (nowMs - at) / HOUR_MS) * (WIDTH - LEFT - RIGHT);
const yOf = (value, top) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);

function path(points, index, top) {
  let drawn = "", pen = "M";
  for (const point of points) {
    const value = point[index];
    if (value === null) { pen = "M"; continue; }
    drawn += `${pen}${xOf(point[0]).toFixed(1)} ${yOf(Math.max(value, 0), top).toFixed(1)}`;
    if (pen === "M") drawn += "h0.01"; // a point alone is seen as well
    pen = "L";
  }
  return drawn;
}

function nearest(points, at) {
  return points.reduce((best, point) => (best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), null);
}

function chart([column, title, format], named) {
  const index = columns.indexOf(column);
  const lines = named.map((one, order) => ({ ...one, order, points: series.get(one.address) ?? [] }))
    .filter(({ points }) => points.some((point) => point[index] !== null));
  const highest = Math.max(0, ...lines.flatMap(({ points }) => points.map((point) => point[index] ?? 0)));
  const top = ceiling(highest, format);
  const latest = lines.map(({ points }) => points.at(-1)[index]).filter((value) => value !== null);
  const readout = el("output", {}, latest.length ? `${latest.length > 1 ? "up to " : ""}${format(Math.max(...latest))}` : "–");
  const cross = draw("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const grid = [1, 0.5, 0].map((part) => draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: yOf(part * top, top), y2: yOf(part * top, top) }));
  const text = (x, y, anchor, told) => draw("text", { x, y, "text-anchor": anchor }, told);
  const picture = draw("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, the last hour` },
    grid, text(0, TOP - 3, "start", format(top)), text(0, HEIGHT - 4, "start", "1 h ago"),
    text(WIDTH / 2, HEIGHT - 4, "middle", "30 min"), text(WIDTH, HEIGHT - 4, "end", "now"),
    lines.map(({ order, points }) => draw("path", { class: `line s${order % COLOURS}`, d: path(points, index, top) })), cross);
  const now = readout.textContent;
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = nowMs - (1 - (event.clientX - box.left) / box.width) * HOUR_MS;
    const told = lines.map(({ label, points }) => [label, nearest(points, at)]).filter(([, point]) => point);
    if (!told.length) return;
    const x = xOf(told[0][1][0]);
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    cross.setAttribute("visibility", "visible");
    const clock = new Date(told[0][1][0]).toLocaleTimeString();
    readout.textContent = `${clock}  ${told.map(([label, point]) => `${label} ${format(point[index])}`).join(", ")}`;
  });
  picture.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    readout.textContent = now;
  });
  return el("figure", { class: "card" }, el("figcaption", {}, el("h3", {}, title), readout), picture);
}

export function charts(brokers) {
  const named = brokers.map((row) => ({ address: row.address, label: row.role ? `${row.group}/${row.id}` : row.group }));
  const legend = el("p", { class: "legend" }, named.map(({ label, address }, order) =>
    el("span", { title: address }, el("i", { class: `s${order % COLOURS}`, "aria-hidden": true }), label)));
  return [legend, el("div", { class: "charts" }, CHARTS.map((one) => chart(one, named)))];
}
