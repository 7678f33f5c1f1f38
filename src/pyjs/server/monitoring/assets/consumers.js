// The list of consumers, and one consumer with the reason why it delivers nothing.
import { Chart, ratesOf } from "./chart.js";
import { configDetails } from "./config.js";
import { address, badge, Facts, h, reasonsList, setAttribute, setText, showReasons } from "./dom.js";
import { bytes, duration, levelText, line, number, rate, sentence, short, time, words } from "./format.js";
import { List, ListView } from "./lists.js";
import { Table } from "./table.js";

const ROWS_MORE = 1000;

const COLUMNS = [
  {
    id: "name",
    label: "Consumer",
    head: true,
    sort: true,
    text: (row) => line(row.name, 80),
    href: (row) => address("consumer", { acc: row.account, stream: row.stream, consumer: row.name }),
  },
  {
    id: "stream",
    label: "Stream",
    sort: true,
    text: (row) => line(row.stream, 60),
    href: (row) => address("stream", { acc: row.account, stream: row.stream }),
  },
  { id: "level", label: "State", sort: true, text: consumerLevel, level: (row) => row.level },
  { id: "pending", label: "Undelivered", num: true, sort: true, text: (row) => number(row.pending) },
  { id: "lag", label: "Lag", num: true, cls: "p2", text: (row) => (row.lag_ns ? duration(row.lag_ns) : "–") },
  { id: "ack_pending", label: "Unacked", num: true, cls: "p2", sort: true, text: (row) => number(row.ack_pending) },
  {
    id: "redelivered",
    label: "Redelivered",
    num: true,
    cls: "p3",
    sort: true,
    text: (row) => number(row.redelivered ?? 0),
  },
  { id: "rate", label: "Delivered", num: true, cls: "p2", sort: true, text: (row) => rate(row.rate) },
  { id: "why", label: "Why", cls: "p3 long", text: (row) => line(sentence(row.text), 160) },
];

function consumerLevel(row) {
  return row.level === "ok" ? "delivering" : levelText(row);
}

export function consumerList(params, page, fixed = {}) {
  const columns = fixed.stream === undefined ? COLUMNS : COLUMNS.filter((column) => column.id !== "stream");
  return new List({
    name: "consumers",
    caption: "Consumers",
    columns,
    key: (row) => JSON.stringify([row.account, row.stream, row.name]),
    empty: "No consumer matches.",
    sort: "-level",
    params,
    fixed,
    searched: "Search by name, stream or account",
    page,
  });
}

export class Consumers extends ListView {
  title = "Consumers";

  constructor(params, page) {
    super(consumerList(params, page));
  }
}

