// The list of streams, and one stream.
import { Chart, ratesOf } from "./chart.js";
import { configDetails } from "./config.js";
import { consumerList } from "./consumers.js";
import { address, badge, Facts, h, reasonsList, setAttribute, setText, showReasons } from "./dom.js";
import { bytes, levelText, line, number, rate, short, time, words } from "./format.js";
import { DeadLetters } from "./letters.js";
import { List, ListView } from "./lists.js";

// The leader and the other replicas; a follower does not report about itself.
export function replicaText(cluster, thisServer) {
  if (!cluster?.replicas) return cluster?.leader ? `${cluster.leader} leads` : "";
  const others = cluster.replicas.filter((each) => each.name !== cluster.leader);
  const texts = others.map((each) => {
    const state = each.offline ? "offline" : each.current ? "current" : `${number(each.lag ?? 0)} behind`;
    return `${each.name} ${state}`;
  });
  if (cluster.leader !== thisServer) texts.unshift(`${thisServer} (this server)`);
  return [cluster.leader ? `${cluster.leader} leads` : "no leader", ...texts].join(", ");
}

export const STREAM_COLUMNS = [
  {
    id: "name",
    label: "Stream",
    head: true,
    sort: true,
    text: (row) => line(row.name, 80),
    href: (row) => address("stream", { acc: row.account, stream: row.name }),
  },
  { id: "account", label: "Account", cls: "p3", text: (row) => line(row.account, 40) },
  { id: "level", label: "State", sort: true, text: levelText, level: (row) => row.level },
  { id: "subjects", label: "Subjects", cls: "p3 long", text: subjectsText },
  { id: "msgs", label: "Messages", num: true, sort: true, text: (row) => number(row.msgs) },
  { id: "bytes", label: "Size", num: true, cls: "p2", sort: true, text: (row) => bytes(row.bytes) },
  { id: "rate", label: "Stored", num: true, cls: "p2", sort: true, text: (row) => rate(row.rate) },
  { id: "consumers", label: "Consumers", num: true, cls: "p2", sort: true, text: (row) => number(row.consumers) },
  { id: "pending", label: "Undelivered", num: true, sort: true, text: (row) => number(row.pending) },
];

function subjectsText(row) {
  const shown = (row.subjects ?? []).map((subject) => line(subject, 60)).join(", ");
  const more = (row.num_subjects ?? 0) - (row.subjects ?? []).length;
  return more > 0 ? `${shown} and ${number(more)} more` : shown;
}

export class Streams extends ListView {
  title = "Streams";

  constructor(params, page) {
    const list = new List({
      name: "streams",
      caption: "Streams of this server",
      columns: STREAM_COLUMNS,
      key: (row) => JSON.stringify([row.account, row.name]),
      empty: "No stream matches.",
      sort: "name",
      params,
      searched: "Search by name, subject or account",
      page,
    });
    super(list);
  }
}

export class Stream {
  constructor(params, page) {
    this.params = { acc: params.get("acc") ?? "", stream: params.get("stream") ?? "" };
    this.title = `Stream ${line(this.params.stream, 80)}`;
    this.rates = ratesOf(JSON.stringify(this.params));
    this.facts = new Facts();
    this.reasons = reasonsList();
    this.state = badge("", "");
    const key = JSON.stringify(this.params);
    this.charts = [
      new Chart(`stored ${key}`, "Messages stored per second", ["stored"], short),
      new Chart(`msgs ${key}`, "Messages in the stream", ["messages"], short),
    ];
    this.list = consumerList(new URLSearchParams(), { changed: page.refresh }, this.params);
    this.browse = h("a", { class: "button", href: address("messages", this.params) }, "Browse messages");
    this.note = h("p", { class: "muted", hidden: true }, "Its consumers are open on the server that leads it.");
    this.letters = new DeadLetters(this.params, page);
    this.config = configDetails(this.params, page);
    this.element = h(
      "div",
      {},
      h("p", { class: "lead" }, this.state, " ", this.browse),
      this.facts.element,
      h("section", {}, h("h2", {}, "Why"), this.reasons),
      h("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      h("section", {}, h("h2", {}, "Consumers"), this.note, this.list.element),
      this.letters.element,
      this.config,
    );
  }

  async load(fetchData) {
    const [stream, list] = await Promise.all([fetchData("stream", this.params), this.list.load(fetchData)]);
    return { ...stream, list };
  }

  update(data) {
    const state = data.state;
    const [stored] = this.rates.update(data.at, [state.last_seq]);
    this.charts[0].push(data.at / 1e9, [stored]);
    this.charts[1].push(data.at / 1e9, [state.messages]);
    setText(this.state, levelText({ level: data.level, kind: data.reasons[0]?.kind }));
    setAttribute(this.state, "class", `badge ${data.level}`);
    this.browse.hidden = !data.server.messages;
    showReasons(this.reasons, data.reasons, words, line, "It accepts publishes.");
    this.facts.update(factsOf(data, stored));
    this.list.update(data.list);
    this.note.hidden = !(state.consumer_count && !data.list.total);
  }

  close() {
    this.charts.forEach((chart) => chart.close());
    this.list.close();
  }
}

function factsOf(data, stored) {
  const state = data.state;
  const limit = (value, text) => (value > 0 ? ` of ${text(value)}` : "");
  const deleted = state.num_deleted ? `, ${number(state.num_deleted)} deleted` : "";
  const facts = [
    ["Account", line(data.account, 80)],
    ["Messages", `${number(state.messages)}${limit(data.max_msgs, number)}`],
    ["Size", `${bytes(state.bytes)}${limit(data.max_bytes, bytes)}`],
    ["Stored", rate(stored)],
    ["Sequences", `${number(state.first_seq)} to ${number(state.last_seq)}${deleted}`],
    ["First message", time(state.first_ts)],
    ["Last message", time(state.last_ts)],
    ["Subjects stored", number(state.num_subjects ?? 0)],
    ["Storage", `${data.storage}, retention ${data.retention}`],
  ];
  const replicas = replicaText(data.cluster, data.server.name);
  if (replicas) facts.push(["Replicas", line(replicas, 400)]);
  for (const origin of [...(data.mirror ? [data.mirror] : []), ...(data.sources ?? [])]) {
    facts.push([
      `${data.mirror ? "Mirror" : "Source"} of ${line(origin.name, 60)}`,
      `${number(origin.lag)} messages behind`,
    ]);
  }
  return facts;
}
