// The server as a whole, and what needs attention.
import { Chart, POWERS, ratesOf } from "./chart.js";
import { address, badge, h, setAttribute, setText } from "./dom.js";
import { byteRate, bytes, counted, line, number, rate, sentence, short, words } from "./format.js";

class Tiles {
  constructor() {
    this.element = h("dl", { class: "tiles" });
    this.tiles = new Map();
  }

  set(name, value, note = "", part = null) {
    if (!this.tiles.has(name)) {
      const [shown, small] = [h("dd", { class: "figure" }), h("dd", { class: "muted note" })];
      this.tiles.set(name, [shown, small]);
      this.element.append(h("div", { class: "tile" }, h("dt", {}, name), shown, small));
    }
    const [shown, small] = this.tiles.get(name);
    setText(shown, value);
    setText(small, note);
    if (part !== null) this.meter(name, part);
  }

  meter(name, part) {
    const tile = this.tiles.get(name)[0].parentElement;
    let meter = tile.querySelector("meter");
    if (!meter) {
      meter = h("meter", { min: "0", max: "1", high: "0.9", optimum: "0", "aria-label": `${name} used` });
      tile.querySelector(".figure").after(h("dd", { class: "meter" }, meter));
    }
    setAttribute(meter, "value", String(Math.min(part, 1)));
  }
}

export class Overview {
  title = "Overview";

  constructor() {
    this.rates = ratesOf("server");
    this.tiles = new Tiles();
    this.attention = h("ul", { class: "attention" });
    this.charts = {
      msgs: new Chart("msgs", "Messages per second", ["in", "out"], short),
      bytes: new Chart("bytes", "Bytes per second", ["in", "out"], bytes, POWERS),
      lag: new Chart("lag", "Consumer lag", ["undelivered", "unacknowledged"], short),
    };
    this.element = h(
      "div",
      {},
      this.tiles.element,
      h(
        "section",
        { "aria-labelledby": "attention" },
        h("h2", { id: "attention" }, "Needs attention"),
        this.attention,
      ),
      h(
        "section",
        { "aria-label": "Charts", class: "charts" },
        ...Object.values(this.charts).map((chart) => chart.element),
      ),
    );
  }

  load(fetchData) {
    return fetchData("overview");
  }

  update(data) {
    const rates = this.rates.update(data.at, [data.in_msgs, data.out_msgs, data.in_bytes, data.out_bytes]);
    const at = data.at / 1e9;
    this.charts.msgs.push(at, rates.slice(0, 2));
    this.charts.bytes.push(at, rates.slice(2));
    this.server(data, rates);
    if (data.jetstream) this.jetstream(data.jetstream, at);
    this.charts.lag.element.hidden = !data.jetstream;
    this.problems(data.attention);
  }

  server(data, [inMsgs, outMsgs, inBytes, outBytes]) {
    const tiles = this.tiles;
    tiles.set("Messages in", rate(inMsgs), `${byteRate(inBytes)}, ${short(data.in_msgs)} in all`);
    tiles.set("Messages out", rate(outMsgs), `${byteRate(outBytes)}, ${short(data.out_msgs)} in all`);
    tiles.set("Connections", number(data.connections), counted(data.subscriptions, "subscription"));
    tiles.set("Slow consumers", number(data.slow_consumers), `${bytes(data.output_pending)} of output waiting`);
    tiles.set("Memory", bytes(data.mem), `processor ${number(data.cpu)} % of a core`);
    tiles.set("Uptime", data.uptime, data.server.cluster ? counted(data.routes, "route") : "not in a cluster");
  }

  jetstream(js, at) {
    const { max_storage: disk, max_memory: memory } = js.config;
    this.tiles.set(
      "Disk",
      bytes(js.storage),
      disk > 0 ? `of ${bytes(disk)} for streams` : "for streams",
      disk > 0 ? js.storage / disk : null,
    );
    this.tiles.set(
      "Memory streams",
      bytes(js.memory),
      memory > 0 ? `of ${bytes(memory)}` : "",
      memory > 0 ? js.memory / memory : null,
    );
    this.tiles.set("Streams", number(js.streams), `${short(js.msgs)} messages`);
    const { stopped, warning, waiting } = js.levels;
    const states = [
      [stopped, "stopped"],
      [warning, "with a warning"],
      [waiting, "waiting"],
    ];
    const text = states
      .filter(([count]) => count)
      .map(([count, state]) => `${number(count)} ${state}`)
      .join(", ");
    this.tiles.set("Consumers", number(js.consumers), text || "all deliver or are idle");
    this.charts.lag.push(at, [js.pending, js.ack_pending]);
  }

  problems(rows) {
    const key = JSON.stringify(rows.map((row) => [row.account, row.stream, row.name, row.kind, row.text]));
    if (this.key === key) return;
    this.key = key;
    if (!rows.length)
      this.attention.replaceChildren(
        h("li", { class: "muted" }, "Nothing: all streams accept publishes, and no consumer is stuck."),
      );
    else this.attention.replaceChildren(...rows.map(problem));
  }

  close() {
    Object.values(this.charts).forEach((chart) => chart.close());
  }
}

function problem(row) {
  const params = { acc: row.account, stream: row.stream, consumer: row.name };
  const name = row.name ? `${line(row.stream, 60)} › ${line(row.name, 60)}` : line(row.stream, 60);
  return h(
    "li",
    {},
    badge(row.level, words(row.kind)),
    " ",
    h("a", { href: address(row.name ? "consumer" : "stream", params) }, name),
    " ",
    h("span", { class: "why" }, line(sentence(row.text), 400)),
  );
}
