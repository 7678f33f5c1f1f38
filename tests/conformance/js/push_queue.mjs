// Push consumers with a queue group: members share the messages, others are refused.
export default async function pushQueue(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  await jsm.streams.add({ name: "JOBS", subjects: ["jobs"] });
  const config = {
    durable_name: "crew",
    deliver_subject: "deliver.crew",
    deliver_group: "crew",
    ack_policy: t.AckPolicy.Explicit,
  };
  const seen = [];
  let all;
  const everything = new Promise((resolve) => (all = resolve));
  const take = (member) => (error, m) => {
    seen.push({ member, seq: m.seq });
    m.ack();
    if (seen.length === 40) all();
  };
  const members = [await t.connect(), await t.connect()];
  if (t.legacy) {
    const options = t.consumerOpts();
    options.durable("crew").queue("crew").deliverTo("deliver.crew").ackExplicit().manualAck();
    for (const [n, member] of members.entries()) {
      await member.jetstream().subscribe("jobs", t.consumerOpts(options.config).queue("crew")
        .durable("crew").deliverTo("deliver.crew").ackExplicit().manualAck().callback(take(n)));
    }
    const wrong = t.consumerOpts().bind("JOBS", "crew").queue("others");
    await t.refused("another group", js.subscribe("jobs", wrong));
    await t.refused("no group", js.subscribe("jobs", t.consumerOpts().bind("JOBS", "crew")));
  } else {
    await jsm.consumers.add("JOBS", config);
    for (const [n, member] of members.entries()) {
      const consumer = await t.jetstream(member).consumers.getPushConsumer("JOBS", "crew");
      await consumer.consume({ callback: (m) => take(n)(null, m) });
    }
  }
  await Promise.all(members.map((member) => member.flush()));
  for (let n = 1; n <= 40; n++) await js.publish("jobs", `${n}`);
  await everything;
  t.say("every one once", seen.map(({ seq }) => seq).sort((a, b) => a - b));
  t.say("members with work", new Set(seen.map(({ member }) => member)).size);
  await Promise.all(members.map((member) => member.flush()));
  const info = await t.until(() => jsm.consumers.info("JOBS", "crew"), (now) => now.num_ack_pending === 0);
  t.say("info", info);
  await t.refused("made again", jsm.consumers.add("JOBS", config));
  await t.refused("changed", jsm.consumers.add("JOBS", { ...config, deliver_group: "other" }));
  await Promise.all(members.map((member) => member.close()));
  const idle = await t.until(() => jsm.consumers.info("JOBS", "crew"), (now) => !now.push_bound);
  t.say("members gone", idle.push_bound ?? false);
}
