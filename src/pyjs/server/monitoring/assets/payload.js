// One message: subject, headers, and the payload as JSON, text or bytes.
import { h, setText } from "./dom.js";
import { block, bytes, fromBase64, hex, line, number, time } from "./format.js";

const PIECE = 65536;
const SHOWN_MAX = 1 << 20; // bytes of a payload that are fetched
const HEX_MAX = 65536; // bytes shown in hexadecimal
const FORMS = ["JSON", "Text", "Hex"];

function headersOf(data) {
  const text = new TextDecoder().decode(data);
  return text
    .split("\r\n")
    .slice(1)
    .filter(Boolean)
    .map((row) => {
      const colon = row.indexOf(":");
      return colon < 0 ? [row, ""] : [row.slice(0, colon), row.slice(colon + 1).trim()];
    });
}

function joined(pieces) {
  const all = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

export class Message {
  constructor(params, fetchData) {
    this.params = params;
    this.fetchData = fetchData;
    this.element = h("article", { class: "message", "aria-label": "Message" });
  }

  async open(seq) {
    this.wanted = seq;
    const data = await this.fetchData("message", { ...this.params, seq });
    if (this.wanted !== seq) return; // another message was opened meanwhile
    this.data = data;
    this.pieces = [fromBase64(data.payload)];
    this.parsed = undefined;
    this.show();
  }

  get payload() {
    return joined(this.pieces);
  }

  get isComplete() {
    return this.payload.length >= this.data.size;
  }

  async more() {
    const offset = this.payload.length;
    const size = Math.min(PIECE * 4, SHOWN_MAX - offset);
    const { pieces } = this;
    const data = await this.fetchData("message", { ...this.params, seq: this.data.seq, offset, size });
    if (this.pieces !== pieces || this.payload.length !== offset) return; // another message, or two clicks
    this.pieces.push(fromBase64(data.payload));
    this.show(this.form);
  }

  show(form) {
    const { data } = this;
    const raw = fromBase64(data.headers);
    const headers = headersOf(raw);
    const cut = data.headers_size > raw.length;
    const rows = headers.map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, line(name, 200)), h("td", {}, line(value, 2000))),
    );
    this.pre = h("pre", { class: "code payload", tabindex: "0", "aria-label": "Payload" });
    this.note = h("p", { class: "muted" });
    this.element.replaceChildren(
      h("h2", { tabindex: "-1" }, `Sequence ${number(data.seq)}`),
      h("p", { class: "subject" }, line(data.subject, 1024)),
      h("p", { class: "muted" }, `${time(data.time)}, ${bytes(data.size)}`),
      ...(rows.length
        ? [
            h(
              "div",
              { class: "scroll", tabindex: "0", role: "region", "aria-label": "Headers" },
              h("table", { class: "headers" }, h("caption", {}, "Headers"), h("tbody", {}, ...rows)),
            ),
          ]
        : [h("p", { class: "muted" }, "No headers.")]),
      ...(cut
        ? [
            h(
              "p",
              { class: "muted" },
              `The first ${bytes(raw.length)} of ${bytes(data.headers_size)} of headers are shown.`,
            ),
          ]
        : []),
      this.choice(form),
      this.pre,
      this.note,
    );
    this.showAs(form ?? (this.json() === undefined ? (this.isText() ? "Text" : "Hex") : "JSON"));
  }

  choice() {
    this.inputs = FORMS.map((name) =>
      h("input", { type: "radio", name: "form", value: name, onchange: () => this.showAs(name) }),
    );
    return h(
      "fieldset",
      { class: "forms" },
      h("legend", {}, "Payload as"),
      ...FORMS.map((name, i) => h("label", {}, this.inputs[i], ` ${name}`)),
    );
  }

  json() {
    if (!this.isComplete || !this.data.size) return undefined;
    try {
      return JSON.stringify(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(this.payload)), null, 2);
    } catch {
      return undefined;
    }
  }

  isText() {
    const text = new TextDecoder().decode(this.payload.subarray(0, 1024));
    const odd = text.match(/[\u0000-\u0008\u000e-\u001f\ufffd]/g)?.length ?? 0;
    return odd * 10 <= text.length;
  }

  showAs(form) {
    this.form = form;
    this.inputs.forEach((input) => {
      input.checked = input.value === form;
    });
    const payload = this.payload;
    let note = "";
    if (form === "JSON") {
      const text = this.json();
      this.pre.textContent = block(text ?? new TextDecoder().decode(payload));
      note =
        text === undefined
          ? this.isComplete
            ? "It is not JSON: shown as text."
            : "Not complete: shown as text."
          : "";
    } else if (form === "Text") this.pre.textContent = block(new TextDecoder().decode(payload));
    else {
      this.pre.textContent = hex(payload.subarray(0, HEX_MAX));
      if (payload.length > HEX_MAX) note = `The first ${bytes(HEX_MAX)} in hexadecimal.`;
    }
    this.noteBelow(note);
  }

  noteBelow(note) {
    const { length } = this.payload;
    setText(this.note, note);
    if (this.isComplete) return;
    this.note.append(` ${bytes(length)} of ${bytes(this.data.size)} are shown. `);
    if (length < SHOWN_MAX)
      this.note.append(h("button", { type: "button", onclick: () => this.more() }, "Show more"));
  }
}
