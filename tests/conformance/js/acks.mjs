// Acknowledgements: ack, nak at once and later, working, term, and the confirmed ack.
export default async function acks(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "TASKS", subjects: ["tasks"] });
  for (let n = 1; n <= 5; n++) await js.publish("tasks", `${n}`);
  await jsm.consumers.add("TASKS", {
    durable_name: "acks",
    ack_policy: t.AckPolicy.Explicit,
    ack_wait: t.nanos(1000),
    max_deliver: 3,
    max_ack_pending: 1,
  });
  const consumer = await js.consumers.get("TASKS", "acks");
  const next = () => consumer.next({ expires: 5000 });
  const state = async (step) => {
    const info = await jsm.consumers.info("TASKS", "acks");
    const { delivered, ack_floor, num_ack_pending, num_redelivered, num_pending } = info;
    t.say(step, { delivered, ack_floor, num_ack_pending, num_redelivered, num_pending });
  };
  const brief = (m) => ({ seq: m.seq, count: m.info.deliveryCount, redelivered: m.redelivered, at: m.info.deliverySequence });

  const first = await next();
  t.say("first", brief(first));
  t.say("ackAck", await first.ackAck());
  t.say("ackAck again", await first.ackAck());
  await state("one acked");

  const second = await next();
  second.nak();
  const again = await next();
  t.say("nak: again", [brief(second), brief(again)]);
  const started = Date.now();
  again.nak(300);
  const later = await next();
  t.say("nak(300): again", { ...brief(later), late_enough: Date.now() - started >= 295 });
  t.say("ackAck of it", await later.ackAck());
  await state("after naks");

  const slow = await next();
  for (let n = 0; n < 4; n++) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    slow.working();
    await nc.flush();
  }
  t.say("working", brief(slow));
  await state("still pending, not redelivered");
  t.say("acked at last", await slow.ackAck());

  const dead = await next();
  dead.term();
  await nc.flush();
  await t.until(() => jsm.consumers.info("TASKS", "acks"), (info) => info.num_ack_pending === 0);
  await state("after term");

  const forgotten = await next();
  const returned = await next();
  t.say("after ack_wait", [brief(forgotten), brief(returned)]);
  returned.ack();
  await jsm.consumers.add("TASKS", { durable_name: "all", ack_policy: t.AckPolicy.All });
  const every = await js.consumers.get("TASKS", "all");
  const batch = await t.take(await every.fetch({ max_messages: 5, expires: 2000 }), 5, (m) => m.seq === 4 && m.ackAck());
  t.say("ack all", batch.length);
  const { ack_floor, num_ack_pending } = await jsm.consumers.info("TASKS", "all");
  t.say("floor of ack all", { ack_floor, num_ack_pending });
}
