// Connections, open and closed, and one open connection.
import { Chart, POWERS, ratesOf } from "./chart.js";
import { address, Facts, h } from "./dom.js";
import { bytes, duration, line, number, short, time } from "./format.js";
import { List, ListView } from "./lists.js";
import { Table } from "./table.js";

const NAME = [
  {
    id: "cid",
    label: "Id",
    head: true,
    num: true,
    sort: true,
    text: (row) => String(row.cid),
    href: (row) => address("connection", { cid: row.cid }),
  },
  { id: "name", label: "Name", text: (row) => line(row.name ?? "", 60) },
  { id: "ip", label: "Address", cls: "p2", text: (row) => (row.ip ? `${row.ip}:${row.port}` : row.type) },
  { id: "account", label: "Account", cls: "p3", text: (row) => line(row.account, 40) },
  { id: "user", label: "User", cls: "p3", text: (row) => line(row.user, 40) },
];
const OPEN = [
  ...NAME,
  {
    id: "client",
    label: "Client",
    cls: "p3",
    text: (row) => line([row.lang, row.version].filter(Boolean).join(" "), 40),
  },
  {
    id: "subs",
    label: "Subscriptions",
    num: true,
    cls: "p2",
    sort: true,
    text: (row) => number(row.subscriptions),
  },
  { id: "msgs_from", label: "In", num: true, sort: true, text: (row) => short(row.in_msgs) },
  { id: "msgs_to", label: "Out", num: true, sort: true, text: (row) => short(row.out_msgs) },
  { id: "pending", label: "Waiting", num: true, sort: true, text: (row) => bytes(row.pending_bytes) },
  {
    id: "rtt",
    label: "Round trip",
    num: true,
    cls: "p2",
    sort: true,
    text: (row) => (row.rtt_ns ? duration(row.rtt_ns) : "–"),
  },
  { id: "idle", label: "Idle", num: true, cls: "p2", sort: true, text: (row) => row.idle },
];
const CLOSED = [
  { ...NAME[0], href: undefined },
  ...NAME.slice(1),
  { id: "stop", label: "Closed", num: true, sort: true, text: (row) => time(row.stop) },
  { id: "reason", label: "Reason", sort: true, text: (row) => row.reason },
  { id: "text", label: "Meaning", cls: "p2 long", text: (row) => row.text },
];

export class Connections extends ListView {
  title = "Connections";

  constructor(params, page) {
    const closed = params.get("closed") === "true";
    const fixed = closed ? { closed: "true" } : {};
    const list = new List({
      name: "connections",
      caption: closed ? "Closed connections" : "Open connections",
      columns: closed ? CLOSED : OPEN,
      key: (row) => row.cid,
      empty: closed ? "No closed connection matches." : "No open connection matches.",
      sort: closed ? "-stop" : "cid",
      params,
      fixed,
      searched: "Search by name, address, account, user or id",
      page: { changed: (changed) => page.changed({ ...changed, ...fixed }) },
    });
    super(list);
    const tab = (text, href, current) => h("a", { href, "aria-current": current ? "true" : null }, text);
    list.extra.append(
      tab("Open", "#/connections", !closed),
      tab("Closed", "#/connections?closed=true", closed),
    );
  }
}

export class Connection {
  constructor(params) {
    this.cid = params.get("cid") ?? "";
    this.title = `Connection ${line(this.cid, 20)}`;
    this.rates = ratesOf(`connection ${this.cid}`);
    this.facts = new Facts();
    this.charts = [
      new Chart(`conn ${this.cid}`, "Messages per second", ["in", "out"], short),
      new Chart(`wait ${this.cid}`, "Output that waits for the client", ["bytes"], bytes, POWERS),
    ];
    this.subscriptions = new Table({
      caption: "Subscriptions",
      empty: "None.",
      key: (row) => row.sid,
      columns: [
        { id: "subject", label: "Subject", head: true, text: (row) => line(row.subject, 200) },
        { id: "qgroup", label: "Queue group", text: (row) => line(row.qgroup ?? "", 80) },
        { id: "msgs", label: "Messages", num: true, text: (row) => number(row.msgs) },
      ],
    });
    this.element = h(
      "div",
      {},
      this.facts.element,
      h("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      h("section", {}, h("h2", {}, "Subscriptions"), this.subscriptions.element),
    );
  }

  load(fetchData) {
    return fetchData("connection", { cid: this.cid });
  }

  update(data) {
    const row = data.connection;
    this.charts[0].push(data.at / 1e9, this.rates.update(data.at, [row.in_msgs, row.out_msgs]));
    this.charts[1].push(data.at / 1e9, [row.pending_bytes]);
    this.facts.update([
      ["Name", line(row.name ?? "", 200)],
      ["Address", row.ip ? `${row.ip}:${row.port}` : row.type],
      ["Account", line(row.account, 80)],
      ["User", line(row.user, 80)],
      ["Client", line([row.lang, row.version].filter(Boolean).join(" "), 80)],
      ["Connected", `${time(row.start)}, for ${row.uptime}`],
      ["In", `${number(row.in_msgs)} messages, ${bytes(row.in_bytes)}`],
      ["Out", `${number(row.out_msgs)} messages, ${bytes(row.out_bytes)}`],
      ["Round trip", row.rtt_ns ? duration(row.rtt_ns) : "–"],
      ["TLS", row.tls_version ? `${row.tls_version} ${row.tls_cipher_suite}` : "no"],
      [
        "Subscriptions",
        number(row.subscriptions) +
          (row.subscriptions > data.subscriptions.length
            ? `, the first ${number(data.subscriptions.length)} below`
            : ""),
      ],
    ]);
    this.subscriptions.update(data.subscriptions);
  }

  close() {
    this.charts.forEach((chart) => chart.close());
  }
}
