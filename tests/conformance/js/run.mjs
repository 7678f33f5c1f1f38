// Runs one script with one generation of the JavaScript client against one server:
//   node run.mjs nats2|nats_io SCRIPT PORT FOLDER_OF_NODE_MODULES
// The script logs in as the user named like itself and the generation; what it says goes to stdout, a JSON value
// a line. An error that the script does not expect ends the run with its text and code 1.
import { createRequire } from "node:module";
import path from "node:path";

const SECONDS_MAX = 40;
const [generation, script, port, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "from.js"));
const legacy = generation === "nats2";
const core = require(legacy ? "nats" : "@nats-io/transport-node");
const jetstream = legacy ? core : require("@nats-io/jetstream");

setTimeout(() => fail(new Error(`not done in ${SECONDS_MAX} s`)), SECONDS_MAX * 1000);
process.on("unhandledRejection", fail);

function fail(error) {
  console.error(error);
  process.exit(1);
}

// What a caller can see of an error, in one shape for both generations.
function shown(error) {
  const api = legacy ? error.api_error : error.apiError?.();
  return { error: error.name, code: error.code, text: error.message, api };
}

const iterators = new WeakMap();

// The two generations under the names that they share. `legacy` says which one it is where they differ.
const tools = {
  legacy,
  ...core,
  ...jetstream,
  connect: (options = {}) =>
    core.connect({ servers: `127.0.0.1:${port}`, user: `${script}_${generation}`, pass: "x", ...options }),
  jetstream: (nc, options) => (legacy ? nc.jetstream(options) : jetstream.jetstream(nc, options)),
  jetstreamManager: (nc, options) =>
    legacy ? nc.jetstreamManager(options) : jetstream.jetstreamManager(nc, options),
  kvs: (nc, options) => {
    if (!legacy) return new (require("@nats-io/kv").Kvm)(jetstream.jetstream(nc, options));
    const views = nc.jetstream(options).views;
    return { create: (name, given) => views.kv(name, given), open: (name) => views.kv(name, { bindOnly: true }) };
  },
  objects: (nc, options) => {
    if (!legacy) return new (require("@nats-io/obj").Objm)(jetstream.jetstream(nc, options));
    const views = nc.jetstream(options).views;
    return { create: (name, given) => views.os(name, given) };
  },
  say: (step, value) => console.log(JSON.stringify({ step, value: value === undefined ? null : value })),
  // Says what the promise is refused with, or that it was not.
  refused: async (step, promise) => {
    try {
      tools.say(step, { not_refused: await promise });
    } catch (error) {
      tools.say(step, shown(error));
    }
  },
  message: (m) => ({
    subject: m.subject,
    seq: m.seq,
    text: new TextDecoder().decode(m.data),
    headers: m.headers ? Object.fromEntries([...m.headers].map(([key, values]) => [key, values])) : undefined,
    redelivered: m.redelivered,
    info: m.info && { ...m.info, timestampNanos: typeof m.info.timestampNanos },
  }),
  // Takes `count` messages, each handled before the next is asked for. Leaving a `for await` would end the iterator.
  take: async (messages, count, handle = (m) => m.ack()) => {
    const taken = [];
    const iterator = messages[Symbol.asyncIterator]();
    iterators.set(messages, iterator);
    while (taken.length < count) {
      const { value, done } = await iterator.next();
      if (done) break;
      taken.push(tools.message(value));
      await handle(value);
    }
    return taken;
  },
  // Ends what `take` reads from. A pull's close waits until everything was read; a push is left first.
  leave: async (messages, pull = false) => {
    const iterator = iterators.get(messages);
    if (!pull) await iterator.return();
    const closed = messages.close();
    while (pull && !(await iterator.next()).done);
    await closed;
  },
  all: async (lister) => {
    const found = [];
    for await (const one of lister) found.push(one);
    return found;
  },
  // Waits for a state that the server reaches by itself, as the answer that shows it.
  until: async (ask, reached) => {
    for (;;) {
      const answer = await ask();
      if (reached(answer)) return answer;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  },
};

try {
  const { default: play } = await import(`./${script}.mjs`);
  await play(tools, await tools.connect());
  process.exit(0); // closing first would wait for iterators that a script has left half read
} catch (error) {
  fail(error);
}
