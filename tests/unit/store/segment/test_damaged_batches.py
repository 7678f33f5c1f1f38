"""A flipped byte in acknowledged batches costs only the message that contains it, and the loss is reported."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.node import options_with_store
from tests.unit.store.segment_files import MSG, records

from pyjs.store.segment.scan import scan_segment
from pyjs.testing import RawClient, VirtualNode

BATCH = 6
EVERY = 23  # one byte in this many is flipped for a whole start
SECTOR = 512
PAGE = 4096
SEGMENT = Path("$G/streams/S/msgs/00000001.seg")


def ask(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    return dict(json.loads(client.request(f"$JS.API.{subject}".encode(), data).payload))


def publish_batch(client: RawClient, name: bytes, count: int) -> None:
    """Publish a batch, and wait for the answer to its commit."""
    for number in range(1, count + 1):
        head = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n" % (name, number)
        head += b"Nats-Batch-Commit: 1\r\n" if number == count else b""
        answer = client.request(b"s.%b.%d" % (name, number), b"payload %d" % number * 5, head + b"\r\n")
    assert b'"count":%d' % count in answer.payload


def subjects(client: RawClient) -> set[str]:
    info = ask(client, "STREAM.INFO.S", {"subjects_filter": ">"})
    return set(info["state"].get("subjects", {}))


def killed_store(
    directory: Path, batches: tuple[bytes, ...], last: bytes, counts: tuple[int, ...] = (), zeros: int = 0
) -> Path:
    """Return the store of a node that was killed after these batches and the message `last`, unless that is b""."""
    node = VirtualNode(options_with_store(directory))
    node.node.start_jetstream()
    client = node.client()
    ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_atomic": True})
    client.request(b"s.first", b"x")
    if zeros:
        client.request(b"s.zeros", bytes(zeros))
    for name, count in zip(batches, counts or [BATCH] * len(batches), strict=True):
        node.clock.advance(1000)
        publish_batch(client, name, count)
    if last:
        client.request(last, b"x")
    copy = directory.with_name("killed")
    shutil.copytree(directory, copy)
    node.node.stop()
    return copy


def after_damage(store: Path, data: bytes) -> tuple[set[str], dict[str, Any]]:
    """Return the subjects of the stream and its state after a start with `data` as its segment."""
    copy = store.with_name("case")
    shutil.copytree(store, copy)
    (copy / SEGMENT).write_bytes(data)
    with VirtualNode(options_with_store(copy)) as node:
        client = node.client()
        found, state = subjects(client), ask(client, "STREAM.INFO.S")["state"]
    shutil.rmtree(copy)
    return found, state


@pytest.mark.parametrize("last", [b"", b"s.last"])
@pytest.mark.timeout(300)
def test_a_flipped_byte_costs_one_message_of_a_batch(tmp_path: Path, last: bytes) -> None:
    # given
    store = killed_store(tmp_path / "store", (b"a", b"b"), last)
    whole = (store / SEGMENT).read_bytes()
    begin, end = whole.index(b"s.a.1"), len(whole.rstrip(b"\0"))
    everything, _ = after_damage(store, whole)
    assert len(everything) == 1 + 2 * BATCH + bool(last)
    losses = 0
    for at in range(begin, end, EVERY):
        data = bytearray(whole)
        data[at] ^= 1 << random.Random(at).randrange(8)
        # when
        found, state = after_damage(store, bytes(data))
        # then
        lost = everything - found
        assert len(lost) <= 1, f"byte {at}: {sorted(lost)}"
        if lost:
            assert state["lost"], f"byte {at}"
            losses += 1
    assert losses > BATCH


@pytest.mark.parametrize("last", [b"", b"s.last"])
def test_a_scan_finds_all_but_one_message_whatever_byte_is_flipped(tmp_path: Path, last: bytes) -> None:
    # given
    store = killed_store(tmp_path / "store", (b"a", b"b"), last)
    whole = (store / SEGMENT).read_bytes()
    total = scan_segment(whole).messages
    for at in range(whole.index(b"s.a.1"), len(whole.rstrip(b"\0"))):
        data = bytearray(whole)
        data[at] ^= 1 << random.Random(at).randrange(8)
        # when
        found = scan_segment(bytes(data))
        # then
        assert total - 1 <= found.messages <= total, f"byte {at}"
        assert found.problems or found.messages == total, f"byte {at}"


def test_of_a_batch_with_a_hole_nothing_counts(tmp_path: Path) -> None:
    # given
    counts = (10, 20, 40)
    store = killed_store(tmp_path / "store", (b"a", b"b", b"c"), b"", counts)
    whole = (store / SEGMENT).read_bytes()
    size = len(whole.rstrip(b"\0"))
    sums = {first + a + b + c for first in (0, 1) for a in (0, 10) for b in (0, 20) for c in (0, 40)}
    first_sector = whole.index(b"s.a.1") // SECTOR + 1
    for low in range(first_sector, size // SECTOR + 1):
        for high in range(low + 1, min(low + 12, size // SECTOR + 2)):
            data = bytearray(whole)
            data[low * SECTOR : high * SECTOR] = bytes((high - low) * SECTOR)
            # when
            found = scan_segment(bytes(data[: len(whole)]))
            # then
            assert found.messages in sums, f"sectors {low}..{high}: {found.messages}, {found.problems}"
            assert found.problems or found.messages == 71


def test_of_a_batch_with_a_page_that_ends_before_a_later_write_nothing_counts(tmp_path: Path) -> None:
    # given a batch written with several calls: a page of the file has the first of them, the next one a later call
    store = killed_store(tmp_path / "store", (b"a", b"b", b"c"), b"s.last", (40, 60, 50))
    whole = (store / SEGMENT).read_bytes()
    sums = {a + b + c + 2 for a in (0, 40) for b in (0, 60) for c in (0, 50)}
    starts = [at for at, kind, record in records(whole) if kind == MSG and b"Nats-Batch-Id" in record]
    cut = 0
    for at in starts:
        end = (at // PAGE + 1) * PAGE
        if end > starts[-1] or end - at > SECTOR:
            continue
        cut += 1
        # when
        found = scan_segment(whole[:at] + bytes(end - at) + whole[end:])
        # then
        assert found.messages in sums - {max(sums)}, f"{at}..{end}: {found.messages}, {found.problems}"
        assert found.problems
    assert cut > 5


def test_of_a_batch_with_whole_writes_missing_nothing_counts(tmp_path: Path) -> None:
    # given a failed sync: some writes never reach the disk, whatever their size; later writes do
    store = killed_store(tmp_path / "store", (b"a", b"b"), b"s.last")
    whole = (store / SEGMENT).read_bytes()
    spans = [
        (at, at + len(record))
        for at, kind, record in records(whole)
        if kind == MSG and b"Nats-Batch-Id" in record
    ]
    sums = {2, 2 + BATCH}
    for first, (low, _) in enumerate(spans):
        for _, high in spans[first:]:
            # when
            found = scan_segment(whole[:low] + bytes(high - low) + whole[high:])
            # then
            assert found.messages in sums, f"{low}..{high}: {found.messages}, {found.problems}"
            assert found.problems


def test_a_flipped_byte_beside_zeros_costs_no_batch_that_follows(tmp_path: Path) -> None:
    # given
    store = killed_store(tmp_path / "store", (b"a", b"b"), b"s.last", zeros=4096)
    data = bytearray((store / SEGMENT).read_bytes())
    data[data.index(b"s.zeros") + 100] ^= 1
    # when
    found = scan_segment(bytes(data))
    # then
    assert found.messages == 1 + 2 * BATCH + 1
    assert found.problems


def scan_time(directory: Path, count: int) -> float:
    """Return the CPU time of a scan of `count` batches that all have a gap."""
    names = tuple(b"%03d" % number for number in range(count))
    store = killed_store(directory / f"{count}" / "store", names, b"s.last", (24,) * count)
    data = bytearray((store / SEGMENT).read_bytes())
    for name in names:
        at = data.index(b"s.%b.12" % name) // SECTOR * SECTOR
        data[at : at + SECTOR] = bytes(SECTOR)
    times = []
    for _ in range(5):
        begin = time.process_time()
        found = scan_segment(bytes(data))
        times.append(time.process_time() - begin)
        assert found.messages == 2
    return min(times)


def test_many_batches_with_holes_are_not_a_scan_each(tmp_path: Path) -> None:
    assert scan_time(tmp_path, 640) < 9 * scan_time(tmp_path, 160)  # 16 times if it were quadratic


def test_what_is_written_after_a_batch_with_holes_and_no_end_takes_its_place(tmp_path: Path) -> None:
    # given
    store = killed_store(tmp_path / "store", (b"a", b"b"), b"", (3, 40))
    data = bytearray((store / SEGMENT).read_bytes())
    begin, end = data.index(b"s.b.2") // SECTOR + 1, data.rindex(b"s.b.40") - 32
    for sector in (begin, begin + 4):
        data[sector * SECTOR : (sector + 1) * SECTOR] = bytes(SECTOR)
    data[end:] = bytes(len(data) - end)
    # when
    found = scan_segment(bytes(data))
    # then
    assert found.messages == 1 + 3
    assert found.end < begin * SECTOR
