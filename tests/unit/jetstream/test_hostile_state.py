"""Consumer states with valid checksums and hostile numbers: a start and a check take little time and memory."""

from __future__ import annotations

import json
import resource
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from tests.support.consumer_lists import begin_state
from tests.unit.jetstream.consumer.test_consumer_recovery import Restarting
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.fsck.check import StoreCheck
from pyjs.fsck.findings import DAMAGE, UNCHECKED
from pyjs.fsck.progress import Progress
from pyjs.jetstream.consumer.acks.pending import PendingAcks
from pyjs.jetstream.why.streams import why_away
from pyjs.store.format.meta import CHECKSUM, KIND_STATE, decode, encode, envelope_size

CONSUMER = "$G/streams/S/consumers/c.2"
FAST_S = 2.0  # seconds; an earlier version took minutes
SMALL = 64 << 20  # bytes; an earlier version took 1.2 GB
HUGE = 2**64 - 1


def number(value: int) -> bytes:
    """Encode a number as LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def change(kind: int, *numbers: int) -> bytes:
    return bytes([kind]) + b"".join(map(number, numbers))


@pytest.fixture
def js(tmp_path: Path) -> Restarting:
    """A stopped server with a stream of three messages and a consumer."""
    js = Restarting(tmp_path)
    js.fill(3)
    js.consumer()
    begin_state(js.stream("S").consumers["c"])
    js.node.stop()
    return js


def put_log(js: Restarting, deltas: Iterable[bytes]) -> int:
    """Write a log with these deltas after the consumer's snapshot; return its size in bytes."""
    path = js.store / CONSUMER / "log.1"
    data = path.read_bytes()[: envelope_size(path.read_bytes())]
    chain = CHECKSUM.unpack(data[-8:])[0]
    for delta in deltas:
        size = struct.pack("<I", len(delta))
        chain = xxhash.xxh64_intdigest(size + delta, chain)
        data += struct.pack("<IIQ", len(delta), 0, chain) + delta
    path.write_bytes(data)
    return len(data)


def put_snapshot(js: Restarting, **changed: Any) -> None:
    path = js.store / CONSUMER / "log.1"
    data = path.read_bytes()
    state = json.loads(decode(data[: envelope_size(data)], KIND_STATE, "")[1]["state"])
    envelope = encode(KIND_STATE, 1, {"state": json.dumps({**state, **changed}).encode()})
    path.write_bytes(envelope)
    path.with_name("snap.1").write_bytes(envelope)


