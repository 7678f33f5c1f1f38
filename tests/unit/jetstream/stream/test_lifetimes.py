"""Which message expires next, compared with a sorted list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.stream.aging import Lifetimes

S = 1_000_000_000


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=200), st.integers(0, 110))
def test_what_is_due_comes_by_its_time_and_then_by_its_sequence(
    given: list[tuple[int, int]], now: int
) -> None:
    lifetimes = Lifetimes()
    for seq, (ttl, stored_at) in enumerate(given, 1):
        lifetimes.add(seq, b"%d" % ttl, stored_at * S)
    expected = sorted((ttl + stored_at, seq) for seq, (ttl, stored_at) in enumerate(given, 1))

    due = []
    while seq := lifetimes.take_due(now * S):
        due.append(seq)

    assert due == [seq for at, seq in expected if at <= now]
    assert len(lifetimes) == len(expected) - len(due)
    assert lifetimes.next_due() == next((at * S for at, _ in expected[len(due) :]), 0)


def test_the_end_of_time_is_the_last_that_can_be_told() -> None:
    lifetimes = Lifetimes()
    lifetimes.add(1, b"999999999", 2**63 - 5)
    assert lifetimes.next_due() == 2**63 - 1


def test_what_is_no_time_to_live_is_ignored() -> None:
    lifetimes = Lifetimes()
    lifetimes.add(1, b"zz", 0)
    assert len(lifetimes) == 0
    assert lifetimes.next_due() == 0


@given(st.lists(st.integers(1, 300), max_size=200), st.integers(1, 300))
def test_those_that_never_expire_are_found_until_they_are_gone(seqs: list[int], below: int) -> None:
    lifetimes = Lifetimes()
    for seq in seqs:
        lifetimes.add(seq, b"never", 0)

    lifetimes.forget_below(below)

    kept = {seq for seq in seqs if seq >= below}
    assert {seq for seq in range(below, 301) if lifetimes.outlives(seq)} == kept
    assert len(kept) <= len(lifetimes) <= len(set(seqs))


def test_memory_is_given_back() -> None:
    lifetimes = Lifetimes()
    for seq in range(1, 100_001):
        lifetimes.add(seq, b"1", 0)
        lifetimes.add(seq, b"never", 0)
    full = lifetimes.size
    assert full < 100_000 * 24 * 2

    while lifetimes.take_due(S):
        pass
    for seq in range(1, 100_001, 1_000):
        lifetimes.forget_below(seq)
    lifetimes.forget_below(100_001)

    assert lifetimes.size < full // 10
    lifetimes.clear()
    assert lifetimes.size == 0


@pytest.fixture
def js() -> Iterator[JetStreamFixture]:
    fixture = JetStreamFixture()
    yield fixture
    fixture.node.stop()


def publish(js: JetStreamFixture, subject: str, count: int, ttl: int) -> None:
    headers = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % ttl
    line = b"HPUB %b %d %d\r\n%b\r\n" % (subject.encode(), len(headers), len(headers), headers)
    js.user.send(line * count)
    js.turn()


def test_the_ttls_of_replaced_messages_are_discarded(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_msg_ttl=True, max_msgs_per_subject=1)
    stream = js.stream("S")
    for _ in range(20):
        publish(js, "s.a", 1000, 3600)
        js.turn()
    assert stream.store.msgs == 1
    assert len(stream.aging.lifetimes) <= 2 * 4096


def test_messages_expire_in_order_while_the_ttls_of_others_are_discarded(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], allow_msg_ttl=True)
    stream = js.stream("S")
    for ttl in (30, 10, 30, 20):
        publish(js, f"s.{ttl}", 5000, ttl)
    js.api("STREAM.PURGE.S", {"filter": "s.30"})
    js.at(js.clock.now_ns() + 11 * S)
    counts = []
    for _ in range(60):
        js.turn()
        counts.append((stream.store.msgs, len(stream.aging.lifetimes)))
    assert counts[-1] == (5000, 5000)
    js.at(js.clock.now_ns() + 10 * S)
    for _ in range(30):
        js.turn()
    assert (stream.store.msgs, len(stream.aging.lifetimes)) == (0, 0)
