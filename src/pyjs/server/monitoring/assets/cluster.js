// The cluster as this server sees it: servers, the metadata group, and the replicas of streams.
import { Rates } from "./chart.js";
import { Facts, h } from "./dom.js";
import { bytes, duration, line, number, rate } from "./format.js";
import { List } from "./lists.js";
import { replicaText, STREAM_COLUMNS } from "./streams.js";
import { Table } from "./table.js";

const COLUMNS = STREAM_COLUMNS.filter(({ id }) => ["name", "account", "level", "msgs", "pending"].includes(id));

export class Cluster {
  title = "Cluster";

  constructor(params, page) {
    this.rates = new Map();
    this.alone = h("p", { hidden: true }, "This server is not in a cluster: it has no routes and no replicas.");
    this.facts = new Facts();
    this.routes = new Table({
      caption: "Routes to other servers",
      columns: this.columns(),
      key: (row) => row.rid,
      empty: "No route is open.",
    });
    this.peers = new Table({
      caption: "Servers of the metadata group",
      columns: PEERS,
      key: (row) => row.name,
      empty: "None.",
    });
    this.list = new List({
      name: "streams",
      caption: "Streams with replicas on this server",
      columns: [...COLUMNS, this.replicas()],
      key: (row) => JSON.stringify([row.account, row.name]),
      empty: "No stream with replicas matches.",
      sort: "-level",
      params,
      fixed: { replicated: "true" },
      searched: "Search by name, subject or account",
      page,
    });
    this.parts = h(
      "div",
      {},
      this.facts.element,
      h("section", {}, h("h2", {}, "Routes"), this.routes.element),
      h("section", {}, h("h2", {}, "Metadata group"), this.peers.element),
      h("section", {}, h("h2", {}, "Replicas"), this.list.element),
    );
    this.element = h("div", {}, this.alone, this.parts);
  }

  replicas() {
    const text = (row) => line(replicaText(row.cluster, this.name), 400);
    return { id: "replicas", label: "Replicas", cls: "long", text };
  }

  columns() {
    const now = (row) => this.rates.get(row.rid)?.rates ?? [null, null];
    return [
      { id: "name", label: "Server", head: true, text: (row) => line(row.remote_name, 60) },
      { id: "ip", label: "Address", cls: "p2", text: (row) => `${row.ip}:${row.port}` },
      { id: "in", label: "In", num: true, text: (row) => rate(now(row)[0]) },
      { id: "out", label: "Out", num: true, text: (row) => rate(now(row)[1]) },
      { id: "pending", label: "Waiting", num: true, cls: "p2", text: (row) => bytes(row.pending_size) },
      { id: "rtt", label: "Round trip", num: true, text: (row) => row.rtt ?? "–" },
      { id: "uptime", label: "Connected", num: true, cls: "p2", text: (row) => row.uptime },
    ];
  }

  async load(fetchData) {
    const [cluster, list] = await Promise.all([fetchData("cluster"), this.list.load(fetchData)]);
    return { ...cluster, list };
  }

  update(data) {
    this.name = data.name;
    this.alone.hidden = Boolean(data.cluster);
    this.parts.hidden = !data.cluster;
    for (const route of data.routes) {
      if (!this.rates.has(route.rid)) this.rates.set(route.rid, new Rates());
      this.rates.get(route.rid).update(data.at, [route.in_msgs, route.out_msgs]);
    }
    const meta = data.meta;
    this.facts.update([
      ["Cluster", line(data.cluster, 80)],
      ["This server", line(data.name, 80)],
      ...(meta
        ? [
            ["Metadata leader", line(meta.leader || "none", 80)],
            ["Servers", number(meta.cluster_size ?? 0)],
          ]
        : []),
    ]);
    this.routes.update(data.routes);
    this.peers.update(meta?.replicas ?? []);
    this.list.update(data.list);
  }

  close() {
    this.list.close();
  }
}

const PEERS = [
  { id: "name", label: "Server", head: true, text: (row) => line(row.name, 80) },
  {
    id: "state",
    label: "State",
    text: peerState,
    level: (row) => (row.offline ? "stopped" : row.current ? "ok" : "warning"),
  },
  { id: "lag", label: "Entries behind", num: true, text: (row) => number(row.lag ?? 0) },
  { id: "active", label: "Last heard", num: true, text: (row) => `${duration(row.active)} ago` },
];

function peerState(row) {
  return row.offline ? "offline" : row.current ? "current" : "behind";
}
