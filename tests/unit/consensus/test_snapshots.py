"""Transfers of snapshots: parts, losses, and the end of each transfer."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyjs.consensus import batch
from pyjs.consensus.batch import Fetch, Outcome, Part
from pyjs.consensus.descriptor import BadDescriptor, describe
from pyjs.consensus.engine import peer_id
from pyjs.consensus.snapshots import GIVE_UP_NS, REPORT_NS, RETRY_NS, Snapshots

DATA = bytes(range(100))
PEER = peer_id(2)


class Pair:
    """The sender of a snapshot, node 1, and its receiver, node 2."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batch, "PART_MAX", 40)
        self.way: list[tuple[int, bytes]] = []
        self.sender, self.receiver = Snapshots(self), Snapshots(self)
        self.now = 0

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        self.way.append((node, b"".join(parts)))

    def pending_size(self, node: int) -> int:
        return 0

    def stop(self, reason: str) -> None:
        raise AssertionError(reason)

    def offer(self, data: bytes = DATA, index: int = 9) -> None:
        """Offer a snapshot, and deliver its frame."""
        self.sender.offer(5, index, data, self.now)
        self.sender.sent(5, PEER, index, self.now)
        self.receiver.fetch(5, 1, self.point(data, index), self.now)

    def point(self, data: bytes, index: int = 9) -> Any:
        return SimpleNamespace(index=index, descriptor=describe(data, 7))

    def deliver(self, count: int = 100) -> None:
        """Deliver up to `count` batches."""
        while self.way and count:
            count -= 1
            node, data = self.way.pop(0)
            target, source = (self.sender, 2) if node == 1 else (self.receiver, 1)
            found = batch.read(data)
            if isinstance(found, Fetch):
                target.asked(source, found, self.now)
            elif isinstance(found, Part):
                target.came(source, found, self.now)
            else:
                target.ends(source, cast("Outcome", found))

    def tick(self, ns: int) -> None:
        self.now += ns
        self.sender.tick(self.now)
        self.receiver.tick(self.now)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(monkeypatch)


def test_the_data_comes_in_parts_and_the_sender_learns_of_the_end(pair: Pair) -> None:
    pair.offer()
    pair.deliver()

    assert pair.receiver.take_whole() == [5]
    assert pair.receiver.data_of(5)[1] == DATA
    incoming = pair.receiver.finish(5)
    assert incoming is not None
    pair.receiver.arrived(5, incoming)
    pair.deliver()
    assert pair.sender.ended == [(5, PEER, True)]
    assert not pair.sender.is_busy
    assert not pair.receiver.is_busy


def test_a_snapshot_without_data_is_whole_at_once(pair: Pair) -> None:
    pair.offer(b"")

    assert pair.receiver.take_whole() == [5]


def test_a_lost_part_is_asked_for_again(pair: Pair) -> None:
    pair.offer()
    pair.deliver(1)
    pair.way.clear()
    pair.tick(RETRY_NS)
    pair.deliver()

    assert pair.receiver.take_whole() == [5]


def test_a_part_that_comes_twice_counts_once(pair: Pair) -> None:
    pair.offer()
    pair.deliver(1)
    pair.way *= 2
    pair.deliver()

    assert pair.receiver.data_of(5)[1] == DATA


def test_parts_of_something_else_are_ignored(pair: Pair) -> None:
    pair.offer()
    for part in (Part(6, 9, 0, b"x"), Part(5, 8, 0, b"x")):
        pair.receiver.came(1, part, 0)
    pair.receiver.came(3, Part(5, 9, 0, b"x"), 0)
    pair.receiver.ends(1, Outcome(6, 9, done=False))
    pair.receiver.ends(3, Outcome(5, 9, done=False))
    pair.sender.ends(2, Outcome(5, 8, done=True))
    pair.deliver()

    assert pair.receiver.data_of(5)[1] == DATA
    assert pair.receiver.given_up == pair.sender.ended == []


def test_more_data_than_described_is_given_up(pair: Pair) -> None:
    pair.offer()
    pair.receiver.came(1, Part(5, 9, 0, bytes(101)), 0)

    assert pair.receiver.given_up == [5]


def test_other_data_than_described_is_refused(pair: Pair) -> None:
    pair.offer()
    for offset in (0, 40, 80):
        pair.receiver.came(1, Part(5, 9, offset, bytes(min(40, 100 - offset))), 0)

    with pytest.raises(BadDescriptor, match="the digest"):
        pair.receiver.data_of(5)


