// Pull consumers: batches, waiting, no waiting, bytes, heartbeats, and the limits of requests.
export default async function pull(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "ITEMS", subjects: ["items.>"] });
  for (let n = 1; n <= 12; n++) await js.publish("items.a", `item ${n}`);
  await jsm.consumers.add("ITEMS", { durable_name: "pull", ack_policy: t.AckPolicy.Explicit });
  t.say("added", await jsm.consumers.info("ITEMS", "pull"));
  if (t.legacy) await subscribed(t, js, jsm);

  const consumer = await js.consumers.get("ITEMS", "pull");
  const next = await consumer.next({ expires: 2000 });
  t.say("next", t.message(next));
  t.say("acked", await next.ackAck());
  t.say("fetch", await t.take(await consumer.fetch({ max_messages: 3, expires: 2000, idle_heartbeat: 500 }), 3, (m) => m.ackAck()));
  const bytes = await consumer.fetch({ max_bytes: 400, expires: 1000 });
  await t.refused("fetch of bytes", t.take(bytes, 99, (m) => m.ackAck()));
  const info = await jsm.consumers.info("ITEMS", "pull");
  t.say("after it", { floor: info.ack_floor, pending: info.num_pending, unacked: info.num_ack_pending });

  await jsm.consumers.add("ITEMS", { durable_name: "rest", ack_policy: t.AckPolicy.Explicit });
  const messages = await (await js.consumers.get("ITEMS", "rest")).consume({ max_messages: 4, expires: 2000 });
  t.say("consume", (await t.take(messages, 12, (m) => m.ackAck())).map(({ seq, info: { pending } }) => [seq, pending]));
  await t.leave(messages, true);
  t.say("none left", await (await js.consumers.get("ITEMS", "rest")).next({ expires: 1000 }));

  const empty = await js.consumers.get("ITEMS", "rest");
  const waiting = empty.next({ expires: 5000 });
  await js.publish("items.late", "late");
  t.say("waited for", t.message(await waiting));
  if (!t.legacy) {
    const held = await empty.fetch({ max_messages: 1, expires: 5000 });
    await jsm.consumers.delete("ITEMS", "rest");
    await t.refused("deleted while it waits", t.take(held, 1).then(() => held.closed()));
  } else {
    await jsm.consumers.delete("ITEMS", "rest");
  }
  await t.refused("gone", js.consumers.get("ITEMS", "rest"));
}

// The older way to pull, which only one generation has.
async function subscribed(t, js, jsm) {
  const sub = await js.pullSubscribe("items.>", t.consumerOpts().bind("ITEMS", "pull"));
  sub.pull({ batch: 2, expires: 2000 });
  t.say("pull", await t.take(sub, 2, (m) => m.ackAck()));
  await jsm.consumers.add("ITEMS", { durable_name: "old", ack_policy: t.AckPolicy.Explicit, max_waiting: 2 });
  const old = async (options) => {
    const taken = await t.all(js.fetch("ITEMS", "old", options));
    for (const m of taken) await m.ackAck();
    return taken.map((m) => [m.seq, m.info.pending]);
  };
  t.say("no_wait", await old({ batch: 3, no_wait: true }));
  t.say("expires", await old({ batch: 4, expires: 1000 }));
  await t.refused("max_bytes", old({ batch: 9, expires: 1000, max_bytes: 250 }));
  t.say("heartbeats", await old({ batch: 99, expires: 1000, idle_heartbeat: 250 }));
  t.say("no_wait of none", await old({ batch: 3, no_wait: true }));
  await t.refused("one of none", js.pull("ITEMS", "old", 0));
  await js.publish("items.one", "one");
  const one = await js.pull("ITEMS", "old", 2000);
  t.say("one", t.message(one));
  one.ack();
  const made = await js.pullSubscribe("items.one", t.consumerOpts().durable("made").ackExplicit().maxAckPending(1));
  made.pull({ batch: 1, expires: 2000 });
  t.say("made by subscribing", await t.take(made, 1, (m) => m.ackAck()));
  t.say("its configuration", (await jsm.consumers.info("ITEMS", "made")).config);
  await jsm.streams.purge("ITEMS", { filter: "items.one" });
}
