// Numbers, sizes, durations and untrusted text as people read them.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const LARGE = [
  [1e12, 1e12, "T"],
  [1e9, 1e9, "G"],
  [1e6, 1e6, "M"],
  [1e4, 1e3, "k"],
];
const NS = 1e9;

export function number(value) {
  return Number.isFinite(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 1 }) : "–";
}

// "1 route", "2 routes"
export function counted(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// Short form for tiles and axes: 9,999, then 10k, 12.3k and so on.
export function short(value) {
  for (const [from, unit, name] of LARGE) {
    if (Math.abs(value) >= from) return `${Number((value / unit).toPrecision(3))}${name}`;
  }
  return number(Math.abs(value) < 100 ? value : Math.round(value));
}

export function rate(value) {
  return value === null || !Number.isFinite(value) ? "–" : `${short(value)}/s`;
}

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < BYTES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : number(Math.round(value))} ${BYTES[unit]}`;
}

export function byteRate(value) {
  return value === null || !Number.isFinite(value) ? "–" : `${bytes(value)}/s`;
}

export function duration(ns) {
  const s = ns / NS;
  if (s < 0.001) return `${Math.round(ns / 1e3)} µs`;
  if (s < 1) return `${Math.round(s * 1e3)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// A time of the server, to the second, as the server writes it (UTC).
export function time(text) {
  if (!text || text.startsWith("0001-")) return "never";
  return text.replace("T", " ").replace(/\.\d+/, "").replace("Z", " UTC");
}

// The first sentence of a reason.
export function sentence(text) {
  return text.split(/(?<=\.) /, 1)[0];
}

export function words(kind) {
  return kind.replaceAll("_", " ");
}

// The state of a stream or consumer in a word or two: what is wrong, or the level.
export function levelText(row) {
  return row.kind && row.level !== "ok" ? words(row.kind) : row.level;
}

// Control characters, marks that change the direction of text, characters of no width, and halves of a pair: a name
// or a payload must not hide or reorder what is around it.
const HIDDEN = new RegExp(
  `[${[
    "\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029", // controls and separators of lines
    "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u206f", // direction
    "\\u00ad\\u115f\\u1160\\u180e\\u200b-\\u200d\\u2060-\\u2065\\u3164\\ufeff\\uffa0", // no width
    "\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}", // annotations and tags
  ].join("")}]|\\p{Cs}`,
  "gu",
);

function shown(c) {
  const code = c.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// Text of others in one line.
export function line(text, most = 300) {
  const visible = String(text).replace(HIDDEN, shown);
  return visible.length > most ? `${visible.slice(0, most)}…` : visible;
}

// Text of others with its lines and tabs.
export function block(text) {
  return String(text).replace(HIDDEN, (c) => (c === "\n" || c === "\t" ? c : c === "\r" ? "" : shown(c)));
}

export function hex(data, offset = 0) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = data.subarray(at, at + 16);
    const digits = Array.from(row, (b) => b.toString(16).padStart(2, "0"));
    const text = Array.from(row, (b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : "."));
    const left = digits.slice(0, 8).join(" ").padEnd(23);
    const right = digits.slice(8).join(" ").padEnd(23);
    lines.push(`${(offset + at).toString(16).padStart(8, "0")}  ${left}  ${right}  ${text.join("")}`);
  }
  return lines.join("\n");
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}
