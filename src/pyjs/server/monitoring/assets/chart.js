// Charts over time, drawn by uPlot. The points are kept while the page is open, whatever view is shown.
import { h, setAttribute, setText } from "./dom.js";

const POINTS = 600; // ten minutes of one a second
const HEIGHT = 132;
const DARK = matchMedia("(prefers-color-scheme: dark)");
const SPAN_S = 60; // shown at least
const KEYS_MAX = 100; // charts whose points are kept
export const POWERS = Array.from({ length: 50 }, (_, i) => 2 ** i); // steps of an axis of bytes
const histories = new Map();
const counters = new Map();

// The value of a key, made when it is first wanted; the oldest one goes when there are too many.
function kept(map, key, make) {
  if (!map.has(key)) {
    if (map.size >= KEYS_MAX) map.delete(map.keys().next().value);
    map.set(key, make());
  }
  return map.get(key);
}

// The points of one chart by its key: [times in s, first values, second values ...].
function history(key, count) {
  return kept(histories, key, () => Array.from({ length: count + 1 }, () => []));
}

// Differences per second of counters; null for the first reading, and after a new start of the server or its clock.
export class Rates {
  update(at, counters) {
    if (at === this.at) return this.rates;
    const seconds = (at - this.at) / 1e9;
    const before = this.counters;
    this.rates = counters.map((now, i) => (seconds > 0 && now >= before[i] ? (now - before[i]) / seconds : null));
    this.at = at;
    this.counters = counters;
    return this.rates;
  }
}

// The rates of the same counters, also when another view was shown meanwhile.
export function ratesOf(key) {
  return kept(counters, key, () => new Rates());
}

function color(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Chart {
  // labels: names of the series, two at most; format: text of a value; steps: of the axis
  constructor(key, title, labels, format, steps = undefined) {
    this.steps = steps;
    this.labels = labels;
    this.format = format;
    this.title = title;
    this.data = history(key, labels.length);
    this.values = labels.map(() => h("span", { class: "value" }, "–"));
    const legend = labels.map((label, i) =>
      h(
        "span",
        { class: "key" },
        h("span", { class: `swatch s${i + 1}`, "aria-hidden": "true" }),
        `${label} `,
        this.values[i],
      ),
    );
    this.canvas = h("div", { class: "plot", role: "img", "aria-label": title });
    this.element = h(
      "figure",
      { class: "chart" },
      h("figcaption", {}, h("strong", {}, title), ...legend),
      this.canvas,
    );
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    DARK.addEventListener("change", this.repaint);
  }

  repaint = () => this.plot?.redraw(false);

  resize() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.draw(width);
  }

  draw(width) {
    const axis = {
      stroke: color("--muted"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    const series = this.labels.map((label, i) => ({
      label,
      stroke: color(`--s${i + 1}`),
      width: 1.5,
      points: { show: false },
      fill: i === 0 ? color("--s1-fill") : undefined,
    }));
    this.plot = new uPlot(
      {
        width,
        height: HEIGHT,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, drag: { x: false, y: false } },
        scales: {
          x: { range: (u, first, last) => [Math.min(first, last - SPAN_S), last] },
          y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] },
        },
        axes: [
          { ...axis, size: 22 },
          { ...axis, size: 62, space: 32, incrs: this.steps, values: (u, at) => at.map(this.format) },
        ],
        series: [{}, ...series],
        hooks: { setCursor: [(u) => this.show(u.cursor.idx)] },
      },
      this.data,
      this.canvas,
    );
  }

  push(at, values) {
    const [times, ...rest] = this.data;
    const last = times[times.length - 1];
    if (at === last) return;
    if (at < last) this.data.forEach((each) => each.splice(0));
    times.push(at);
    rest.forEach((each, i) => each.push(values[i]));
    if (times.length > POINTS) this.data.forEach((each) => each.shift());
    if (this.plot) this.plot.setData(this.data);
    this.show(this.plot?.cursor.idx ?? null);
    this.describe();
  }

  // The values under the pointer, or the last ones.
  show(at) {
    this.values.forEach((element, i) => {
      const values = this.data[i + 1];
      setText(element, textOf(values[at ?? values.length - 1], this.format));
    });
  }

  describe() {
    const parts = this.labels.map((label, i) => {
      const values = this.data[i + 1];
      const highest = values.reduce((most, value) => Math.max(most, value ?? 0), 0);
      return `${label} ${textOf(values[values.length - 1], this.format)}, at most ${this.format(highest)}`;
    });
    setAttribute(this.canvas, "aria-label", `${this.title}, up to ten minutes: ${parts.join("; ")}`);
  }

  close() {
    this.observer.disconnect();
    DARK.removeEventListener("change", this.repaint);
    this.plot?.destroy();
  }
}

function textOf(value, format) {
  return value === null || value === undefined ? "–" : format(value);
}
