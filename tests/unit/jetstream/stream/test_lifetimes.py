"""Which message is due next, against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
