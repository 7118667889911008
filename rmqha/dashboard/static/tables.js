// Topics, groups, messages and configurations: what brokers are asked for when somebody looks.

import { ask, card, count, el, link, note, table, time, troubleRows } from "./dom.js";

const SHOWN = 500;

// A table with a filter, which stays while what it filters is told again.
function filtered(rows, columns, { matches, empty, more = null }) {
  const place = el("div");
  const input = el("input", { type: "search", placeholder: "filter", "aria-label": "filter", autocomplete: "off", spellcheck: "false" });
  let all = false;
  const show = () => {
    const found = rows.filter((row) => matches(row, input.value.trim().toLowerCase()));
    const shown = all ? found : found.slice(0, SHOWN);
    const rest = found.length - shown.length;
    place.replaceChildren(
      el("p", { class: "note" }, `${count(found.length)} of ${count(rows.length)}`),
      found.length ? table(columns, shown) : note(rows.length ? "Nothing matches." : empty),
      rest ? el("button", { type: "button", onclick: () => { all = true; show(); } }, `show ${count(rest)} more`) : "");
  };
  input.addEventListener("input", show);
  more?.addEventListener("change", show);
  show();
  return [el("div", { class: "tools" }, input, more?.parentElement), place];
}

const checkbox = (text, checked = false) => {
  const box = el("input", { type: "checkbox", checked });
  el("label", {}, box, text);
  return box;
};

export async function topics() {
  const told = await ask("topics");
  const byName = new Map();
  for (const row of told.topics) {
    const known = byName.get(row.topic) ?? { ...row, brokers: [], writeQueues: 0, readQueues: 0 };
    byName.set(row.topic, { ...known, brokers: [...known.brokers, row.broker], writeQueues: known.writeQueues + row.writeQueues, readQueues: known.readQueues + row.readQueues });
  }
  const system = checkbox("also system, retry and dead-letter topics");
  return card("Topics", troubleRows(told.troubles), told.left ? note(`${count(told.left)} more are not shown.`) : null, filtered([...byName.values()], [
    ["Topic", (row) => link("topics", row.topic)],
    ["Brokers", (row) => row.brokers.join(", ")],
    ["Write queues", (row) => count(row.writeQueues), "number"],
    ["Read queues", (row) => count(row.readQueues), "number"],
    ["Perm", (row) => row.perm],
  ], {
    matches: (row, sought) => (system.checked || !row.system) && row.topic.toLowerCase().includes(sought),
    empty: "There is no topic yet. A first message makes one: rmqha send orders", more: system,
  }));
}

const left = (brokers) => brokers.filter((one) => one.left).map((one) => note(`${one.broker}: ${count(one.left)} more queues are not shown.`));

export async function topic(name) {
  const told = await ask("topic", { topic: name });
  const queues = told.brokers.flatMap((one) => one.queues.map((queue) => ({ ...queue, broker: one.broker })));
  const groups = [...new Set(told.brokers.flatMap((one) => one.groups))].sort();
  const stored = queues.reduce((sum, queue) => sum + Math.max(queue.end - queue.first, 0), 0);
  return card(`Topic ${name}`, troubleRows(told.troubles),
    el("p", {}, `${count(stored)} messages in ${count(queues.length)} queues. Consumed by `,
      groups.length ? groups.flatMap((group, at) => [at ? ", " : "", link("groups", group)]) : "no group", "."),
    queues.length ? table([
      ["Broker", (row) => row.broker], ["Queue", (row) => row.queue, "number"], ["First", (row) => count(row.first), "number"],
      ["End", (row) => count(row.end), "number"], ["Messages", (row) => count(row.end - row.first), "number"],
      ["Last stored", (row) => time(row.storedMs)],
    ], queues) : note("No broker tells of a queue of it."), left(told.brokers),
    el("p", {}, el("a", { href: "#topics" }, "all topics"), ", ", el("a", { href: `#message/${encodeURIComponent(name)}` }, "find a message of this one")));
}

export async function groups() {
  const told = await ask("groups");
  const waited = told.notAskedYet.map((broker) => note(`${broker} has not been asked for its groups, or does not tell them.`));
  const rows = told.groups.sort((one, other) => other.lag - one.lag || one.group.localeCompare(other.group));
  return card("Consumer groups", troubleRows(told.troubles), waited, filtered(rows, [
    ["Group", (row) => link("groups", row.group)], ["Broker", (row) => row.broker],
    ["Topics", (row) => count(row.topics), "number"], ["Lag, messages", (row) => count(row.lag), "number"],
  ], { matches: (row, sought) => row.group.toLowerCase().includes(sought), empty: "There is no group yet." }));
}

