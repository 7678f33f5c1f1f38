"""The size of a stream's directory depends on its stored messages, not on how many were published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from pyjs.core.sink import Keeping

MB = 1 << 20
SEGMENT = 8 * MB
ROUNDS = 120
BATCH = 100
PAYLOAD = b"x" * 4096  # 48 MB in total


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def keep_up(js: JetStreamFixture) -> None:
    """Do the work of the I/O threads: syncs, and rewrites of segments."""
    turn = js.node.turn_state
    while (unsynced := turn.take("unsynced")) or turn.upkeep:
        for stream in cast(list[Stream], unsynced):
            job = stream.begin_sync()
            if job is not None:
                stream.finish_sync(job())
        for store in cast("list[Keeping]", turn.take("upkeep")):
            while (job := store.begin_upkeep()) is not None:
                store.finish_upkeep(job())
                if isinstance(store, FileStore):
                    store.sync_now()
        js.turn()


def files(js: JetStreamFixture) -> list[Path]:
    return [path for path in Path(js.directory.name).rglob("S/msgs/*") if path.is_file()]


def size(js: JetStreamFixture) -> int:
    """Return the bytes that the stream's messages use on the disk."""
    return sum(path.stat().st_blocks * 512 for path in files(js))


def publish(js: JetStreamFixture, subjects: list[str]) -> None:
    js.user.send(
        b"".join(b"PUB %b %d\r\n%b\r\n" % (each.encode(), len(PAYLOAD), PAYLOAD) for each in subjects)
    )


def test_a_work_queue_that_stays_small_keeps_a_small_directory(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], storage="file", retention="workqueue")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    js.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    js.user.send(b"SUB in 9\r\n")
    largest = 0
    for number in range(ROUNDS):
        publish(js, ["s"] * BATCH)
        js.user.take()
        js.user.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c in %d\r\n%d\r\n" % (len(str(BATCH)), BATCH))
        frames = js.user.frames()
        assert len(frames) == BATCH
        js.user.send(b"".join(b"PUB %b 4\r\n+ACK\r\n" % frame.reply for frame in frames))
        if number % 10 == 9:
            keep_up(js)
            largest = max(largest, size(js))

    assert js.state("S")["messages"] == 0
    assert largest <= 3 * SEGMENT // 2
    assert len(files(js)) <= 6


def test_a_bucket_with_a_few_keys_keeps_a_small_directory(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.>"], storage="file", max_msgs_per_subject=1)
    largest = 0
    for number in range(ROUNDS):
        publish(js, [f"s.hot.{key}" for key in range(BATCH - 1)] + [f"s.cold.{number}"])
        if number % 10 == 9:
            keep_up(js)
            largest = max(largest, size(js))

    assert js.state("S")["messages"] == ROUNDS + BATCH - 1
    assert largest <= 2 * SEGMENT + 2 * (ROUNDS + BATCH) * len(PAYLOAD)
    assert js.restart().state("S")["messages"] == ROUNDS + BATCH - 1


def test_a_stream_that_forgets_by_age_keeps_a_small_directory(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], storage="file", max_age=8_000_000_000)
    largest = 0
    for number in range(ROUNDS):
        publish(js, ["s"] * BATCH)
        js.advance(seconds=1)
        if number % 10 == 9:
            keep_up(js)
            largest = max(largest, size(js))

    assert js.state("S")["messages"] <= 8 * BATCH
    assert largest <= 2 * SEGMENT
