// Publishing: message ids, every expectation kept and broken, and the PubAck.
export default async function publish(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await t.refused("no stream", js.publish("orders.none", "0"));
  await jsm.streams.add({ name: "ORDERS", subjects: ["orders.>"] });
  t.say("first", await js.publish("orders.a", "1", { msgID: "one" }));
  t.say("duplicate", await js.publish("orders.a", "1", { msgID: "one" }));
  t.say("without id", await js.publish("orders.b"));

  t.say("lastMsgID is empty", await js.publish("orders.a", "3", { msgID: "two" }));
  t.say("lastMsgID", await js.publish("orders.a", "4", { msgID: "three", expect: { lastMsgID: "two" } }));
  await t.refused("wrong lastMsgID", js.publish("orders.a", "x", { expect: { lastMsgID: "one" } }));
  t.say("streamName", await js.publish("orders.a", "5", { expect: { streamName: "ORDERS" } }));
  await t.refused("wrong streamName", js.publish("orders.a", "x", { expect: { streamName: "OTHER" } }));
  t.say("lastSequence", await js.publish("orders.a", "6", { expect: { lastSequence: 5 } }));
  await t.refused("wrong lastSequence", js.publish("orders.a", "x", { expect: { lastSequence: 5 } }));
  t.say("lastSubjectSequence", await js.publish("orders.b", "7", { expect: { lastSubjectSequence: 2 } }));
  await t.refused("wrong one", js.publish("orders.b", "x", { expect: { lastSubjectSequence: 2 } }));
  t.say("of no message", await js.publish("orders.c", "8", { expect: { lastSubjectSequence: 0 } }));
  await t.refused("of a message", js.publish("orders.c", "x", { expect: { lastSubjectSequence: 0 } }));
  const other = t.legacy ? {} : { lastSubjectSequence: 8, lastSubjectSequenceSubject: "orders.c" };
  t.say("of another subject", await js.publish("orders.d", "9", { expect: other }));
  const wrong = t.legacy ? { lastSequence: 1 } : { ...other, lastSubjectSequence: 7 };
  await t.refused("of another, wrong", js.publish("orders.d", "x", { expect: wrong }));

  const headers = t.headers();
  headers.append("Kind", "a");
  headers.append("Kind", "b");
  t.say("headers", await js.publish("orders.h", "10", { headers, msgID: "h" }));
  const stored = await jsm.streams.getMessage("ORDERS", { seq: 10 });
  t.say("stored", { subject: stored.subject, seq: stored.seq, kind: stored.header.values("Kind"), text: stored.string() });
  const acks = await Promise.all([...Array(20).keys()].map((n) => js.publish(`orders.many.${n}`, `${n}`)));
  t.say("at once", acks);
  t.say("state", (await jsm.streams.info("ORDERS")).state);
}
