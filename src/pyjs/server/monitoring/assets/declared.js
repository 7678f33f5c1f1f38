// The declared streams, consumers and buckets, and what clients have changed since the last reload.
import { Facts, h, setText } from "./dom.js";
import { line, number } from "./format.js";
import { List } from "./lists.js";

const LEVELS = { same: "ok", create: "warning", update: "warning", refuse: "stopped" };
const STATES = { same: "as in the file", create: "missing", update: "differs", refuse: "cannot be changed" };

const COLUMNS = [
  { id: "name", label: "Name", head: true, sort: true, text: (row) => line(row.name, 80) },
  { id: "kind", label: "Kind", sort: true, text: (row) => row.kind.replace("_", " ") },
  { id: "account", label: "Account", cls: "p2", sort: true, text: (row) => line(row.account, 60) },
  { id: "action", label: "State", sort: true, text: (row) => STATES[row.action], level: (row) => LEVELS[row.action] },
  {
    id: "text",
    label: "A reload would",
    cls: "long",
    text: (row) => (row.action === "same" ? "" : line(row.text, 400)),
  },
];

export class Declared {
  title = "Declared";

  constructor(params, page) {
    this.none = h("p", { hidden: true }, "The configuration file declares no streams, consumers or buckets.");
    this.error = h("p", { class: "problem", hidden: true });
    this.facts = new Facts();
    this.list = new List({
      name: "declared",
      caption: "Declared streams, consumers and buckets",
      columns: COLUMNS,
      key: (row) => JSON.stringify([row.account, row.kind, row.name]),
      empty: "Nothing that is declared matches.",
      sort: "action",
      params,
      searched: "Search by name, kind or account",
      page,
    });
    this.parts = h("div", {}, this.error, this.facts.element, this.list.element);
    this.element = h("div", {}, this.none, this.parts);
  }

  load(fetchData) {
    return this.list.load(fetchData);
  }

  update(data) {
    this.none.hidden = Boolean(data.compared);
    this.parts.hidden = !data.compared;
    if (!data.compared) return;
    const errors = Object.entries(data.errors).map(([account, text]) => `${account}: ${text}`);
    setText(this.error, line(errors.join("; "), 600));
    this.error.hidden = errors.length === 0;
    const { create, update, refuse, same } = data.counts;
    this.facts.update([
      ["As in the file", number(same)],
      ["Differ", number(update)],
      ["Missing", number(create)],
      ["Cannot be changed", number(refuse)],
      ["Not in the file", number(data.not_in_file)],
      ["Compared", new Date(data.compared).toLocaleTimeString()],
    ]);
    this.list.update(data);
  }

  close() {
    this.list.close();
  }
}
