// The message browser: it reads stored messages, and consumes none.
import { address, h, setText } from "./dom.js";
import { bytes, line, number, time } from "./format.js";
import { Message } from "./payload.js";
import { Table } from "./table.js";

export class Messages {
  isStill = true; // not loaded again every second

  constructor(params, page) {
    this.page = page;
    this.params = { acc: params.get("acc") ?? "", stream: params.get("stream") ?? "" };
    this.wanted = Object.fromEntries(
      ["subject", "text", "seq", "forward"].map((name) => [name, params.get(name) ?? ""]),
    );
    this.first = params.get("open");
    this.title = `Messages of ${line(this.params.stream, 80)}`;
    this.message = new Message(this.params, page.fetchData);
    this.table = new Table({
      caption: "Messages",
      empty: "No message matches.",
      key: (row) => row.seq,
      columns: [
        {
          id: "seq",
          label: "Sequence",
          head: true,
          num: true,
          text: (row) => number(row.seq),
          href: (row) => this.here({ ...this.wanted, open: row.seq }),
        },
        { id: "time", label: "Time (UTC)", cls: "p2", text: (row) => time(row.time).replace(" UTC", "") },
        { id: "subject", label: "Subject", text: (row) => line(row.subject, 120) },
        { id: "size", label: "Size", num: true, text: (row) => bytes(row.size) },
        { id: "headers", label: "Headers", num: true, cls: "p3", text: (row) => number(row.headers) },
        { id: "preview", label: "Payload", cls: "p2 cut", text: (row) => line(row.preview, 80) },
      ],
    });
    this.table.element.addEventListener("click", (event) => this.clicked(event));
    this.status = h("p", { class: "muted", role: "status" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.turn() }, "Older");
    this.newest = h("button", { type: "button", onclick: () => this.search({ seq: "", forward: "" }) }, "Newest");
    this.oldest = h(
      "button",
      { type: "button", onclick: () => this.search({ seq: "", forward: "true" }) },
      "Oldest",
    );
    const stream = h("a", { href: address("stream", this.params) }, line(this.params.stream, 80));
    this.element = h(
      "div",
      {},
      h("p", {}, "Stored in the stream ", stream, ". Reading them consumes nothing."),
      this.form(),
      h(
        "div",
        { class: "split" },
        h(
          "div",
          {},
          this.table.element,
          h("p", { class: "pages" }, this.newest, this.oldest, this.more),
          this.status,
        ),
        this.message.element,
      ),
    );
  }

  form() {
    const field = (name, label, more) => {
      const input = h("input", {
        name,
        value: this.wanted[name],
        autocomplete: "off",
        spellcheck: "false",
        ...more,
      });
      return h("label", {}, h("span", {}, label), input);
    };
    return h(
      "form",
      { class: "tools", onsubmit: (event) => this.submitted(event) },
      field("subject", "Subject", { placeholder: "orders.*.new or >" }),
      field("text", "Contains", { maxlength: "256", placeholder: "text in subject, headers or payload" }),
      field("seq", "From sequence", { inputmode: "numeric", pattern: "[0-9]*", size: "12" }),
      h("button", { type: "submit" }, "Search"),
    );
  }

  submitted(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    this.search({ subject: given.get("subject").trim(), text: given.get("text"), seq: given.get("seq").trim() });
  }

  search(wanted) {
    Object.assign(this.wanted, wanted);
    this.page.changed({ ...this.params, ...this.wanted });
  }

  turn() {
    this.search({ seq: String(this.next) });
  }

  here(wanted) {
    return address("messages", { ...this.params, ...wanted });
  }

  load(fetchData) {
    return fetchData("messages", { ...this.params, ...this.wanted });
  }

  update(data) {
    this.next = data.next;
    this.table.update(data.messages);
    this.more.hidden = !data.next;
    const cut = data.next && data.scanned > data.messages.length;
    setText(this.more, cut && !data.messages.length ? "Search further" : this.wanted.forward ? "Newer" : "Older");
    const found = this.wanted.text
      ? `${number(data.messages.length)} of ${number(data.scanned)} messages read match. `
      : "";
    setText(
      this.status,
      `${found}The stream has ${number(data.msgs)} messages, ${number(data.first_seq)} to ${number(data.last_seq)}.`,
    );
    if (this.first) this.open(this.first);
    this.first = null;
  }

  clicked(event) {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const seq = new URLSearchParams(link.hash.split("?")[1]).get("open");
    this.page.replaceAddress({ ...this.params, ...this.wanted, open: seq });
    this.open(seq, true);
  }

  async open(seq, focus = false) {
    try {
      await this.message.open(seq);
      if (focus) this.message.element.querySelector("h2").focus();
    } catch (error) {
      this.message.element.replaceChildren(h("p", {}, line(error.message, 400)));
    }
  }

  close() {}
}