export async function group(name) {
  const told = await ask("group", { group: name });
  const queues = told.brokers.flatMap((one) => one.queues.map((queue) => ({ ...queue, broker: one.broker })));
  const members = told.brokers.flatMap((one) => one.members.map((member) => ({ ...member, broker: one.broker })));
  const lag = queues.reduce((sum, queue) => sum + queue.lag, 0);
  return card(`Group ${name}`, troubleRows(told.troubles), el("p", {}, `Members connected: ${count(members.length)}. Lag: ${count(lag)} messages.`),
    members.length ? table([
      ["Client", (row) => row.clientId], ["Address", (row) => row.clientAddr], ["Language", (row) => row.language], ["Broker", (row) => row.broker],
    ], members) : null,
    queues.length ? table([
      ["Topic", (row) => link("topics", row.topic)], ["Broker", (row) => row.broker], ["Queue", (row) => row.queue, "number"],
      ["Consumed", (row) => count(row.consumed), "number"], ["End", (row) => count(row.end), "number"], ["Lag", (row) => count(row.lag), "number"],
      ["Last consumed was stored", (row) => time(row.storedMs)],
    ], queues) : note("It has consumed nothing."), left(told.brokers), el("p", {}, el("a", { href: "#groups" }, "all groups")));
}

export function shownMessage(one) {
  const facts = [
    ["topic", `${one.topic}, queue ${one.queue} of ${one.broker}, offset ${count(one.queueOffset)}`],
    ["id", one.msgId], ["offset id", `${one.offsetMsgId} (physical offset ${count(one.offset)})`], ["tag", one.tags], ["keys", one.keys],
    ["born", `${time(one.bornMs)} at ${one.bornHost}`], ["stored", `${time(one.storedMs)} at ${one.storeHost}`],
    ["consumed again", one.reconsumed ? `${one.reconsumed} times so far` : ""], ...one.properties.map(([name, value]) => [`property ${name}`, value]),
  ].filter(([, value]) => value);
  const cut = one.bodyShown < one.bodySize ? `, the first ${count(one.bodyShown)} of them` : "";
  const problem = one.bodyProblem ? `, as stored: ${one.bodyProblem}` : "";
  return el("article", { class: "message" },
    el("dl", {}, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("h3", {}, `Body, ${count(one.bodySize)} bytes${cut}, as ${one.bodyKind}${problem}`), el("pre", { class: "body" }, one.body));
}

export function message(topicName) {
  const field = (name, label, more = {}) => el("label", {}, label, el("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  const found = el("div", { "aria-live": "polite" });
  const find = async (event) => {
    event.preventDefault();
    const wanted = Object.fromEntries(new FormData(event.target));
    found.replaceChildren(note("Brokers are asked …"));
    try {
      const told = await ask("message", wanted);
      found.replaceChildren(...troubleRows(told.troubles), ...told.reasons.map((one) => note(`${one.broker}: ${one.why}`)),
        ...(told.messages.length ? told.messages.map(shownMessage) : [note("No such message is found.")]));
    } catch (error) {
      found.replaceChildren(el("p", { class: "trouble" }, error.message));
    }
    found.dataset.found = "yes";
  };
  return card("Find a message", el("form", { class: "tools", onsubmit: find },
    field("topic", "Topic", { value: topicName ?? "" }), field("key", "Key"), field("since", "stored since", { placeholder: "-15m" }),
    field("id", "or id"), field("offset", "or physical offset", { inputmode: "numeric" }), el("button", {}, "Find")),
  note("A key, a time (the first messages stored since), or a producer's id (msgId) is looked for in a topic; an offset id needs none."), found);
}

export async function config(address, brokers) {
  const chosen = address ?? brokers[0]?.address;
  if (!chosen) return card("Configuration", note("No broker is known."));
  const select = el("select", { "aria-label": "broker", onchange: (event) => { location.hash = `config/${encodeURIComponent(event.target.value)}`; } },
    brokers.map((row) => el("option", { value: row.address, selected: row.address === chosen }, `${row.name} ${row.role.toLowerCase()} ${row.address}`)));
  const told = await ask("config", { broker: chosen });
  const changed = checkbox("only what was set");
  const origins = told.keys.some((row) => row.origin !== null);
  return card("Configuration", el("p", {}, select), troubleRows(told.troubles),
    told.keys.length && !origins ? note("This broker does not tell where a key was set.") : null,
    filtered(told.keys, [["Key", (row) => row.key], ["Value", (row) => row.value], ["Set in", (row) => row.origin ?? "–"]], {
      matches: (row, sought) => (!changed.checked || (row.origin !== null && row.origin !== "default")) && `${row.key} ${row.value}`.toLowerCase().includes(sought),
      empty: "It does not tell.", more: changed,
    }));
}
