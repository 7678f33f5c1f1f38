// A list of the server: search, sort and pages, all done by the server.
import { h, setText } from "./dom.js";
import { number } from "./format.js";
import { Table } from "./table.js";

const TYPING_MS = 250;

export class List {
  // `name`: of the data and of the rows in it; `params`: of the address; `fixed`: arguments that do not change
  constructor({ name, caption, columns, key, empty, sort, params, fixed = {}, searched, page }) {
    this.name = name;
    this.fixed = fixed;
    this.defaultSort = sort;
    this.page = page;
    this.params = {
      sort: params.get("sort") ?? "",
      search: params.get("search") ?? "",
      offset: params.get("offset") ?? "",
    };
    this.table = new Table({ caption, columns, key, empty, onsort: (column) => this.sortBy(column) });
    this.input = h("input", {
      type: "search",
      value: this.params.search,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.typed(),
    });
    this.place = h("span", { class: "muted" });
    this.previous = h("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.following = h("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    const search = h("label", { class: "search" }, h("span", { class: "unseen" }, searched), this.input);
    this.input.placeholder = searched;
    this.extra = h("span", { class: "extra" });
    this.element = h(
      "div",
      { class: "list" },
      h(
        "div",
        { class: "tools" },
        search,
        this.extra,
        h("span", { class: "pages" }, this.place, this.previous, this.following),
      ),
      this.table.element,
    );
    this.table.showSort(this.sort);
  }

  get sort() {
    return this.params.sort || this.defaultSort;
  }

  async load(fetchData) {
    const { sort, search, offset } = this.params;
    return fetchData(this.name, { ...this.fixed, sort: sort || this.defaultSort, search, offset });
  }

  update(data) {
    const rows = data[this.name];
    this.total = data.total;
    this.limit = data.limit;
    const first = data.offset + 1;
    const among = data.total < data.of ? ` (${number(data.of)} in all)` : "";
    setText(
      this.place,
      rows.length ? `${number(first)}–${number(data.offset + rows.length)} of ${number(data.total)}${among}` : "",
    );
    this.previous.disabled = data.offset === 0;
    this.following.disabled = data.offset + rows.length >= data.total;
    this.previous.hidden = this.following.hidden = data.total <= data.limit && data.offset === 0;
    this.table.update(rows);
  }

  sortBy(column) {
    const wanted = column.num ? [`-${column.id}`, column.id] : [column.id, `-${column.id}`];
    this.change({ sort: this.sort === wanted[0] ? wanted[1] : wanted[0], offset: "" });
    this.table.showSort(this.sort);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change({ search: this.input.value.trim(), offset: "" }), TYPING_MS);
  }

  turn(pages) {
    const offset = Math.max(Number(this.params.offset || 0) + pages * this.limit, 0);
    this.change({ offset: offset ? String(offset) : "" });
  }

  change(params) {
    Object.assign(this.params, params);
    this.page.changed(this.params);
  }

  close() {
    clearTimeout(this.timer);
  }
}

// A view that shows one list.
export class ListView {
  constructor(list) {
    this.list = list;
    this.element = list.element;
  }

  load(fetchData) {
    return this.list.load(fetchData);
  }

  update(data) {
    this.list.update(data);
  }

  close() {
    this.list.close();
  }
}
