// The frame of the page: which view is shown, and its data, once a second.
import { Cluster } from "./cluster.js";
import { Connection, Connections } from "./connections.js";
import { Consumer, Consumers } from "./consumers.js";
import { Declared } from "./declared.js";
import { address, h, setAttribute, setText } from "./dom.js";
import { line } from "./format.js";
import { Messages } from "./messages.js";
import { Overview } from "./overview.js";
import { Stream, Streams } from "./streams.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 20000;
const VIEWS = {
  overview: Overview,
  streams: Streams,
  stream: Stream,
  consumers: Consumers,
  consumer: Consumer,
  connections: Connections,
  connection: Connection,
  cluster: Cluster,
  declared: Declared,
  messages: Messages,
};
const SECTIONS = { stream: "streams", messages: "streams", consumer: "consumers", connection: "connections" };

const main = document.getElementById("main");
const statusText = document.getElementById("status");
const dot = document.getElementById("dot");
const pause = document.getElementById("pause");

let view = null;
let name = "";
let timer = 0;
let running = null; // the AbortController of the request that is under way
let isPaused = false;

async function fetchData(what, params = {}, signal = undefined) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return answerOf(await fetch(`dashboard/data/${what}${query ? `?${query}` : ""}`, { signal }));
}

// An action of the page; the server accepts it only with this header, from a page of its own.
async function post(action, params, body) {
  return answerOf(
    await fetch(`dashboard/actions/${action}?${new URLSearchParams(params)}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Pyjs-Action": action },
      body: JSON.stringify(body),
    }),
  );
}

async function answerOf(answer) {
  if (!answer.ok) {
    const error = new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
    error.isAnswer = true;
    throw error;
  }
  return answer.json();
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  name = Object.hasOwn(VIEWS, path) ? path : "overview";
  view?.close();
  const params = new URLSearchParams(query ?? "");
  const page = { changed, refresh, replaceAddress, fetchData, post };
  view = new VIEWS[name](params, page);
  const heading = h("h1", { tabindex: "-1" }, view.title);
  const isFirst = !main.dataset.view;
  main.dataset.view = name;
  main.replaceChildren(
    heading,
    h("p", { id: "problem", class: "problem", role: "alert", hidden: true }),
    view.element,
  );
  for (const link of document.querySelectorAll("nav a")) {
    setAttribute(link, "aria-current", link.hash === `#/${SECTIONS[name] ?? name}` ? "page" : null);
  }
  if (!isFirst) {
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  refresh();
}

function replaceAddress(params) {
  history.replaceState(null, "", address(name, params));
}

// The view wants other data: its address changes, the view stays.
function changed(params) {
  replaceAddress(params);
  refresh();
}

function refresh() {
  clearTimeout(timer);
  running?.abort();
  poll(true);
}

async function poll(isWanted = false) {
  const current = view;
  if ((isPaused || document.hidden) && !isWanted) return;
  const control = new AbortController();
  running = control;
  const limit = setTimeout(() => control.abort(new Error("no answer")), TIMEOUT_MS);
  let data = null;
  let failure = null;
  try {
    data = await current.load((what, params) => fetchData(what, params, control.signal));
  } catch (error) {
    failure = error;
  }
  clearTimeout(limit);
  if (running !== control) return; // another request has taken its place
  const isLost = failure && !failure.isAnswer;
  if (!current.isStill || isLost) timer = setTimeout(poll, PERIOD_MS);
  if (failure) failed(failure);
  else show(data);
}

function show(data) {
  const { server } = data;
  setText(document.getElementById("server"), line(server.name, 60));
  setText(
    document.getElementById("version"),
    `pyjs-server ${server.version}${server.cluster ? `, cluster ${line(server.cluster, 60)}` : ""}`,
  );
  document.title = `${view.title} · ${line(server.name, 60)}`;
  state(isPaused ? "paused" : "live");
  problem("");
  view.update(data);
  if (!main.dataset.painted)
    requestAnimationFrame(() => {
      performance.mark("painted");
      main.dataset.painted = "true";
    });
}

function failed(error) {
  state(error.isAnswer ? "live" : "lost");
  problem(error.isAnswer ? error.message : "The server does not answer. The numbers below are old.");
}

function problem(text) {
  const element = document.getElementById("problem");
  setText(element, line(text, 600));
  element.hidden = !text;
}

function state(name) {
  setText(statusText, { live: "Live", paused: "Paused", lost: "No answer" }[name]);
  setAttribute(dot, "class", `dot ${name}`);
}

pause.addEventListener("click", () => {
  isPaused = !isPaused;
  setAttribute(pause, "aria-pressed", String(isPaused));
  state(isPaused ? "paused" : "live");
  if (!isPaused) refresh();
  else clearTimeout(timer);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isPaused) refresh();
});
// The address after # belongs to the views, so that this link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
route();