def test_a_receiver_without_an_answer_gives_up(pair: Pair) -> None:
    pair.offer()
    pair.tick(GIVE_UP_NS)

    assert pair.receiver.given_up == [5]


def test_a_sender_that_no_longer_has_it_says_so(pair: Pair) -> None:
    pair.offer()
    pair.sender.forget(5)
    pair.deliver()

    assert pair.receiver.given_up == [5]


def test_a_peer_that_never_asks_is_given_up(pair: Pair) -> None:
    pair.sender.offer(5, 9, DATA, 0)
    pair.sender.sent(5, PEER, 9, 0)
    pair.tick(REPORT_NS)

    assert pair.sender.ended == [(5, PEER, False)]
    assert not pair.sender.is_busy


def test_a_peer_that_asks_has_more_time(pair: Pair) -> None:
    pair.offer()
    pair.now = REPORT_NS - 1
    pair.deliver(1)
    pair.tick(1)

    assert pair.sender.ended == []


def test_an_older_snapshot_is_still_sent_beside_a_newer_one(pair: Pair) -> None:
    pair.offer()
    pair.sender.offer(5, 12, b"newer", 0)
    pair.deliver()

    assert pair.receiver.data_of(5)[1] == DATA


def test_a_peer_of_an_offer_that_is_made_again_is_still_given_up(pair: Pair) -> None:
    pair.offer()
    pair.way.clear()
    pair.sender.offer(5, 9, DATA, pair.now)

    pair.tick(REPORT_NS)

    assert pair.sender.ended == [(5, PEER, False)]


def test_an_offer_that_nobody_is_told_of_is_dropped(pair: Pair) -> None:
    pair.sender.offer(5, 9, DATA, 0)
    pair.tick(REPORT_NS)

    assert not pair.sender.is_busy


def test_a_snapshot_frame_without_an_offer_has_failed(pair: Pair) -> None:
    pair.sender.sent(5, PEER, 9, 0)

    assert pair.sender.ended == [(5, PEER, False)]


def test_a_lost_node_ends_both_ways(pair: Pair) -> None:
    pair.offer()
    pair.sender.lost(3)
    pair.receiver.lost(3)
    assert pair.sender.ended == pair.receiver.given_up == []

    pair.sender.lost(2)
    pair.receiver.lost(1)

    assert pair.sender.ended == [(5, PEER, False)]
    assert pair.receiver.given_up == [5]


def test_a_whole_snapshot_is_not_given_up(pair: Pair) -> None:
    pair.offer()
    pair.deliver()
    pair.receiver.lost(1)
    pair.receiver.ends(1, Outcome(5, 9, done=False))
    pair.tick(10 * GIVE_UP_NS)

    assert pair.receiver.given_up == []


def test_a_damaged_descriptor_is_refused(pair: Pair) -> None:
    with pytest.raises(BadDescriptor):
        pair.receiver.fetch(5, 1, cast("Any", SimpleNamespace(index=9, descriptor=bytes(40))), 0)


def test_a_snapshot_whose_place_a_newer_one_took_is_not_whole(pair: Pair) -> None:
    pair.offer()
    pair.deliver()
    pair.receiver.fetch(5, 1, pair.point(DATA, 12), 0)

    assert pair.receiver.take_whole() == []


def test_only_the_snapshot_that_was_meant_is_finished(pair: Pair) -> None:
    pair.offer()
    assert pair.receiver.finish_whole(5, 9) is None
    pair.deliver()
    assert pair.receiver.finish_whole(5, 8) is None
    assert pair.receiver.finish_whole(6, 9) is None

    assert pair.receiver.finish_whole(5, 9) is not None
    assert pair.receiver.finish_whole(5, 9) is None


def test_a_closed_group_is_not_whole(pair: Pair) -> None:
    pair.offer()
    pair.deliver()
    pair.receiver.forget(5)

    assert pair.receiver.take_whole() == []


def test_a_snapshot_of_a_leader_that_is_lost_already_is_given_up_at_once(pair: Pair) -> None:
    pair.receiver.fetch(5, 0, pair.point(DATA), pair.now)

    assert pair.receiver.given_up == [5]
    assert not pair.way
