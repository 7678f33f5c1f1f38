"""Copies of streams on three real servers of both kinds: mirrors, buckets, objects, archives, numbers of replicas.

A client library makes them as an application does. In `make cluster-jetstream`, leaders are killed meanwhile; the
behaviour of copies in that case is also tested on a simulated network (tests/unit/jetstream/member).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from raft.tests.conftest import is_here
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command
from tests.support.archives import back_up, restored

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

# Elections take 0.3 s: if servers get no processor for that long, leaders change all the time.
kills_leaders = pytest.mark.skipif(
    not os.environ.get("PYJS_CLUSTER_PROCESSES"),
    reason="kills of three real processes: make cluster-jetstream",
)

JETSTREAM = 'jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }'
SECONDS = 60
Result = TypeVar("Result")


# With nats-server, each election takes seconds, and five of these scenes take two minutes.
SERVERS = ("ours", "peer") if os.environ.get("PYJS_CLUSTER_PEER") else ("ours",)


@pytest.fixture(scope="module", params=SERVERS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThreeServers]:
    command = our_command() if request.param == "ours" else peer_command()
    if command is None:
        pytest.skip("nats-server is not here")
    with three(command, tmp_path_factory.mktemp("copies"), JETSTREAM) as running:
        for name in NAMES:
            running.wait_page(name, "/jsz", lambda page: page.get("meta_cluster", {}).get("leader"))
            running.wait_healthy(name)
        yield running


def play(servers: ThreeServers, scene: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Play a scene with a client that knows the addresses of all servers."""

    async def scene_with_client() -> None:
        urls = [f"nats://127.0.0.1:{servers.server(name).port}" for name in NAMES]
        client = await nats.connect(urls, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        try:
            await asyncio.wait_for(scene(client), 4 * SECONDS)
        finally:
            await client.close()

    asyncio.run(scene_with_client())


async def until(ask: Callable[[], Awaitable[Result]], holds: Callable[[Result], object]) -> Result:
    """Repeat a request until its answer is right; while leaders change, errors count as answers."""
    deadline, last = time.monotonic() + SECONDS, None
    while time.monotonic() < deadline:
        try:
            last = await ask()
            if holds(last):
                return last
        except (NatsError, TimeoutError) as error:
            last = error
        await asyncio.sleep(0.1)  # polling: no event signals the requested state
    raise AssertionError(last)


async def messages_of(js: JetStreamContext, name: str, count: int) -> api.StreamInfo:
    """Wait until a stream has `count` messages."""
    return await until(lambda: js.stream_info(name), lambda info: info.state.messages == count)


async def kill_leader(servers: ThreeServers, js: JetStreamContext, name: str) -> None:
    """Kill the leader of a stream, and start it again once another server is the leader."""
    info = await until(lambda: js.stream_info(name), lambda info: info.cluster and info.cluster.leader)
    assert info.cluster is not None
    lost = info.cluster.leader
    assert lost is not None
    servers.server(lost).kill()
    await until(
        lambda: js.stream_info(name),
        lambda info: info.cluster and info.cluster.leader not in (None, "", lost),
    )
    servers.server(lost).start()
    await asyncio.to_thread(servers.wait_healthy, lost)


async def put(js: JetStreamContext, subject: str, data: bytes) -> None:
    """Publish until the message is acknowledged; an id prevents that it is stored twice."""
    headers = {"Nats-Msg-Id": f"{subject} {data!r}"}
    await until(lambda: js.publish(subject, data, timeout=2, headers=headers), lambda ack: ack.seq)


@kills_leaders
def test_a_bucket_and_its_mirror_outlive_their_leaders(servers: ThreeServers) -> None:
    async def scene(client: Client) -> None:
        js = client.jetstream(timeout=5)
        bucket = await until(
            lambda: js.create_key_value(api.KeyValueConfig(bucket="K", history=3, replicas=3)), lambda _: True
        )
        mirror = api.StreamConfig(
            name="KV_M", mirror=api.StreamSource(name="KV_K"), num_replicas=3, max_msgs_per_subject=3
        )
        await until(lambda: js.add_stream(mirror), lambda _: True)
        for number in range(30):
            await put(js, f"$KV.K.key{number % 10}", b"%d" % number)
            if number in (10, 20):
                await kill_leader(servers, js, "KV_K" if number == 10 else "KV_M")
        assert (await messages_of(js, "KV_K", 30)).state.last_seq == 30
        assert (await messages_of(js, "KV_M", 30)).state.last_seq == 30
        for number in range(10):
            entry = await until(lambda number=number: bucket.get(f"key{number}"), lambda _: True)  # type: ignore[misc]
            assert entry.value == b"%d" % (20 + number)
            copy = await js.get_last_msg("KV_M", f"$KV.K.key{number}")
            assert (copy.seq, copy.data) == (entry.revision, entry.value)

    play(servers, scene)


@kills_leaders
def test_an_object_is_read_from_any_server_and_its_store_is_copied(servers: ThreeServers) -> None:
    data = bytes(range(256)) * 4096

    async def scene(client: Client) -> None:
        js = client.jetstream(timeout=5)
        store = await until(
            lambda: js.create_object_store("O", config=api.ObjectStoreConfig(replicas=3)), lambda _: True
        )
        info = await until(lambda: store.put("big", data), lambda _: True)
        copied = api.StreamConfig(name="C", sources=[api.StreamSource(name="OBJ_O")], num_replicas=3)
        await until(lambda: js.add_stream(copied), lambda _: True)
        stored = (await js.stream_info("OBJ_O")).state.messages
        await kill_leader(servers, js, "OBJ_O")
        found = await until(lambda: store.get("big"), lambda _: True)
        assert found.data == data
        assert found.info.digest == info.digest
        await kill_leader(servers, js, "C")
        assert (await messages_of(js, "C", stored)).sources is not None

    play(servers, scene)


@kills_leaders
def test_a_source_is_copied_once_into_one_replica_and_into_three(servers: ThreeServers) -> None:
    async def scene(client: Client) -> None:
        js = client.jetstream(timeout=5)
        origin = api.StreamConfig(name="A", subjects=["a.>"], num_replicas=1)
        await until(lambda: js.add_stream(origin), lambda _: True)
        for replicas in (1, 3):
            config = api.StreamConfig(
                name=f"S{replicas}", sources=[api.StreamSource(name="A")], num_replicas=replicas
            )
            await until(lambda config=config: js.add_stream(config), lambda _: True)  # type: ignore[misc]
        for number in range(20):
            await put(js, "a.x", b"%d" % number)
            if number == 10:
                await kill_leader(servers, js, "S3")
        for name in ("S1", "S3"):
            await messages_of(js, name, 20)
            found = [await js.get_msg(name, seq) for seq in range(1, 21)]
            assert [each.data for each in found] == [b"%d" % number for number in range(20)]

    play(servers, scene)


def test_the_number_of_replicas_goes_down_and_up_with_everything(servers: ThreeServers) -> None:
    async def scene(client: Client) -> None:
        js = client.jetstream(timeout=5)
        config = api.StreamConfig(name="R", subjects=["r.>"], num_replicas=3)
        await until(lambda: js.add_stream(config), lambda _: True)
        consumer = api.ConsumerConfig(durable_name="d", ack_policy=api.AckPolicy.EXPLICIT)
        await until(lambda: js.add_consumer("R", consumer), lambda _: True)
        count = 0
        for replicas in (1, 3, 1):
            for _ in range(10):
                await put(js, "r.x", b"%d" % count)
                count += 1
            config.num_replicas = replicas
            info = await until(lambda: js.update_stream(config), lambda _: True)
            assert info.config.num_replicas == replicas
            await messages_of(js, "R", count)
            subscription = await js.pull_subscribe_bind("d", "R")
            fetched = await until(lambda subscription=subscription: subscription.fetch(1, timeout=2), len)  # type: ignore[misc]
            await fetched[0].ack_sync()
            await subscription.unsubscribe()
        left = await until(lambda: js.consumer_info("R", "d"), lambda info: info.num_ack_pending == 0)
        assert left.ack_floor is not None
        assert left.ack_floor.stream_seq == 3
        assert left.num_pending == count - 3

    play(servers, scene)


def test_an_archive_is_restored_with_replicas_and_consumers(servers: ThreeServers) -> None:
    async def scene(client: Client) -> None:
        js = client.jetstream(timeout=5)
        config = api.StreamConfig(name="B", subjects=["b.>"], num_replicas=3)
        await until(lambda: js.add_stream(config), lambda _: True)
        consumer = api.ConsumerConfig(durable_name="d", ack_policy=api.AckPolicy.EXPLICIT)
        await until(lambda: js.add_consumer("B", consumer), lambda _: True)
        for number in range(50):
            await put(js, "b.x", b"%d" % number)
        backup = await back_up(client, "B")
        await until(lambda: js.delete_stream("B"), lambda _: True)
        answer = await restored(client, backup)
        assert answer["config"]["num_replicas"] == 3, answer
        assert answer["state"]["messages"] == 50
        await until(lambda: js.consumer_info("B", "d"), lambda info: info.num_pending == 50)
        await until(
            lambda: js.stream_info("B"),
            lambda info: (
                info.cluster
                and len(info.cluster.replicas or []) == 2
                and all(each.current for each in info.cluster.replicas or [])
            ),
        )
        first = (await js.stream_info("B")).cluster
        assert first is not None

        async def step_down() -> api.StreamInfo:
            info = await js.stream_info("B")
            if info.cluster and info.cluster.leader == first.leader:
                await client.request("$JS.API.STREAM.LEADER.STEPDOWN.B", b"", timeout=5)
            return info

        await until(
            step_down, lambda info: info.cluster and info.cluster.leader not in (None, "", first.leader)
        )
        await put(js, "b.x", b"more")
        await messages_of(js, "B", 51)

    play(servers, scene)
