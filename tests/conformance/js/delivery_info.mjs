// What a delivery says of itself: stream, consumer, sequences, pending, counts, across two consumers and redelivery.
export default async function deliveryInfo(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "FACTS", subjects: ["facts.>"], first_seq: 100, storage: t.StorageType.Memory });
  const headers = t.headers();
  headers.set("Fact", "yes");
  for (let n = 0; n < 6; n++) await js.publish(`facts.${n % 3}`, `${n}`, { headers });
  await jsm.consumers.add("FACTS", {
    durable_name: "some",
    ack_policy: t.AckPolicy.Explicit,
    filter_subjects: ["facts.0", "facts.2"],
    metadata: { team: "a" },
  });
  await jsm.consumers.add("FACTS", {
    durable_name: "backoff",
    ack_policy: t.AckPolicy.Explicit,
    backoff: [t.nanos(100), t.nanos(200)],
    max_deliver: 3,
    max_ack_pending: 2,
  });
  const some = await js.consumers.get("FACTS", "some");
  t.say("filtered", await t.take(await some.fetch({ max_messages: 4, expires: 2000 }), 4, (m) => m.ackAck()));
  const info = await some.info();
  t.say("consumer info", info);

  const backoff = await js.consumers.get("FACTS", "backoff");
  const seen = [];
  for (let n = 0; n < 6; n++) {
    const m = await backoff.next({ expires: 3000 });
    seen.push([m.seq, m.info.deliveryCount, m.redelivered, m.info.pending]);
  }
  t.say("two at a time, three times each", seen.sort());
  t.say("parsed", t.message(await (async () => {
    await jsm.consumers.update("FACTS", "backoff", { max_ack_pending: 3 });
    return backoff.next({ expires: 3000 });
  })()));
  const { num_redelivered, num_pending, delivered } = await backoff.info();
  t.say("backoff info", { num_redelivered, num_pending, delivered });
  t.say("list", (await t.all(jsm.consumers.list("FACTS"))).map((one) => one.name).sort());
  if (!t.legacy) {
    const until = new Date(Date.now() + 3600_000);
    t.say("pause", Object.keys(await jsm.consumers.pause("FACTS", "some", until)).sort());
    t.say("paused", (await jsm.consumers.info("FACTS", "some")).paused);
    t.say("resume", await jsm.consumers.resume("FACTS", "some"));
  }
}