export class Consumer {
  constructor(params, page) {
    this.params = Object.fromEntries(["acc", "stream", "consumer"].map((name) => [name, params.get(name) ?? ""]));
    this.title = `Consumer ${line(this.params.consumer, 80)}`;
    this.rows = 0;
    this.rates = ratesOf(JSON.stringify(this.params));
    this.state = badge("", "");
    this.facts = new Facts();
    this.reasons = reasonsList();
    const key = JSON.stringify(this.params);
    this.charts = [
      new Chart(`lag ${key}`, "Consumer lag", ["undelivered", "unacknowledged"], short),
      new Chart(`rates ${key}`, "Per second", ["delivered", "acknowledged"], short),
    ];
    this.deliveries = new Table({
      caption: "Deliveries without an acknowledgement, oldest first",
      columns: deliveryColumns(this.params),
      key: (row) => row.seq,
      empty: "None.",
    });
    this.more = h(
      "button",
      {
        type: "button",
        hidden: true,
        onclick: () => {
          this.rows = ROWS_MORE;
          page.refresh();
        },
      },
      `Show up to ${number(ROWS_MORE)}`,
    );
    this.receivers = new Table({
      caption: "Clients that receive now",
      columns: RECEIVER_COLUMNS,
      key: (row) => row.cid,
      empty: "No client of this server.",
    });
    const stream = h(
      "a",
      { href: address("stream", { acc: this.params.acc, stream: this.params.stream }) },
      line(this.params.stream, 80),
    );
    this.element = h(
      "div",
      {},
      h("p", { class: "lead" }, this.state, " of the stream ", stream),
      h("section", { class: "whybox" }, h("h2", {}, "Why"), this.reasons),
      this.facts.element,
      h("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      h("section", {}, h("h2", {}, "Waiting for an acknowledgement"), this.deliveries.element, this.more),
      h("section", {}, h("h2", {}, "Clients that receive now"), this.receivers.element),
      configDetails(this.params, page),
    );
  }

  load(fetchData) {
    return fetchData("consumer", { ...this.params, rows: this.rows || "" });
  }

  update(data) {
    const { info } = data;
    const [delivered, acked] = this.rates.update(data.at, [
      info.delivered.consumer_seq,
      info.ack_floor.consumer_seq,
    ]);
    this.charts[0].push(data.at / 1e9, [data.pending, data.ack_pending]);
    this.charts[1].push(data.at / 1e9, [delivered, acked]);
    const shown = data.reasons.find((reason) => reason.stops) ?? data.reasons[0];
    setText(this.state, consumerLevel({ level: data.level, kind: shown?.kind }));
    setAttribute(this.state, "class", `badge ${data.level}`);
    showReasons(this.reasons, data.reasons, words, line, "It delivers: nothing stops it.");
    this.facts.update(factsOf(data, delivered));
    this.deliveries.update(data.deliveries);
    this.more.hidden = data.ack_pending <= data.deliveries.length || this.rows === ROWS_MORE;
    this.receivers.update(data.receivers);
  }

  close() {
    this.charts.forEach((chart) => chart.close());
  }
}

function factsOf(data, delivered) {
  const { info } = data;
  const filters = data.filters.map((each) => line(each, 80)).join(", ");
  const more = data.num_filters - data.filters.length;
  return [
    ["Undelivered", number(data.pending)],
    ["Lag", data.lag_ns ? `oldest undelivered message is ${duration(data.lag_ns)} old` : "none"],
    [
      "Unacknowledged",
      data.ack_pending ? `${number(data.ack_pending)}, the oldest for ${duration(data.unacked_ns)}` : "0",
    ],
    ["Redelivered", number(data.redelivered)],
    ["Delivered", `up to sequence ${number(info.delivered.stream_seq)}, ${rate(delivered)}`],
    ["Last delivery", time(info.delivered.last_active)],
    ["Acknowledged", `up to sequence ${number(info.ack_floor.stream_seq)}`],
    ["Last acknowledgement", time(info.ack_floor.last_active)],
    data.push ? ["Kind", "push"] : ["Requests that wait", number(data.waiting)],
    ["Filter", data.num_filters ? `${filters}${more > 0 ? ` and ${number(more)} more` : ""}` : "all messages"],
  ];
}

const RECEIVER_COLUMNS = [
  {
    id: "cid",
    label: "Connection",
    head: true,
    text: (row) => String(row.cid),
    href: (row) => address("connection", { cid: row.cid }),
  },
  { id: "name", label: "Name", text: (row) => line(row.name ?? "", 80) },
  { id: "ip", label: "Address", text: (row) => `${row.ip}:${row.port}` },
  { id: "pending", label: "Waiting output", num: true, text: (row) => bytes(row.pending_bytes) },
];

function deliveryColumns(params) {
  return [
    {
      id: "seq",
      label: "Sequence",
      head: true,
      num: true,
      text: (row) => number(row.seq),
      href: (row) => address("messages", { acc: params.acc, stream: params.stream, seq: row.seq, open: row.seq }),
    },
    { id: "state", label: "State", text: (row) => row.state },
    { id: "deliveries", label: "Deliveries", num: true, text: (row) => number(row.deliveries) },
    { id: "age", label: "Since the last", num: true, text: (row) => duration(row.age_ns) },
    {
      id: "due",
      label: "Redelivery in",
      num: true,
      cls: "p2",
      text: (row) => (row.due_ns ? duration(row.due_ns) : "–"),
    },
  ];
}
