// The page: which part is shown, and when it is asked for again. body.dataset.shown names what is on the screen now.

import { ask, card, el, note, pill, troubleRows } from "./dom.js";
import { brokerRow, drawing } from "./cluster.js";
import { charts, fetchHistory } from "./charts.js";
import { config, group, groups, message, topic, topics } from "./tables.js";

const page = document.getElementById("page"), level = document.getElementById("level"), lost = document.getElementById("lost");
let cluster = null, timer = null, turn = 0;

function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  let argument = null;
  try {
    argument = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    argument = rest.join("/");
  }
  return { name: name || "overview", argument };
}

function overview() {
  const isEmpty = cluster.brokers.length > 0 && cluster.brokers.every((row) => row.log && row.log.max === 0);
  return [
    cluster.troubles.length ? card("Name servers", troubleRows(cluster.troubles)) : null,
    cluster.brokers.length ? null : card("Brokers", note("No broker is known yet.")),
    isEmpty ? card("Nothing is stored yet", note("Send a first message: rmqha send orders --count 10")) : null,
    ...cluster.groups.map((one) => card(one.name, drawing(one),
      cluster.brokers.filter((row) => row.group === one.name).map(brokerRow))),
    el("h2", { class: "between" }, "The last hour"),
    ...charts(cluster.brokers),
  ].filter(Boolean);
}

const PAGES = {
  overview: async () => overview(),
  topics: async (argument) => [await (argument === null ? topics() : topic(argument))],
  groups: async (argument) => [await (argument === null ? groups() : group(argument))],
  message: async (argument) => [message(argument)],
  config: async (argument) => [await config(argument, cluster.brokers)],
};

async function fetchCluster() {
  [cluster] = await Promise.all([ask("cluster"), fetchHistory()]);
  level.replaceChildren(pill(cluster.level, cluster.summary));
  document.title = `${cluster.level === "ok" ? "" : `${cluster.level}: `}rmqha`;
}

// Only the newest wish is shown: an answer that comes late is dropped.
async function show() {
  const { name, argument } = route(), mine = ++turn;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.hash === `#${name}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  let parts;
  try {
    parts = await (PAGES[name] ?? PAGES.overview)(argument);
  } catch (error) {
    parts = [card("This cannot be shown", note(error.message))];
  }
  if (mine !== turn) return;
  page.replaceChildren(...parts);
  document.body.dataset.shown = [name, argument].filter((part) => part !== null).join("/");
}

async function refresh() {
  clearTimeout(timer);
  try {
    if (!document.hidden || cluster === null) {
      await fetchCluster();
      lost.hidden = true;
      document.body.classList.remove("stale");
      if (["overview"].includes(route().name) || !page.hasChildNodes()) await show();
    }
  } catch (error) {
    lost.textContent = `The dashboard's process does not answer (${error.message}): is it running? What is shown is old.`;
    lost.hidden = false;
    document.body.classList.add("stale");
  }
  timer = setTimeout(refresh, Math.max(2, cluster?.intervalSeconds ?? 5) * 1000);
}

window.addEventListener("hashchange", () => cluster && show());
document.addEventListener("visibilitychange", () => !document.hidden && refresh());
refresh();
