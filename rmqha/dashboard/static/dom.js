// Elements, and values as people read them. Whatever brokers say becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 10 || value === 0 ? count(value) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let amount = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(amount) < 1024) return unit === "B" ? `${Math.round(amount)} B` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.95) return `${Math.ceil(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

export function time(ms) {
  if (!ms || Math.abs(ms) > 8e15) return "–";
  const at = new Date(ms);
  return `${new Date(ms - at.getTimezoneOffset() * 60000).toISOString().slice(0, 23).replace("T", " ")}`;
}

const SIGNS = { ok: "✓", degraded: "!", failed: "✕", unknown: "?" };

// A verdict is a sign and a word as well as a colour.
export const pill = (level, text = level) =>
  el("span", { class: `pill ${level}` }, el("i", { "aria-hidden": true }, SIGNS[level] ?? "?"), text);

export const card = (title, ...children) => el("section", { class: "card" }, title ? el("h2", {}, title) : null, children);
export const note = (text) => el("p", { class: "note" }, text);

export const troubleRows = (troubles) =>
  (troubles ?? []).map((one) => el("p", { class: "trouble" }, pill("failed", "no answer"), ` ${one.broker ?? one.address}: ${one.why}`));

// Columns are [title, cell(row), "number" or ""].
export function table(columns, rows, attributes = {}) {
  const head = el("tr", {}, columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row) => el("tr", {}, columns.map(([, cell, kind]) => el("td", { class: kind }, cell(row)))));
  return el("div", { class: "scroll" }, el("table", attributes, el("thead", {}, head), el("tbody", {}, body)));
}

export const link = (page, name) => el("a", { href: `#${page}/${encodeURIComponent(name)}` }, name);

export async function ask(path, query = {}) {
  const said = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== "" && value !== null));
  const answer = await fetch(`api/${path}?${new URLSearchParams(said)}`, { signal: AbortSignal.timeout(60000) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error ?? `the dashboard answers ${answer.status}`);
  return told;
}
