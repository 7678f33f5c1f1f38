"""Streams with every feature, backed up on one server and restored on the other: they are equal and keep working.

Both servers run once for all tests; each test has its own stream names.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from tests.conformance.harness.both import running
from tests.conformance.harness.process import ServerProcess, peer_command
from tests.conformance.test_archives import CONFIG, seen
from tests.support import archives

PEER = peer_command()
pytestmark = [
    pytest.mark.skipif(
        PEER is None and "peer" not in os.environ.get("PYJS_REQUIRE", ""), reason="nats-server is not here"
    ),
    pytest.mark.timeout(120),
]
WAYS = [("peer", "ours"), ("ours", "peer")]
WITHIN_S = 30.0
POLL_S = 0.02  # between two checks; without it, two processes would be busy for seconds
Servers = dict[str, ServerProcess]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("servers")
    with (
        running(directory / "ours", "ours", CONFIG) as ours,
        running(directory / "peer", "peer", CONFIG) as peer,
    ):
        yield {"ours": ours, "peer": peer}


async def create(client: Client, name: str, **config: Any) -> None:
    answer = await archives.asked(client, f"STREAM.CREATE.{name}", {"name": name, **config})
    assert "error" not in answer, answer


async def add_consumer(client: Client, stream: str, name: str, **config: Any) -> None:
    config = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": stream, "config": config}
    answer = await archives.asked(client, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    assert "error" not in answer, answer


async def publish(client: Client, subject: str, data: bytes = b"", **headers: str) -> dict[str, Any]:
    """Publish a message, with `_` for `-` in names of headers; return the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()} or None
    answer = await client.request(subject, data, timeout=10, headers=named)
    return dict(json.loads(answer.data)) if answer.data else {}


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Repeat the check until it holds."""
    deadline = time.monotonic() + WITHIN_S
    while not await check():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(POLL_S)


async def last_of(client: Client, stream: str, subject: str) -> dict[str, Any]:
    answer = await archives.asked(client, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    return dict(answer.get("message", {}))


class Move:
    """Moves streams from one server to the other."""

    def __init__(self, servers: Servers, source: str, target: str) -> None:
        self.ports = servers[source].port, servers[target].port

    async def __aenter__(self) -> tuple[Client, Client, Callable[..., Awaitable[None]]]:
        self.clients = [await archives.connected(port) for port in self.ports]
        return self.clients[0], self.clients[1], self.move

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            await client.close()

    async def move(self, *names: str) -> None:
        """Back up and restore these streams; then they must be equal."""
        source, target = self.clients
        for name in names:
            before, backup = await seen(source, name), await archives.back_up(source, name)
            answer = await archives.restored(target, backup)
            assert "error" not in answer, answer
            after = await seen(target, name)
            assert after["messages"] == before["messages"]
            assert after["consumers"] == before["consumers"]
            assert after["state"] == before["state"]
            configs = [
                (await archives.asked(client, f"STREAM.INFO.{name}", {}))["config"] for client in self.clients
            ]
            assert configs[0] == configs[1]


def name_of(feature: str, source: str) -> str:
    return f"{feature}_{source}"


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_a_bucket_with_lifetimes_and_markers(servers: Servers, source: str, target: str) -> None:
    name = f"KV_{name_of('ttl', source)}"
    async with Move(servers, source, target) as (there, here, move):
        # given
        config = {
            "max_msgs_per_subject": 5,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "discard": "new",
        }
        ttl = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 5_000_000_000}
        await create(there, name, subjects=[f"$KV.{name}.>"], **config, **ttl)
        await publish(there, f"$KV.{name}.stays", b"1", Nats_TTL="never")
        await publish(there, f"$KV.{name}.hour", b"2", Nats_TTL="1h")
        await publish(there, f"$KV.{name}.purged", b"3")
        purge = {"KV_Operation": "PURGE", "Nats_Rollup": "sub", "Nats_TTL": "2h"}
        await publish(there, f"$KV.{name}.purged", b"", **purge)
        await publish(there, f"$KV.{name}.short", b"4", Nats_TTL="5s")
        # when
        await move(name)

        # then
        async def has_marker() -> bool:
            return int((await archives.stream_state(here, name))["last_seq"]) == 6

        await until(has_marker)
        assert (await last_of(here, name, f"$KV.{name}.stays"))["seq"] == 1
        assert (await last_of(here, name, f"$KV.{name}.hour"))["seq"] == 2


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_an_object_store(servers: Servers, source: str, target: str) -> None:
    bucket = name_of("files", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        store = await there.jetstream().create_object_store(bucket)
        data = os.urandom(700_000)
        await store.put("big", data)
        await store.put("small", b"x")
        await store.put("gone", b"y")
        await store.delete("gone")
        # when
        await move(f"OBJ_{bucket}")
        # then
        restored = await here.jetstream().object_store(bucket)
        assert (await restored.get("big")).data == data
        assert (await restored.get("small")).data == b"x"
        with pytest.raises(NotFoundError):
            await restored.get("gone")
        await restored.put("more", b"z")


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_a_mirror_and_a_stream_with_sources(servers: Servers, source: str, target: str) -> None:
    origin, mirror, sourced = (name_of(name, source) for name in ("origin", "mirror", "sourced"))
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, origin, subjects=[f"{origin}.>"])
        await create(there, mirror, mirror={"name": origin})
        transforms = [{"src": f"{origin}.a", "dest": f"{sourced}.a"}]
        await create(there, sourced, sources=[{"name": origin, "subject_transforms": transforms}])
        for number in range(40):
            await publish(there, f"{origin}.{'ab'[number % 2]}", b"%d" % number)

        def has(client: Client, name: str, wanted: int) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                return int((await archives.stream_state(client, name))["messages"]) == wanted

            return check

        await until(has(there, mirror, 40))
        await until(has(there, sourced, 20))
        # when
        await move(mirror, sourced, origin)
        # then
        await publish(here, f"{origin}.a", b"later")
        await until(has(here, mirror, 41))
        await until(
            has(here, sourced, 41)
        )  # a restored source counts as a new one: both servers copy its messages again
        assert (await archives.messages(here, mirror, 41))[-1][-1] == b"later"
        assert (await archives.messages(here, sourced, 41))[-1][-1] == b"later"


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_counters(servers: Servers, source: str, target: str) -> None:
    name = name_of("counter", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, name, subjects=[f"{name}.>"], allow_msg_counter=True, allow_direct=True)
        for step in ("5", "-7", "+123456789012345678901234567890"):
            await publish(there, f"{name}.a", Nats_Incr=step)
        await publish(there, f"{name}.b", Nats_Incr="1")
        # when
        await move(name)
        # then
        assert (await publish(here, f"{name}.a", Nats_Incr="1"))["val"] == "123456789012345678901234567889"
        assert (await publish(here, f"{name}.b", Nats_Incr="1"))["val"] == "2"


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_schedules(servers: Servers, source: str, target: str) -> None:
    name = name_of("plan", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, name, subjects=[f"{name}.>"], allow_msg_schedules=True, allow_msg_ttl=True)
        soon = (datetime.now(UTC) + timedelta(seconds=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
        goal = {"Nats_Schedule_Target": f"{name}.out", "Nats_Schedule_TTL": "1h"}
        await publish(there, f"{name}.plan.soon", b"soon", Nats_Schedule=f"@at {soon}", **goal)
        await publish(there, f"{name}.plan.daily", b"daily", Nats_Schedule="0 0 3 * * *", **goal)
        await publish(there, f"{name}.plan.often", b"often", Nats_Schedule="@every 1h", **goal)
        # when
        await move(name)

        # then
        async def has_fired() -> bool:
            return "seq" in await last_of(here, name, f"{name}.out")

        await until(has_fired)
        # the scheduled message is published soon
        assert (await last_of(here, name, f"{name}.out"))["data"] == "c29vbg=="
        assert "seq" not in await last_of(here, name, f"{name}.plan.soon")
        assert (await last_of(here, name, f"{name}.plan.daily"))["seq"] == 2


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_consumers_with_priority_groups(servers: Servers, source: str, target: str) -> None:
    name = name_of("groups", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, name, subjects=[f"{name}.>"])
        for number in range(10):
            await publish(there, f"{name}.a", b"%d" % number)
        group = {"priority_groups": ["jobs"]}
        await add_consumer(
            there, name, "pinned", priority_policy="pinned_client", priority_timeout=60_000_000_000, **group
        )
        await add_consumer(there, name, "overflow", priority_policy="overflow", **group)
        await add_consumer(there, name, "ranked", priority_policy="prioritized", **group)
        for consumer, wanted in (("pinned", 3), ("ranked", 2)):
            await pulled(there, name, consumer, wanted)
        # when
        await move(name)
        # then
        assert await pulled(here, name, "pinned", 2) == [4, 5]
        assert await pulled(here, name, "ranked", 2) == [3, 4]


async def pulled(client: Client, stream: str, consumer: str, count: int) -> list[int]:
    """Pull messages as the group `jobs` and acknowledge all but the last; return their sequences."""
    inbox = client.new_inbox()
    messages = await client.subscribe(inbox)
    body = {"batch": count, "expires": 10_000_000_000, "group": "jobs"}
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(body).encode(), inbox)
    found = []
    for number in range(count):
        message = await messages.next_msg(timeout=10)
        found.append(int(message.reply.split(".")[5]))
        if number < count - 1:
            await client.request(message.reply, b"+ACK", timeout=10)
    await messages.unsubscribe()
    return found


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_atomic_batches(servers: Servers, source: str, target: str) -> None:
    name = name_of("batch", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, name, subjects=[f"{name}.>"], allow_atomic=True, allow_batched=True)
        assert (await batch(there, name, 5))["count"] == 5
        await publish(there, f"{name}.9", b"alone", Nats_Msg_Id="id")
        # when
        await move(name)
        # then
        answer = await batch(here, name, 3)
        assert (answer["count"], answer["seq"]) == (3, 9)
        if target == "ours":  # nats-server forgets the ids of restored messages until its next start
            assert (await publish(here, f"{name}.9", b"alone", Nats_Msg_Id="id"))["duplicate"]


async def batch(client: Client, name: str, count: int) -> dict[str, Any]:
    """Publish a batch; return the answer to its commit."""
    answer: dict[str, Any] = {}
    for number in range(1, count + 1):
        headers = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": str(number)}
        if number == count:
            headers["Nats_Batch_Commit"] = "1"
        answer = await publish(client, f"{name}.{number}", b"%d" % number, **headers)
    return answer


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_paused_consumers(servers: Servers, source: str, target: str) -> None:
    name = name_of("paused", source)
    async with Move(servers, source, target) as (there, here, move):
        # given
        await create(there, name, subjects=[f"{name}.>"])
        await publish(there, f"{name}.a", b"x")
        later = (datetime.now(UTC) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await add_consumer(there, name, "resting", pause_until=later)
        # when
        await move(name)
        # then
        info = await archives.asked(here, f"CONSUMER.INFO.{name}.resting", None)
        assert info["paused"]
        assert info["config"]["pause_until"] == later


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_a_compressed_stream_of_several_files(servers: Servers, source: str, target: str) -> None:
    name = name_of("packed", source)
    async with Move(servers, source, target) as (there, _, move):
        # given
        await create(there, name, subjects=[f"{name}.>"], compression="s2", max_bytes=8 << 20)
        js = there.jetstream(publish_async_max_pending=1000)
        for number in range(3000):
            await js.publish_async(f"{name}.a", b"a line that repeats itself %d " % (number % 7) * 30)
        await js.publish_async_completed()
        # when, then
        await move(name)
