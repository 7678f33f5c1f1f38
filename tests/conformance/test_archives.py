"""Our archives of streams restore on nats-server, and its archives here, with equal messages and consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, StorageType
from tests.conformance.harness.both import needs_peer, running
from tests.support import archives

pytestmark = [
    needs_peer,
    pytest.mark.timeout(240),
]
CONFIG = 'jetstream { store_dir: "<<store>>", max_file: 2G, max_mem: 1G }\nmax_payload: 2MB\n'
MESSAGES = 50_000
ACKED_EVERY = 1000  # messages; without acknowledgements, nats-server would drop those over 10,000 that wait
WAYS = [("peer", "ours"), ("ours", "peer"), ("ours", "ours")]


async def fill(client: Client, count: int, storage: StorageType = StorageType.FILE) -> None:
    """Create the stream S with deletes and headers, and three consumers in different states."""
    js = client.jetstream(timeout=30)
    await js.add_stream(name="S", subjects=["s.>"], storage=storage, allow_direct=True)
    for number in range(count):
        headers = {"Number": str(number), "Nats-Msg-Id": f"m{number}"} if number % 3 == 0 else None
        is_acked = (number + 1) % ACKED_EVERY == 0 or number + 1 == count
        send = js.publish if is_acked else client.publish
        await send(f"s.{number % 17}", b"%d " % number * (number % 9), headers=headers)
    for seq in (1, 2, 7, count // 2, count // 2 + 1, count):
        await archives.asked(client, "STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
    for name, filtered in (("first", "s.>"), ("odd", "s.3"), ("fresh", None)):
        config = ConsumerConfig(
            durable_name=name, ack_policy=AckPolicy.EXPLICIT, ack_wait=600, filter_subject=filtered
        )
        await js.add_consumer("S", config)
    for name, taken in (("first", 40), ("odd", 5)):
        puller = await js.pull_subscribe_bind(name, "S")
        fetched = await puller.fetch(taken, timeout=30)
        for at, message in enumerate(fetched):
            if at < taken // 2 or at % 4 == 0:
                await message.ack_sync(timeout=30)
    await client.flush()


async def seen(client: Client, name: str = "S") -> dict[str, Any]:
    """Return everything of a stream that a restore must preserve."""
    state = await archives.stream_state(client, name)
    del state["last_ts"]  # an archive does not have the time of a deleted last message
    consumers = await archives.consumer_states(client, name)
    return {
        "state": state,
        "consumers": consumers,
        "messages": await archives.messages(client, name, state["messages"]),
    }


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_stream_is_the_same_after_a_restore(tmp_path: Path, source: str, target: str) -> None:
    async def back_up(port: int) -> tuple[archives.Backup, dict[str, Any]]:
        client = await archives.connected(port)
        await fill(client, MESSAGES)
        backup, before = await archives.back_up(client, "S"), await seen(client)
        await client.close()
        return backup, before

    async def restore(port: int, backup: archives.Backup) -> tuple[dict[str, Any], dict[str, Any]]:
        client = await archives.connected(port)
        answer = await archives.restored(client, backup)
        assert "error" not in answer, answer
        after = await seen(client)
        await client.close()
        return answer, after

    # given
    with running(tmp_path / "source", source, CONFIG) as server:
        backup, before = asyncio.run(back_up(server.port))
    # when
    with running(tmp_path / "target", target, CONFIG) as server:
        answer, after = asyncio.run(restore(server.port, backup))
    # then
    assert backup.status in ("", "204")  # there is no status if the archive is smaller than one chunk
    assert answer["state"]["messages"] == MESSAGES - 6
    assert after["messages"] == before["messages"]
    assert after["consumers"] == before["consumers"]
    assert after["state"] == before["state"]
