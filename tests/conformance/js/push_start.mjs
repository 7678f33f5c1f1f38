// Ephemeral consumers that start at a time, at a sequence, with the last or with what is new; ordered consumers.
export default async function pushStart(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "LOG", subjects: ["log.*"] });
  for (let n = 1; n <= 4; n++) await js.publish(`log.${n % 2}`, `${n}`);
  await new Promise((resolve) => setTimeout(resolve, 20));
  await js.publish("log.1", "5");
  const fifth = (await jsm.streams.getMessage("LOG", { seq: 5 })).time;
  await js.publish("log.0", "6");

  const from = async (what, count, set, given) => {
    let messages;
    if (t.legacy) {
      const options = t.consumerOpts().deliverTo(t.createInbox()).ackNone();
      set(options);
      messages = await js.subscribe("log.*", options);
    } else {
      const deliver = { deliver_subject: t.createInbox(), ack_policy: t.AckPolicy.None };
      const { name } = await jsm.consumers.add("LOG", { ...deliver, ...given });
      messages = await (await js.consumers.getPushConsumer("LOG", name)).consume();
    }
    const taken = await t.take(messages, count, () => undefined);
    t.say(what, taken.map(({ seq, text, info }) => ({ seq, text, pending: info.pending, at: info.deliverySequence })));
    await (t.legacy ? messages.destroy() : t.leave(messages));
  };
  const { DeliverPolicy } = t;
  await from("time", 2, (o) => o.startTime(fifth), {
    deliver_policy: DeliverPolicy.StartTime,
    opt_start_time: fifth.toISOString(),
  });
  await from("sequence", 4, (o) => o.startSequence(3), { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 3 });
  await from("all", 6, (o) => o.deliverAll(), { deliver_policy: DeliverPolicy.All });
  await from("last", 1, (o) => o.deliverLast(), { deliver_policy: DeliverPolicy.Last });
  await from("last of each", 2, (o) => o.deliverLastPerSubject(), {
    deliver_policy: DeliverPolicy.LastPerSubject,
    filter_subject: "log.*",
  });
  await from("headers only", 6, (o) => o.headersOnly(), { headers_only: true });

  const ordered = t.legacy
    ? await js.subscribe("log.*", t.consumerOpts().orderedConsumer())
    : await (await js.consumers.getPushConsumer("LOG", { deliver_policy: DeliverPolicy.All })).consume();
  t.say("ordered", (await t.take(ordered, 6, () => undefined)).map(({ seq, text }) => [seq, text]));
  await (t.legacy ? ordered.destroy() : t.leave(ordered));
  const pulled = await js.consumers.get("LOG", { filterSubjects: ["log.1"], filter_subjects: ["log.1"] });
  const fetched = await pulled.fetch({ max_messages: 3, expires: 2000 });
  t.say("ordered pull", (await t.take(fetched, 3, () => undefined)).map(({ seq, text }) => [seq, text]));
  const strange = { opt_start_seq: 3, deliver_policy: DeliverPolicy.New, ack_policy: t.AckPolicy.None };
  await t.refused("a start without its policy", jsm.consumers.add("LOG", strange));
}
