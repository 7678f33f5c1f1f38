"""The journeys of a first user, with nats-py against a running server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError
from tests.conformance.harness.process import ServerProcess

StartServer = Callable[..., ServerProcess]


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Client]:
    client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


def jsz(server: ServerProcess, arguments: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.http_port}/jsz?{arguments}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


async def test_orders_survive_a_restart_with_their_ack_floor(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="ORDERS", subjects=["orders.>"])
        for number in (b"1", b"2", b"3"):
            await js.publish("orders.new", number)
        await js.add_consumer("ORDERS", ConsumerConfig(durable_name="order-processor", ack_policy="explicit"))
        subscription = await js.pull_subscribe_bind("order-processor", "ORDERS")
        messages = await subscription.fetch(2, timeout=60)
        for message in messages:
            await message.ack_sync()
        assert [message.data for message in messages] == [b"1", b"2"]

    server.stop()
    server.start()

    async with connected(server) as client:
        js = client.jetstream()
        info = await js.consumer_info("ORDERS", "order-processor")
        assert info.ack_floor is not None
        assert (info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending) == (2, 0, 1)
        subscription = await js.pull_subscribe_bind("order-processor", "ORDERS")
        assert [message.data for message in await subscription.fetch(1, timeout=60)] == [b"3"]
        account = jsz(server, "streams=1&consumers=1")["account_details"][0]
        detail = account["stream_detail"][0]
        assert detail["name"] == "ORDERS"
        assert detail["state"]["messages"] == 3
        assert detail["consumer_detail"][0]["ack_floor"]["stream_seq"] == 2


async def test_a_stream_takes_what_its_subjects_and_limits_allow(start_server: StartServer) -> None:
    server = start_server("max_payload: 4MB")
    async with connected(server) as client:
        js = client.jetstream()
        config = StreamConfig(
            name="ORDERS2", subjects=["order.*"], max_age=7 * 86400, max_msg_size=1 << 20, num_replicas=1
        )
        await js.add_stream(config)
        assert (await js.publish("order.new", b"1")).seq == 1
        with pytest.raises(NoRespondersError):
            await client.request("order.a.b", b"2", timeout=60)
        with pytest.raises(APIError) as refused:
            await js.publish("order.new", b"x" * ((1 << 20) + 1))
        assert refused.value.err_code == 10054
        assert (await js.stream_info("ORDERS2")).state.messages == 1


async def test_a_work_queue_gives_each_message_once(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(
            StreamConfig(
                name="WORK",
                subjects=["work.*"],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.MEMORY,
            )
        )
        for number in range(100):
            await js.publish("work.item", b"%d" % number)
        subscription = await js.pull_subscribe("work.*", "worker")
        seen = []
        while len(seen) < 100:
            for message in await subscription.fetch(25, timeout=60):
                seen.append(int(message.data))
                await message.ack_sync()
        assert seen == list(range(100))
        assert (await js.stream_info("WORK")).state.messages == 0


async def test_a_push_subscription_gets_old_and_new_messages(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        await js.publish("s.a", b"old")
        subscription = await js.subscribe("s.*", durable="d")
        await js.publish("s.b", b"new")
        received = [await subscription.next_msg(timeout=60) for _ in range(2)]
        for message in received:
            await message.ack()
        assert [(message.subject, message.data) for message in received] == [("s.a", b"old"), ("s.b", b"new")]


async def test_a_duplicate_id_is_stored_once_also_after_a_restart(start_server: StartServer) -> None:
    server = start_server()
    for _ in range(2):
        async with connected(server) as client:
            js = client.jetstream()
            await js.add_stream(name="D", subjects=["d"])
            acknowledged = await js.publish("d", b"x", headers={"Nats-Msg-Id": "one"})
            again = await js.publish("d", b"x", headers={"Nats-Msg-Id": "one"})
            assert (acknowledged.seq, again.seq, again.duplicate) == (1, 1, True)
        server.kill()
        server.start()


async def test_key_value_round_trip(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        bucket = await js.create_key_value(bucket="cfg", history=5)
        assert await bucket.put("a", b"1") == 1
        assert await bucket.create("b", b"2") == 2
        assert await bucket.update("a", b"3", last=1) == 3
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.update("a", b"4", last=1)
        assert (await bucket.get("a")).value == b"3"
        assert sorted(await bucket.keys()) == ["a", "b"]
        assert [entry.value for entry in await bucket.history("a")] == [b"1", b"3"]
        await bucket.delete("a")
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")
        await bucket.purge("b")
        assert (await bucket.status()).values == 4
    server.kill()
    server.start()
    async with connected(server) as client:
        bucket = await client.jetstream().key_value("cfg")
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")
        assert await bucket.create("a", b"5") > 4


async def test_key_value_watch_sees_changes(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        bucket = await js.create_key_value(bucket="w")
        await bucket.put("k.1", b"1")
        watcher = await bucket.watchall()
        first = await watcher.updates(timeout=60)
        assert first is not None
        assert (first.key, first.value) == ("k.1", b"1")
        assert await watcher.updates(timeout=60) is None
        await bucket.put("k.2", b"2")
        second = await watcher.updates(timeout=60)
        assert second is not None
        assert (second.key, second.value) == ("k.2", b"2")


async def test_object_store_round_trip(start_server: StartServer) -> None:
    server = start_server()
    data = bytes(range(256)) * 4096
    async with connected(server) as client:
        store = await client.jetstream().create_object_store("files")
        await store.put("big.bin", data)
        await store.put("small.txt", b"hello")
    server.stop()
    server.start()
    async with connected(server) as client:
        store = await client.jetstream().object_store("files")
        assert (await store.get("big.bin")).data == data
        assert sorted(info.name for info in await store.list()) == ["big.bin", "small.txt"]
        await store.delete("small.txt")
        assert [info.name for info in await store.list() if not info.deleted] == ["big.bin"]


async def test_an_ephemeral_consumer_goes_after_its_threshold(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="E", subjects=["e"])
        info = await js.add_consumer("E", ConsumerConfig(inactive_threshold=0.2, ack_policy="explicit"))
        assert info.name
        events = await client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.E.{info.name}")
        await events.next_msg(timeout=60)
        assert await js.consumers_info("E") == []