def measured(call: Callable[[], Any]) -> tuple[Any, float, int]:
    """Return a call's result, its seconds, and the increase of the peak memory in bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    found = call()
    took = time.perf_counter() - began
    return found, took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def check(js: Restarting) -> Any:
    return StoreCheck(OsDisk(), str(js.store), Progress()).run()


HOSTILE: dict[str, list[bytes]] = {
    "many runs of many deliveries": [
        change(1, 1 + (at << 22), 1 + (at << 22), 1 << 22, 5) for at in range(3)
    ],
    "the same messages again and again": [change(1, 1, 1, 1 << 22, 5) * 12],
    "deliveries of all there can be": [change(1, 1, 1, HUGE - 1, 5)],
    "deliveries without end": [change(1, 4, 1, HUGE - 9, 5), change(2, 1, HUGE - 1)],
    "deliveries that begin again at 0": [change(1, HUGE - 1, HUGE - 1, 9, 5)],
    "acks without end": [change(1, 1, 1, 3, 5), change(2, 1, 1 << 40) * 400],
    "acks of the last sequences": [change(1, 1, 1, 3, 5), change(2, HUGE, HUGE)],
    "a number of two megabytes": [b"\x06" + b"\x80" * (2 << 20) + b"\x01"],
    "many numbers of two megabytes": [(b"\x06" + b"\x80" * 50_000 + b"\x01") * 40],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_log_of_huge_numbers_costs_neither_time_nor_memory(js: Restarting, name: str) -> None:
    # given
    put_log(js, HOSTILE[name])
    # when
    report, took, grown = measured(lambda: check(js))
    # then
    assert took < FAST_S
    assert grown < SMALL
    assert report.exit_code() in (0, 1)
    # when
    again, took, grown = measured(lambda: Restarting(js.store, js.clock))
    # then
    assert took < FAST_S
    assert grown < SMALL
    assert again.stream("S").store.msgs == 3
    assert "c" in again.stream("S").consumers
    again.fill(1)
    assert again.pull(batch=9, no_wait=True)[-1].seq == 4
    again.node.stop()


@pytest.mark.parametrize(
    "changed",
    [
        {"pending": [[1, 1, 5, 0, 4, 5]]},  # delivered 0 times
        {"pending": [[1, 1, 5, 1, 4, 5], [1, 1, 5, 1, 4, 5]]},
        {"pending": [[2, 1, 5, 1, 4, 5], [1, 1, 5, 1, 4, 5]]},
        {"pending": [[1, 1, 5, 1, 2, 5]]},
        {"pending": [[1, 1, 5, 1, 99, 5]]},
        {"pending": [[1, 1, 5, -1, 4, 5]]},
        {"spent": [[1, "x"]]},
        {"spent": [["x", 1]]},
        {"delivered": [HUGE + 1, 1]},
    ],
    ids=str,
)
def test_a_snapshot_that_cannot_be_makes_the_consumer_begin_again(
    js: Restarting, changed: dict[str, Any]
) -> None:
    put_snapshot(js, **changed)
    again = Restarting(js.store, js.clock)
    assert [m.seq for m in again.pull(batch=9, no_wait=True)] == [1, 2, 3]
    assert any("lost its state" in text for _, text in again.log.lines)
    again.node.stop()


@pytest.mark.parametrize("value", [1e300, HUGE, -1, "x", [1], None, True])
@pytest.mark.parametrize("key", ["next_seq", "delivered", "floor", "skips", "skips_end", "spent", "pending"])
def test_a_snapshot_with_any_value_is_checked_and_served(js: Restarting, key: str, value: object) -> None:
    put_snapshot(js, **{key: [value, value] if key in ("delivered", "floor") else value})
    assert check(js).exit_code() in (0, 1)
    again = Restarting(js.store, js.clock)
    again.fill(1)
    assert again.pull(batch=9, no_wait=True)[-1].seq == 4
    again.node.stop()


NEWER: dict[str, tuple[dict[str, Any], list[bytes], str]] = {
    "a change": (
        {},
        [change(1, 1, 1, 1, 5), change(12, 1)],
        "it has a change of kind 12, and this one reads 1 to 11",
    ),
    "a key": ({"colour": "red"}, [], "it has the unknown key 'colour'"),
    "a version": ({"version": 2}, [], "it has version 2, and this one reads 1"),
}


@pytest.mark.parametrize("name", NEWER)
def test_a_state_of_a_newer_version_takes_the_stream_offline_and_stays(js: Restarting, name: str) -> None:
    # given
    fields, deltas, problem = NEWER[name]
    reason = f"its state was written by a newer version of pyjs-server: {problem}"
    put_snapshot(js, **fields)
    put_log(js, deltas)
    before = files_of(js.store / CONSUMER)
    # when
    findings = check(js).all_findings()
    again = JetStreamFixture(js.options, now_ns=js.clock.now_ns())
    # then
    assert [(each.level, each.what) for each in findings] == [(UNCHECKED, reason)]
    assert again.api("STREAM.LIST")["offline"] == {"S": 'stopped - unsupported consumer "c"'}
    assert again.error("CONSUMER.INFO.S.c") == (500, 10195, f"consumer is offline: {reason}")
    assert reason in why_away(again.engine, "S")[0].text
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert again.error("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})[1] == 10195
    assert b"503" in again.ask("s.a").headers  # no responders: it takes no messages
    assert any(text.endswith(f'unsupported consumer "c": {reason}') for _, text in again.log.lines)
    again.node.stop()
    assert files_of(js.store / CONSUMER) == before


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_check_tells_of_a_log_that_a_start_does_not_believe(js: Restarting) -> None:
    put_log(js, HOSTILE["a number of two megabytes"])
    assert any(finding.level == DAMAGE for finding in check(js).all_findings())


def test_delays_in_falling_order_are_taken_over_fast() -> None:
    count = 100_000
    pending = PendingAcks([10])
    entries = [(seq, seq, 5, 1, 3, count - seq) for seq in range(1, count + 1)]
    _, took, _ = measured(lambda: pending.restore(entries))
    assert took < FAST_S
    assert pending.next_due() == 0 or pending.next_due() == 1
    assert [pending.expire_due(count) for _ in range(7)] == [[]] * 7  # in parts; earlier deadlines come first
    assert sorted(pending.queued()) == list(range(1, count + 1))


def test_a_clock_that_was_set_back_is_taken_over_fast() -> None:
    count = 100_000
    pending = PendingAcks([10])
    pending.restore([(seq, seq, 1000 + seq, 1, 3, 5_000_000 + seq) for seq in range(1, count + 1)])
    _, took, _ = measured(lambda: pending.sent_by(1000))
    assert took < FAST_S
    assert {due_at - sent_at for _, _, sent_at, _, _, due_at in pending.dump()} == {5_000_000 - 1000}
