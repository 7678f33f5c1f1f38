// Durable push consumers: made by subscribing or beforehand, bound to, left and taken up again.
export default async function pushDurable(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "WORK", subjects: ["work.*"] });
  for (let n = 1; n <= 6; n++) await js.publish(`work.${n % 2 ? "odd" : "even"}`, `${n}`);
  const config = {
    durable_name: "worker",
    deliver_subject: "deliver.worker",
    ack_policy: t.AckPolicy.Explicit,
    filter_subject: "work.odd",
    idle_heartbeat: t.nanos(5000),
    flow_control: true,
    max_ack_pending: 100,
  };
  let messages;
  if (t.legacy) {
    const options = t.consumerOpts();
    options.durable("worker").deliverTo("deliver.worker").ackExplicit().manualAck().filterSubject("work.odd");
    options.idleHeartbeat(5000).flowControl().maxAckPending(100);
    messages = await js.subscribe("work.odd", options);
  } else {
    await jsm.consumers.add("WORK", config);
    messages = await (await js.consumers.getPushConsumer("WORK", "worker")).consume();
  }
  t.say("first two", await t.take(messages, 2));
  t.say("active", (await t.until(() => jsm.consumers.info("WORK", "worker"), (info) => info.push_bound)).push_bound);
  const busy = t.legacy ? await t.connect() : nc;
  if (t.legacy) {
    await t.refused("bound twice", busy.jetstream().subscribe("work.odd", t.consumerOpts().bind("WORK", "worker")));
    await busy.close();
  }
  await (t.legacy ? messages.unsubscribe() : t.leave(messages));
  await nc.flush();
  const left = await t.until(() => jsm.consumers.info("WORK", "worker"), (info) => !info.push_bound);
  t.say("left", left);

  // One was delivered and not acked above: it comes again once the wait is shorter.
  await jsm.consumers.update("WORK", "worker", { ack_wait: t.nanos(200) });
  if (t.legacy) {
    messages = await js.subscribe("work.odd", t.consumerOpts().bind("WORK", "worker"));
  } else {
    messages = await (await js.consumers.getPushConsumer("WORK", "worker")).consume();
  }
  await js.publish("work.odd", "7");
  const texts = new Set();
  for await (const m of messages) {
    await m.ackAck();
    texts.add(`${m.string()} at ${m.seq}`);
    if (texts.size === 2) break;
  }
  t.say("taken up", [...texts].sort());
  const done = await jsm.consumers.info("WORK", "worker");
  t.say("done", { floor: done.ack_floor.stream_seq, pending: done.num_pending, unacked: done.num_ack_pending });
  t.say("deleted", await jsm.consumers.delete("WORK", "worker"));
  await t.refused("gone", jsm.consumers.info("WORK", "worker"));
}
