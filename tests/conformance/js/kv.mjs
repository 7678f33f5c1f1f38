// The key-value view: values, history, revisions, deletes, watches, status.
export default async function kv(t, nc) {
  const kvs = t.kvs(nc);
  const jsm = await t.jetstreamManager(nc);
  const bucket = await kvs.create("prefs", { history: 4, description: "what they like", maxValueSize: 256 });
  t.say("stream", (await jsm.streams.info("KV_prefs")).config);
  const entry = (e) =>
    e && { key: e.key, text: e.string(), revision: e.revision, operation: e.operation, delta: e.delta, created: e.created, length: e.length };
  t.say("put", [await bucket.put("a", "1"), await bucket.put("b.c", "2"), await bucket.put("a", "3")]);
  t.say("get", entry(await bucket.get("a")));
  t.say("get a revision", entry(await bucket.get("a", { revision: 1 })));
  t.say("get of another key", await bucket.get("a", { revision: 2 }));
  t.say("get none", await bucket.get("none"));
  t.say("create", await bucket.create("new", "n"));
  await t.refused("create again", bucket.create("new", "n"));
  t.say("update", await bucket.update("new", "m", 4));
  await t.refused("update of an old revision", bucket.update("new", "l", 4));
  await t.refused("put of an old revision", bucket.put("new", "l", { previousSeq: 1 }));
  await t.refused("too large", bucket.put("big", "x".repeat(300)));
  await t.refused("strange key", bucket.put("a b", "x"));
  await bucket.delete("a");
  t.say("deleted", entry(await bucket.get("a")));
  t.say("create over the mark", await bucket.create("a", "4"));
  await bucket.delete("b.c", { previousSeq: 2 });
  await t.refused("delete of an old revision", bucket.delete("new", { previousSeq: 1 }));
  t.say("keys", (await t.all(await bucket.keys())).sort());
  t.say("keys of a filter", await t.all(await bucket.keys("ne*")));
  const history = await bucket.history();
  t.say("history", (await t.all(history)).map(entry));
  await bucket.purge("a");
  t.say("history after the purge", (await t.all(await bucket.history({ key: "a" }))).map(entry));

  const watch = await bucket.watch();
  const seen = [];
  for await (const e of watch) {
    seen.push(entry(e));
    if (seen.length === 3) await bucket.put("w", "1");
    if (seen.length === 4) await bucket.put("w", "2");
    if (seen.length === 5) break;
  }
  t.say("watch", seen);
  const updates = await bucket.watch({ key: "w", include: "updates" });
  await bucket.put("v", "0");
  await bucket.put("w", "3");
  for await (const e of updates) {
    t.say("update seen", entry(e));
    break;
  }
  for (let n = 4; n < 10; n++) await bucket.put("w", `${n}`);
  t.say("four are kept", (await t.all(await bucket.history({ key: "w" }))).map((e) => e.string()));
  const { streamInfo, ...status } = await bucket.status();
  t.say("status", { bucket: status.bucket, values: status.values, history: status.history, size: status.size });
  t.say("status of the stream", streamInfo);
  const open = await kvs.open("prefs");
  t.say("opened", (await open.get("w")).string());
  if (t.legacy) await bucket.purgeDeletes();
  t.say("destroyed", await bucket.destroy());
  await t.refused("gone", jsm.streams.info("KV_prefs"));
}
