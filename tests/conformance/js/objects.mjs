// The object store view: blobs in chunks, links, changes of names, watches, seal.
export default async function objects(t, nc) {
  const jsm = await t.jetstreamManager(nc);
  const stores = t.objects(nc);
  const store = await stores.create("files", { description: "some files" });
  t.say("stream", (await jsm.streams.info("OBJ_files")).config);
  const text = (data) => data && new TextDecoder().decode(data);
  t.say("put", await store.putBlob({ name: "small", description: "s" }, new TextEncoder().encode("hello")));
  const large = new Uint8Array(300_000).map((_, n) => n % 251);
  const chunked = await store.putBlob({ name: "large", options: { max_chunk_size: 65536 } }, large);
  t.say("in chunks", chunked);
  t.say("info", await store.info("large"));
  const back = await store.getBlob("large");
  t.say("the same", back.length === large.length && back.every((byte, n) => byte === large[n]));
  t.say("get", text(await store.getBlob("small")));
  t.say("get none", await store.getBlob("none"));
  t.say("info of none", await store.info("none"));
  t.say("put again", await store.putBlob({ name: "small" }, new TextEncoder().encode("bye")));
  t.say("list", (await store.list()).sort((a, b) => (a.name < b.name ? -1 : 1)));
  t.say("link", await store.link("ln", await store.info("small")));
  t.say("through the link", text(await store.getBlob("ln")));
  await store.update("small", { name: "renamed", description: "another name" });
  t.say("renamed", await store.info("renamed"));
  await t.refused("update of none", store.update("none", { name: "x" }));
  t.say("delete", await store.delete("large"));
  t.say("deleted", await store.info("large"));
  const watch = await store.watch({ includeHistory: true });
  const seen = [];
  for await (const info of watch) {
    if (!info) {
      await store.putBlob({ name: "watched" }, new TextEncoder().encode("w"));
      continue;
    }
    seen.push([info.name, info.deleted ?? false, info.size]);
    if (info.name === "watched") break;
    if (seen.length === 99) break;
    if (!t.legacy && seen.length === 3) await store.putBlob({ name: "watched" }, new TextEncoder().encode("w"));
  }
  t.say("watch", seen);
  const { streamInfo, ...status } = await store.status();
  t.say("status", { bucket: status.bucket, size: status.size, sealed: status.sealed, storage: status.storage });
  t.say("status of the stream", streamInfo.state);
  t.say("sealed", (await store.seal()).sealed);
  await t.refused("put into the sealed one", store.putBlob({ name: "late" }, new TextEncoder().encode("x")));
  t.say("destroyed", await store.destroy());
}
