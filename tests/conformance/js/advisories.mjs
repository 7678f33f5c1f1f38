// Advisories as the manager's iterator gives them, in their order.
export default async function advisories(t, nc) {
  const jsm = await t.jetstreamManager(nc);
  const js = t.jetstream(nc);
  const iterator = jsm.advisories();
  await nc.flush();
  const wanted = ["stream_action", "consumer_action", "max_deliver", "terminated"];
  await jsm.streams.add({ name: "EVENTS", subjects: ["events"] });
  await jsm.streams.update("EVENTS", { max_msgs: 10 });
  await jsm.consumers.add("EVENTS", {
    durable_name: "impatient",
    ack_policy: t.AckPolicy.Explicit,
    ack_wait: t.nanos(100),
    max_deliver: 1,
  });
  await js.publish("events", "1");
  const consumer = await js.consumers.get("EVENTS", "impatient");
  await consumer.next({ expires: 2000 });
  const seen = [];
  const until = async (kind) => {
    for await (const advisory of iterator) {
      if (wanted.includes(advisory.kind)) seen.push(advisory);
      if (advisory.kind === kind) return;
    }
  };
  // An iterator ends with the loop over it, so the rest is read from a second one.
  await until("max_deliver");
  t.say("first", seen.splice(0));
  const more = jsm.advisories();
  await nc.flush();
  await js.publish("events", "2");
  (await consumer.next({ expires: 2000 })).term("broken");
  for await (const advisory of more) {
    if (advisory.kind === "terminated") {
      t.say("terminated", advisory);
      break;
    }
  }
  const last = jsm.advisories();
  await nc.flush();
  await jsm.consumers.delete("EVENTS", "impatient");
  for await (const advisory of last) {
    if (advisory.kind === "consumer_action") {
      t.say("end", advisory);
      break;
    }
  }
}
