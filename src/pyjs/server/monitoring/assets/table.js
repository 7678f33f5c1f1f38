// A table whose rows are updated in place, by key: focus and selection stay while numbers change.
import { h, setAttribute, setText } from "./dom.js";

export class Table {
  // columns: {id, label, text(row), href?(row), level?(row), num?, head?, cls?, sort?}; `sort` means that the list
  // be sorted by it, `head` that it names the row.
  constructor({ caption, columns, key, empty, onsort }) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = h("tbody");
    this.heads = columns.map((column) => head(column, onsort));
    this.empty = h("p", { class: "empty muted", hidden: true }, empty);
    this.table = h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, ...this.heads)),
      this.body,
    );
    const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.element = h("div", {}, scroll, this.empty);
  }

  showSort(sort) {
    const id = sort.replace(/^-/, "");
    this.columns.forEach((column, at) => {
      const direction = sort.startsWith("-") ? "descending" : "ascending";
      setAttribute(this.heads[at], "aria-sort", column.sort && column.id === id ? direction : null);
    });
  }

  update(rows) {
    const old = this.rows;
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    this.rows = new Map();
    let at = this.body.firstElementChild;
    for (const row of rows) {
      const key = this.key(row);
      const line = old.get(key) ?? this.made();
      old.delete(key);
      this.rows.set(key, line);
      this.columns.forEach((column, number) => fill(line.children[number], column, row));
      if (line === at) at = at.nextElementSibling;
      else this.body.insertBefore(line, at);
    }
    for (const line of old.values()) line.remove();
    if (focused && focused !== document.activeElement) this.refocus(focused);
    this.empty.hidden = rows.length > 0;
    this.table.parentElement.hidden = rows.length === 0;
  }

  // A row that was moved has lost the focus; one that is gone leaves it to the table.
  refocus(focused) {
    const target = focused.isConnected ? focused : this.table.parentElement;
    target.focus({ preventScroll: true });
  }

  made() {
    return h("tr", {}, ...this.columns.map((column) => cell(column)));
  }
}

function head(column, onsort) {
  const cls = [column.num ? "num" : "", column.cls ?? ""].join(" ").trim() || null;
  if (!column.sort || !onsort) return h("th", { scope: "col", class: cls }, column.label);
  const button = h("button", { type: "button", class: "sort", onclick: () => onsort(column) }, column.label);
  return h("th", { scope: "col", class: cls }, button);
}

function cell(column) {
  const cls = [column.num ? "num" : "", column.cls ?? ""].join(" ").trim() || null;
  const inner = column.href ? h("a") : h("span", { class: column.level ? "badge" : null });
  return h(column.head ? "th" : "td", { class: cls, scope: column.head ? "row" : null }, inner);
}

function fill(td, column, row) {
  const inner = td.firstElementChild;
  setText(inner, column.text(row));
  if (column.href) setAttribute(inner, "href", column.href(row));
  if (column.level) setAttribute(inner, "class", `badge ${column.level(row)}`);
}
