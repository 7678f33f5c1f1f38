"""Streams with every feature of storage, made over the API of any server, and everything of them that clients see."""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, ObjectStoreConfig
from tests.support import archives
from tests.support.archives import asked

SMALL_BLOCKS = 1 << 20  # bytes of max_bytes: nats-server then uses blocks of 256 KiB
PAYLOAD = b"one loaf of bread, sliced and wrapped; "


async def fill(client: Client, count: int = 6000, ttl: bool = True) -> list[str]:
    """Create the streams; return their names. `ttl`: the server knows TTLs of messages."""
    js = client.jetstream(publish_async_max_pending=4000, timeout=30)
    await _orders(client, js, count)
    await _packed(client, js)
    await _purged(client, js)
    await _queue(client, js)
    await _limited(client, js)
    await _buckets(js)
    names = ["ORDERS", "PACKED", "PURGED", "EMPTY", "QUEUE", "LIMITED", "KV_bakery", "OBJ_loaves"]
    if ttl:
        await _with_ttl(client)
        names.append("TTL")
    await client.flush()
    return names


async def seen(client: Client, name: str) -> dict[str, Any]:
    """Return everything of a stream that moving it must keep."""
    state = await archives.stream_state(client, name)
    del state["last_ts"]  # an archive has no time of a last message that was deleted
    consumers = await archives.consumer_states(client, name)
    messages = await _messages(client, name)
    return {"state": state, "consumers": consumers, "messages": messages}


async def _messages(client: Client, name: str) -> list[dict[str, Any]]:
    """Return every message, read one by one: a consumer would change streams with interest."""
    found: list[dict[str, Any]] = []
    seq = 0
    while True:
        answer = await asked(client, f"STREAM.MSG.GET.{name}", {"seq": seq + 1, "next_by_subj": ">"})
        if "error" in answer:
            return found
        found.append(answer["message"])
        seq = answer["message"]["seq"]


async def created(client: Client, name: str, **config: object) -> None:
    """Create a file stream."""
    answer = await asked(client, f"STREAM.CREATE.{name}", {"name": name, "storage": "file", **config})
    assert "error" not in answer, answer


async def _orders(client: Client, js: JetStreamContext, count: int) -> None:
    """Deletes, headers, and three consumers: pull with unacknowledged deliveries, push, two filters."""
    await created(client, "ORDERS", subjects=["orders.>"], max_bytes=SMALL_BLOCKS)
    for number in range(count):
        headers = {"Number": str(number)} if number % 3 == 0 else None
        payload = PAYLOAD * (number % 3)
        await js.publish_async(f"orders.{number % 17}.new", payload, headers=headers)
    await js.publish_async_completed()
    for seq in (2, 7, count // 2, count // 2 + 1, count - 1, count):
        await asked(client, "STREAM.MSG.DELETE.ORDERS", {"seq": seq, "no_erase": True})
    await asked(client, "STREAM.MSG.DELETE.ORDERS", {"seq": count - 5})
    await asked(client, "STREAM.PURGE.ORDERS", {"filter": "orders.3.new", "keep": 9})
    last = (await archives.stream_state(client, "ORDERS"))["last_seq"]
    await asked(client, "STREAM.PURGE.ORDERS", {"seq": last - count // 2})
    await _consume(js, "ORDERS", ConsumerConfig(durable_name="bakery", ack_wait=600), 60)
    two = ConsumerConfig(durable_name="two", filter_subjects=["orders.1.>", "orders.5.>"], ack_wait=600)
    await _consume(js, "ORDERS", two, 20)
    fresh = ConsumerConfig(durable_name="fresh", deliver_subject="never.heard", ack_policy=AckPolicy.EXPLICIT)
    await js.add_consumer("ORDERS", fresh)
    pushed = client.new_inbox()
    subscription = await client.subscribe(pushed)
    push = ConsumerConfig(durable_name="push", deliver_subject=pushed, ack_wait=600, max_ack_pending=30)
    push.ack_policy = AckPolicy.EXPLICIT
    await js.add_consumer("ORDERS", push)
    for at in range(20):
        message = await subscription.next_msg(timeout=30)
        if at % 3:
            await message.ack_sync(timeout=30)
    await subscription.unsubscribe()


async def _consume(js: JetStreamContext, stream: str, config: ConsumerConfig, taken: int) -> None:
    """Create a pull consumer, take messages, and acknowledge some of them."""
    config.ack_policy = AckPolicy.EXPLICIT
    await js.add_consumer(stream, config)
    assert config.durable_name is not None
    puller = await js.pull_subscribe_bind(config.durable_name, stream)
    for at, message in enumerate(await puller.fetch(taken, timeout=30)):
        if at < taken // 2 or at % 4 == 0:
            await message.ack_sync(timeout=30)


async def _packed(client: Client, js: JetStreamContext) -> None:
    """Compressed blocks."""
    await created(client, "PACKED", subjects=["packed.*"], compression="s2", max_bytes=SMALL_BLOCKS)
    for number in range(9000):
        await js.publish_async(f"packed.{number % 5}", PAYLOAD * 2)
    await js.publish_async_completed()
    for seq in (8001, 8002, 8500):
        await asked(client, "STREAM.MSG.DELETE.PACKED", {"seq": seq})


async def _purged(client: Client, js: JetStreamContext) -> None:
    """A stream with messages after a purge, and one without."""
    for name in ("PURGED", "EMPTY"):
        await created(client, name, subjects=[f"{name.lower()}.*"])
        for number in range(30):
            await js.publish(f"{name.lower()}.{number % 2}", b"before")
        await asked(client, f"STREAM.PURGE.{name}", {})
    for _ in range(5):
        await js.publish("purged.1", b"after")


async def _queue(client: Client, js: JetStreamContext) -> None:
    """A work queue: acknowledged messages are gone."""
    await created(client, "QUEUE", subjects=["queue.*"], retention="workqueue")
    for number in range(200):
        await js.publish_async(f"queue.{number % 3}", b"job %d" % number)
    await js.publish_async_completed()
    await _consume(js, "QUEUE", ConsumerConfig(durable_name="worker", ack_wait=600), 50)


async def _limited(client: Client, js: JetStreamContext) -> None:
    """Messages that limits removed."""
    await created(client, "LIMITED", subjects=["limited.*"], max_msgs=300, max_msgs_per_subject=40)
    for number in range(1000):
        await js.publish_async(f"limited.{number % 10}", b"%d" % number)
    await js.publish_async_completed()


async def _buckets(js: JetStreamContext) -> None:
    """A bucket of keys with history and deletes, and one of objects."""
    bucket = await js.create_key_value(KeyValueConfig(bucket="bakery", history=5))
    for number in range(60):
        await bucket.put(f"bread.{number % 7}", b"%d" % number)
    await bucket.delete("bread.3")
    await bucket.purge("bread.4")
    objects = await js.create_object_store("loaves", config=ObjectStoreConfig(description="photographs"))
    await objects.put("rye", PAYLOAD * 20_000)
    await objects.put("wheat", PAYLOAD * 10)
    await objects.delete("wheat")


async def _with_ttl(client: Client) -> None:
    """Messages with TTLs that are far away, and one that never ends."""
    await created(client, "TTL", subjects=["ttl.*"], allow_msg_ttl=True)
    for number in range(20):
        ttl = "never" if number == 3 else "1h"
        await client.request(f"ttl.{number}", b"x", headers={"Nats-TTL": ttl}, timeout=30)
