// Elements from data. Text is always set as text: nothing that comes from a message or a name is parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Set text only if it differs: a selection, and a screen reader's place, stay.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// The address of a view; empty arguments are left out.
export function address(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

// A list of names and values that is updated in place.
export class Facts {
  constructor() {
    this.element = h("dl", { class: "facts" });
    this.shown = new Map();
  }

  // `facts`: [name, text] or [name, text, address]
  update(facts) {
    const names = new Set(facts.map(([name]) => name));
    for (const [name, row] of this.shown) {
      if (!names.has(name)) {
        row.remove();
        this.shown.delete(name);
      }
    }
    for (const [name, text, href] of facts) {
      if (!this.shown.has(name)) {
        const row = h("div", {}, h("dt", {}, name), h("dd", {}, href ? h("a", {}) : h("span", {})));
        this.shown.set(name, row);
        this.element.append(row);
      }
      const value = this.shown.get(name).querySelector("dd > *");
      setText(value, text);
      if (href) setAttribute(value, "href", href);
    }
  }
}

export function badge(level, text) {
  return h("span", { class: `badge ${level}` }, text);
}

export function reasonsList() {
  return h("ul", { class: "reasons" });
}

// The reasons of a stream or consumer: kind and sentence.
export function showReasons(list, reasons, words, line, nothing) {
  const key = JSON.stringify(reasons.map((each) => [each.kind, each.text]));
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const items = reasons.map((each) =>
    h("li", {}, h("strong", {}, words(each.kind)), " ", h("span", {}, line(each.text, 4000))),
  );
  list.replaceChildren(...(items.length ? items : [h("li", { class: "muted" }, nothing)]));
}
