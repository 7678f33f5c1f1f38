// The account's limits and use, a domain and an API prefix.
export default async function account(t, nc) {
  const jsm = await t.jetstreamManager(nc);
  t.say("limits", await jsm.getAccountInfo());
  await jsm.streams.add({ name: "FILE", subjects: ["file"], max_bytes: 1 << 20 });
  await jsm.streams.add({ name: "MEM", subjects: ["mem"], storage: t.StorageType.Memory });
  await t.refused("too many streams", jsm.streams.add({ name: "MORE", subjects: ["more"] }));
  await t.refused("too large", jsm.streams.update("MEM", { max_bytes: 1 << 30 }));
  const js = t.jetstream(nc);
  t.say("ack names the domain", await js.publish("mem", "0123456789"));
  const consumer = { durable_name: "one", ack_policy: t.AckPolicy.Explicit };
  await jsm.consumers.add("MEM", consumer);
  await t.refused("too many consumers", jsm.consumers.add("MEM", { ...consumer, durable_name: "two" }));
  const { api, ...used } = await jsm.getAccountInfo();
  t.say("used", used);
  t.say("api", { errors: api.errors, counted: api.total > 0, level: api.level });

  for (const options of [{ domain: "hub" }, { apiPrefix: "$JS.hub.API" }, { apiPrefix: "$JS.API" }]) {
    const manager = await t.jetstreamManager(nc, options);
    const client = t.jetstream(nc, options);
    t.say("options", manager.getOptions().apiPrefix);
    t.say("names", await t.all(manager.streams.names()));
    t.say("published", await client.publish("mem", "again"));
    const one = await client.consumers.get("MEM", "one");
    const m = await one.next({ expires: 2000 });
    t.say("taken", { ...t.message(m), acked: await m.ackAck() });
  }
  const timeout = { timeout: 300 };
  await t.refused("another domain", t.jetstreamManager(nc, { domain: "elsewhere", ...timeout }));
  const unchecked = await t.jetstreamManager(nc, { apiPrefix: "$JS.elsewhere.API", checkAPI: false, ...timeout });
  await t.refused("another prefix", unchecked.streams.info("MEM"));
  await t.refused("domain and prefix", t.jetstreamManager(nc, { domain: "hub", apiPrefix: "$JS.API" }));
}
