"""Frames with their payloads, queued for other nodes within limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from raft.tests.cluster import GROUP, Cluster

from pyjs.base.errors import NotNow
from pyjs.base.log import ListLog
from pyjs.consensus import batch, outbox
from pyjs.consensus.batch import Frames
from pyjs.consensus.descriptor import describe
from pyjs.consensus.outbox import Outbox, split
from pyjs.consensus.payloads import Key, Payloads


class Sent:
    """A peer that collects batches."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.pending = 0

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        self.batches.append(b"".join(parts))

    def pending_size(self, node: int) -> int:
        return self.pending

    def stop(self, reason: str) -> None:
        raise AssertionError(reason)

    def payloads(self) -> list[list[bytes]]:
        """Return the payloads of each batch."""
        found = [batch.read(data) for data in self.batches]
        return [[payload for _, payload in one.payloads] for one in found if isinstance(one, Frames)]


class Unreadable:
    """A log with unreadable entries."""

    start = 1

    def __init__(self) -> None:
        self.groups = {GROUP: self}
        self.term = 2

    def term_at(self, index: int) -> int:
        return self.term

    def payload(self, group: int, index: int) -> bytes:
        raise NotNow("too many open files")


def frames_of(payloads: Sequence[bytes]) -> tuple[bytes, list[Key]]:
    """Return frames of a leader, one for each payload, with a heartbeat among them."""
    cluster = Cluster()
    cluster.elect(1)
    frames, keys = b"", []
    for payload in payloads:
        cluster.nodes[1].propose([(GROUP, describe(payload, 7))])
        data, found = next((d, k) for node, d, k in cluster.nodes[1].ready().frames if node == 2)
        frames += data
        keys += found
    return frames, keys


class Bench:
    """An outbox with four entries."""

    def __init__(self) -> None:
        self.payloads = [b"%d" % number * 100 for number in range(4)]
        self.frames, self.keys = frames_of(self.payloads)
        self.sent = Sent()
        self.log = ListLog()
        self.files = Unreadable()
        self.held = Payloads(cast("Any", self.files))
        for key, payload in zip(self.keys, self.payloads, strict=True):
            self.held.stage(key, payload)
        self.outbox = Outbox(self.sent, self.held, self.log)

    def send(self) -> list[list[bytes]]:
        self.outbox.send([(2, self.frames, self.keys)])
        return self.sent.payloads()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_frames_are_split_with_the_keys_of_their_entries(bench: Bench) -> None:
    found = list(split(bench.frames, bench.keys))

    assert b"".join(frame for frame, _ in found) == bench.frames
    assert [list(keys) for _, keys in found] == [[key] for key in bench.keys]


def test_a_few_entries_are_one_batch(bench: Bench) -> None:
    assert bench.send() == [bench.payloads]


def test_many_bytes_are_several_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH_SIZE", 150)

    assert bench.send() == [bench.payloads[:2], bench.payloads[2:]]


def test_the_bytes_on_their_way_to_a_node_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "WINDOW", 150)

    assert bench.send() == [bench.payloads[:2]]
    assert bench.outbox.dropped == 2


def test_a_node_that_does_not_read_gets_frames_without_entries_only(bench: Bench) -> None:
    bench.sent.pending = outbox.WINDOW
    cluster = Cluster()
    cluster.nodes[1].campaign(GROUP)
    bench.frames += next(data for node, data, _ in cluster.nodes[1].ready().frames if node == 2)

    assert bench.send() == [[]]
    assert bench.outbox.dropped == 4


def test_an_entry_larger_than_a_batch_is_not_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH_SIZE", 50)
    monkeypatch.setattr(batch, "PAYLOAD_MAX", 99)

    assert bench.send() == []


def test_an_entry_that_the_log_no_longer_has_is_left_out_silently(bench: Bench) -> None:
    bench.held.forget_staged()
    bench.files.term = 3

    assert bench.send() == []
    assert bench.log.lines == []


class TwoGroups(Bench):
    """An outbox with four entries of one group, then four entries of another."""

    OTHER = GROUP + 1

    def __init__(self) -> None:
        super().__init__()
        self.others = [b"%d" % number * 50 for number in range(4, 8)]
        frames, keys = frames_of(self.others)
        other = [(self.OTHER, index, term) for _, index, term in keys]
        self.frames += frames
        self.keys += other
        for key, payload in zip(other, self.others, strict=True):
            self.held.stage(key, payload)

    def lose(self, key: Key) -> None:
        """Keep an entry of the first group in the log only, where it cannot be read."""
        del self.held.staged[key]


def test_a_gap_in_one_group_holds_no_other_group_back() -> None:
    bench = TwoGroups()
    bench.lose(bench.keys[1])

    assert bench.send() == [[bench.payloads[0], *bench.others]]
    assert bench.outbox.dropped == 3


def test_an_oversized_entry_holds_no_other_group_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TwoGroups()
    bench.lose(bench.keys[3])
    monkeypatch.setattr(batch, "PAYLOAD_MAX", 99)

    assert bench.send() == [bench.others]
    assert bench.outbox.dropped == 4


def test_a_batch_is_never_larger_than_the_other_side_takes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = len(bench.frames) // 4
    monkeypatch.setattr(batch, "SIZE_MAX", 2 * (frame + 100) + batch.HEADER_SIZE)
    monkeypatch.setattr(outbox, "BATCH_SIZE", 399)

    assert bench.send() == [bench.payloads[:2], bench.payloads[2:]]
    assert max(map(len, bench.sent.batches)) <= batch.SIZE_MAX


def test_an_entry_that_cannot_be_read_is_named_once(bench: Bench) -> None:
    bench.held.forget_staged()

    assert bench.send() == []
    assert bench.send() == []
    assert bench.log.lines == [
        ("ERR", "An entry of group 5 cannot be sent to another node: too many open files")
    ]
