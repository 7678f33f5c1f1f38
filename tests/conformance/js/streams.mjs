// The manager: streams added, changed, listed, found, purged and deleted; messages read and erased.
export default async function streams(t, nc) {
  const js = t.jetstream(nc);
  const jsm = await t.jetstreamManager(nc);
  t.say("added", await jsm.streams.add({ name: "A", subjects: ["a.>"], description: "first", max_msgs_per_subject: 5 }));
  t.say("added again", (await jsm.streams.add({ name: "A", subjects: ["a.>"], description: "first", max_msgs_per_subject: 5 })).config);
  await t.refused("another configuration", jsm.streams.add({ name: "A", subjects: ["a.b"] }));
  await t.refused("overlap", jsm.streams.add({ name: "O", subjects: ["a.b"] }));
  await t.refused("bad subject", jsm.streams.add({ name: "O", subjects: ["o..b"] }));
  await t.refused("replicas", jsm.streams.add({ name: "O", subjects: ["o"], num_replicas: 3 }));
  t.say("updated", await jsm.streams.update("A", { subjects: ["a.>", "more"], max_age: t.nanos(3600_000), metadata: { k: "v" } }));
  await t.refused("storage cannot change", jsm.streams.update("A", { storage: t.StorageType.Memory }));
  await jsm.streams.add({ name: "B", subjects: ["b"], storage: t.StorageType.Memory, retention: t.RetentionPolicy.Workqueue });
  await jsm.streams.add({ name: "C", subjects: ["c"], discard: t.DiscardPolicy.New, max_msgs: 2 });
  t.say("names", await t.all(jsm.streams.names()));
  t.say("names with a subject", await t.all(jsm.streams.names("a.b")));
  t.say("list", (await t.all(jsm.streams.list())).map(({ config, state }) => ({ config, state })));
  t.say("list with a subject", (await t.all(jsm.streams.list("c"))).map(({ config }) => config.name));
  t.say("find", await jsm.streams.find("more"));
  await t.refused("find nothing", jsm.streams.find("nobody"));

  for (let n = 1; n <= 9; n++) await js.publish(`a.${n % 3}`, `${n}`);
  const stream = await jsm.streams.get("A");
  t.say("get", { name: stream.name, state: (await stream.info()).state, alternates: await stream.alternates() });
  t.say("subjects", (await jsm.streams.info("A", { subjects_filter: "a.>" })).state.subjects);
  const shown = (m) => m && { subject: m.subject, seq: m.seq, text: m.string(), time: m.time };
  t.say("getMessage by seq", shown(await jsm.streams.getMessage("A", { seq: 4 })));
  t.say("getMessage last", shown(await jsm.streams.getMessage("A", { last_by_subj: "a.1" })));
  t.say("getMessage next", shown(await jsm.streams.getMessage("A", { seq: 5, next_by_subj: "a.1" })));
  await t.refused("getMessage of none", jsm.streams.getMessage("A", { seq: 99 }));
  t.say("erased", await jsm.streams.deleteMessage("A", 4, true));
  t.say("deleted", await jsm.streams.deleteMessage("A", 6, false));
  await t.refused("deleted twice", jsm.streams.deleteMessage("A", 6));
  t.say("with deleted", (await jsm.streams.info("A", { deleted_details: true })).state);
  t.say("purged by subject", await jsm.streams.purge("A", { filter: "a.2", keep: 1 }));
  t.say("purged up to", await jsm.streams.purge("A", { seq: 3 }));
  t.say("purged but one", await jsm.streams.purge("A", { keep: 1 }));
  t.say("purged", await jsm.streams.purge("A"));
  t.say("empty", (await jsm.streams.info("A")).state);

  await js.publish("c", "1");
  await js.publish("c", "2");
  await t.refused("full", js.publish("c", "3"));
  await jsm.streams.update("C", { allow_direct: true });
  await js.publish("a.9", "direct");
  await jsm.streams.update("A", { allow_direct: true });
  t.say("direct", shown(await jsm.direct.getMessage("A", { last_by_subj: "a.9" })));
  t.say("direct batch", (await t.all(await jsm.direct.getBatch("C", t.legacy ? { multi_last: ["c"] } : { seq: 1, batch: 10 }))).map(shown));
  t.say("sealed", (await jsm.streams.update("C", { sealed: true })).config.sealed);
  await t.refused("purge of a sealed one", jsm.streams.purge("C"));
  t.say("stream deleted", await jsm.streams.delete("B"));
  await t.refused("deleted stream", jsm.streams.info("B"));
  await t.refused("strange name", jsm.streams.info("B.C"));
}
