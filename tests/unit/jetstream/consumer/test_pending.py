"""PendingAcks compared with a simple model: a dict of entries, sorted on demand."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyjs.jetstream.consumer.acks.pending import PendingAcks

MS = 1_000_000


@dataclass
class Expected:
    seq: int
    cseq: int
    sent_at: int
    count: int = 1
    where: int = 4
    due_at: int = 0


class PendingMachine(RuleBasedStateMachine):
    """Makes the same calls on the table and on a plain one; every result and the whole state must be equal."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = [100 * MS]
        self.real = PendingAcks(self.waits)
        self.model: dict[int, Expected] = {}
        self.queue: list[int] = []
        self.now = 1_000 * MS
        self.seq = 0
        self.cseq = 0

    def wait(self, entry: Expected) -> None:
        entry.where = 4
        entry.due_at = entry.sent_at + self.waits[min(entry.count, len(self.waits)) - 1]

    def dequeue(self, seq: int) -> None:
        if seq in self.queue:
            self.queue.remove(seq)

    @rule(gap=st.sampled_from([1, 1, 1, 2, 1024, 2**20, 2**40]), n=st.integers(1, 40))
    def deliver(self, gap: int, n: int) -> None:
        for _ in range(n):
            self.seq += gap
            self.cseq += 1
            self.real.track(self.seq, self.cseq, self.now)
            entry = Expected(self.seq, self.cseq, self.now)
            self.wait(entry)
            self.model[self.seq] = entry

    @rule()
    def deliver_again(self) -> None:
        seq = self.real.deliver_again(self.now)
        assert seq == (self.queue[0] if self.queue else 0)
        if seq:
            self.queue.pop(0)
            entry = self.model[seq]
            entry.count += 1
            entry.sent_at = self.now
            self.wait(entry)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.model)))
        assert self.real.acknowledge(seq)
        assert not self.real.acknowledge(seq)
        del self.model[seq]
        self.dequeue(seq)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def settle_to(self, data: st.DataObject) -> None:
        last = data.draw(st.sampled_from(sorted(self.model)))
        self.real.remove_to(last)
        for seq in [each for each in self.model if each <= last]:
            del self.model[seq]
            self.dequeue(seq)

    @rule()
    def give_back(self) -> None:
        self.real.shrink()

    @rule(n=st.sampled_from([3_000, 9_000]))
    def deliver_many_that_are_settled(self, n: int) -> None:
        for seq in range(self.seq + 1, self.seq + n + 1):
            self.real.track(seq, self.cseq + 1, self.now)
        for seq in range(self.seq + 1, self.seq + n + 1):
            self.real.acknowledge(seq)
        self.seq += n
        self.cseq += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.model)))
        assert self.real.in_progress(seq, self.now)
        entry = self.model[seq]
        entry.sent_at = self.now
        if entry.where != 1:
            self.wait(entry)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), delay_ms=st.one_of(st.none(), st.integers(1, 500)))
    def nak(self, data: st.DataObject, delay_ms: int | None) -> None:
        seq = data.draw(st.sampled_from(sorted(self.model)))
        entry = self.model[seq]
        if delay_ms is None:
            assert self.real.nak(seq)
            if entry.where != 1:
                self.queue.append(seq)
                entry.where = 1
            return
        assert self.real.nak(seq, self.now + delay_ms * MS)
        self.dequeue(seq)
        entry.where, entry.due_at = 3, self.now + delay_ms * MS

    @rule(ms=st.integers(1, 150), max_deliver=st.sampled_from([0, 0, 1, 2, 3]))
    def expire(self, ms: int, max_deliver: int) -> None:
        self.now += ms * MS
        due = sorted(e.seq for e in self.model.values() if e.where in (3, 4) and e.due_at <= self.now)
        exhausted = [seq for seq in due if max_deliver and self.model[seq].count >= max_deliver]
        assert self.real.expire_due(self.now, max_deliver) == exhausted
        for seq in exhausted:
            del self.model[seq]
        for seq in due:
            if seq in self.model:
                self.model[seq].where = 1
                self.queue.append(seq)

    @rule(waits=st.lists(st.integers(1, 300), min_size=1, max_size=4))
    def change_waits(self, waits: list[int]) -> None:
        self.waits = [w * MS for w in waits]
        self.real.set_waits(self.waits)
        for entry in self.model.values():
            if entry.where == 4:
                self.wait(entry)

    @rule()
    def dump_and_restore(self) -> None:
        entries = self.real.dump()
        queued = self.real.queued()
        self.real = PendingAcks(self.waits)
        self.real.restore(entries)
        assert sorted(self.real.queued()) == sorted(queued)
        self.queue.sort()

    @invariant()
    def agrees(self) -> None:
        assert len(self.real) == len(self.model)
        assert self.real.redelivered == sum(e.count > 1 for e in self.model.values())
        assert self.real.queued() == self.queue
        assert self.real.n_queued == len(self.queue)
        waiting = [e.due_at for e in self.model.values() if e.where in (3, 4)]
        assert self.real.next_due() == min(waiting, default=0)
        shown = [(s, c, t, n, w) for s, c, t, n, w, _due in self.real.dump()]
        expected = sorted(self.model.values(), key=lambda e: e.seq)
        assert self.real.dump_json() == orjson.dumps(self.real.dump())
        assert shown == [(e.seq, e.cseq, e.sent_at, e.count, e.where) for e in expected]


PendingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPendingAgainstModel = PendingMachine.TestCase


def test_entries_expire_in_sequence_order_not_in_delivery_order() -> None:
    # given two deliveries, the older of which was sent again later
    pending = PendingAcks([100])
    pending.track(1, 1, 0)
    pending.track(2, 2, 10)
    pending.nak(1)
    pending.deliver_again(20)
    # when both are due
    pending.expire_due(500)
    # then they are queued by sequence
    assert pending.queued() == [1, 2]


def test_backoff_uses_its_last_step_for_all_further_deliveries() -> None:
    # given
    pending = PendingAcks([10, 20])
    pending.track(7, 1, 0)
    dues = [pending.next_due()]
    # when
    for _ in range(3):
        now = dues[-1]
        pending.expire_due(now)
        assert pending.deliver_again(now) == 7
        dues.append(pending.next_due())
    # then
    assert dues == [10, 30, 50, 70]


def test_delays_that_fall_are_put_in_order_without_a_walk_past_all_others() -> None:
    # given
    count = 10_000
    pending = PendingAcks([1])
    for seq in range(1, count + 1):
        pending.track(seq, seq, 0)
    # when
    for seq in range(1, count + 1):
        pending.nak(seq, 1_000_000 - seq)
    # then each took at most as many steps as the heap is deep
    assert pending.heap_steps <= count * count.bit_length()
    # and they are due in the order of their deadlines
    assert pending.next_due() == 1_000_000 - count
    pending.expire_due(1_000_000 - count + 1)
    assert pending.queued() == [count - 1, count]


def test_the_text_of_the_largest_numbers_is_that_of_json() -> None:
    pending = PendingAcks([2**62])
    pending.restore(
        [(2**64 - 2, 2**64 - 1, -(2**63), 2**32 - 1, 3, -(2**63)), (2**64 - 1, 0, 2**62 - 1, 1, 4, 0)]
    )
    assert pending.dump_json() == orjson.dumps(pending.dump())
    assert PendingAcks().dump_json() == b"[]"


def test_what_is_due_at_once_expires_in_parts_that_fit_in_a_turn() -> None:
    # given
    count = 40_000
    pending = PendingAcks([10])
    for seq in range(1, count + 1):
        pending.track(seq, seq, 0)
    # when
    queued = []
    for _ in range(3):
        pending.expire_due(10)
        queued.append(pending.n_queued)
    # then
    assert queued == [16_384, 32_768, 40_000]
    assert pending.queued() == list(range(1, count + 1))
    assert pending.next_due() == 0


def delayed(count: int, every: int) -> PendingAcks:
    """Return `count` deliveries; in each group of `every`, one waits for an ack, one is queued, one is delayed."""
    pending = PendingAcks([10])
    for seq in range(1, count + 1):
        pending.track(seq, seq, 0)
    for seq in range(1, count + 1, every):
        pending.nak(seq)
        if seq < count:
            pending.nak(seq + 1, 1_000_000 - seq)
    return pending


@pytest.mark.parametrize("last", [4_000, 19_990, 20_000, 30_000])
def test_one_ack_of_many_leaves_what_follows(last: int) -> None:
    # given
    pending = delayed(20_000, 3)
    expected = [entry for entry in pending.dump() if entry[0] > last]
    # when
    pending.remove_to(last)
    # then
    assert pending.dump() == expected
    assert pending.queued() == [seq for seq, *_, where, _ in expected if where == 1]
    assert [pending.acknowledge(seq) for seq in (last - 1, last, last + 1)] == [False, False, last < 20_000]


def test_memory_is_given_back_when_few_are_left_of_many() -> None:
    # given
    pending = delayed(20_000, 3)
    pending.shrink()
    roomy = pending.capacity
    expected = [entry for entry in pending.dump() if entry[0] % 1_000 < 3]
    for seq in range(1, 20_001):
        if seq % 1_000 >= 3:
            pending.acknowledge(seq)
    queued, due_at = pending.queued(), pending.next_due()
    # when
    pending.shrink()
    room = pending.capacity
    # then nothing has changed but the room
    assert room < 200 < 20_000 < roomy
    assert (pending.dump(), pending.queued(), pending.next_due()) == (expected, queued, due_at)
    assert all(pending.acknowledge(entry[0]) for entry in expected)
    pending.track(30_000, 30_000, 0)
    assert pending.queued() == []


def test_a_slab_that_is_empty_takes_deliveries_again() -> None:
    # given
    pending = delayed(20_000, 3)
    pending.remove_to(20_000)
    # when
    pending.shrink()
    pending.track(20_001, 20_001, 5)
    # then
    assert pending.dump() == [(20_001, 20_001, 5, 1, 4, 15)]


@given(st.lists(st.integers(1, 2**63), unique=True, max_size=300), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_any_sequences_are_found_and_removed(seqs: list[int], random: object) -> None:
    # given
    pending = PendingAcks([1])
    for cseq, seq in enumerate(sorted(seqs), 1):
        pending.track(seq, cseq, 0)
    order = list(seqs)
    random.shuffle(order)  # type: ignore[attr-defined]
    # when
    found = [pending.acknowledge(seq) for seq in order]
    # then
    assert all(found)
    assert len(pending) == 0
