"""Payloads of entries, in memory and in the log."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pyjs.consensus.payloads import COST, Gone, Payloads


class FakeLog:
    """A log with entries after index 1, all of term 1, which records the requested ranges."""

    start = 1

    def __init__(self) -> None:
        self.groups = {5: self, 6: self}

    def term_at(self, index: int) -> int:
        return 1

    def payload(self, group: int, index: int) -> bytes:
        return b"%d/%d from the log" % (group, index)


def payloads_of(log: FakeLog, memory_max: int = 1 << 20) -> Payloads:
    return Payloads(cast("Any", log), memory_max)


def test_a_staged_payload_is_found_and_goes_to_the_log() -> None:
    payloads = payloads_of(FakeLog())
    payloads.stage((5, 2, 1), b"a")

    assert payloads.get((5, 2, 1)) == b"a"
    assert payloads.take((5, 2, 1)) == b"a"
    assert payloads.get((5, 2, 1)) == b"a"


def test_what_the_engine_does_not_take_is_dropped() -> None:
    payloads = payloads_of(FakeLog())
    payloads.stage((5, 2, 1), b"a")
    payloads.forget_staged()

    assert payloads.get((5, 2, 1)) == b"5/2 from the log"


def test_two_leaders_give_one_index_two_payloads() -> None:
    payloads = payloads_of(FakeLog())
    payloads.stage((5, 2, 1), b"old")
    payloads.stage((5, 2, 3), b"new")
    payloads.take((5, 2, 3))

    assert payloads.get((5, 2, 3)) == b"new"


def test_memory_is_bounded_and_the_oldest_are_read_back() -> None:
    payloads = payloads_of(FakeLog(), memory_max=16 * (COST + 10))
    for index in range(2, 19):
        payloads.stage((5, index, 1), b"x" * 10)
        payloads.take((5, index, 1))

    # An eighth of the memory is free again.
    assert [payloads.get((5, index, 1)) for index in (2, 3, 4)] == [
        b"5/%d from the log" % n for n in (2, 3, 4)
    ]
    assert all(payloads.get((5, index, 1)) == b"x" * 10 for index in range(5, 19))


def test_the_newest_payload_stays_even_if_it_is_larger_than_the_memory() -> None:
    payloads = payloads_of(FakeLog(), memory_max=1)
    for index in (2, 3):
        payloads.stage((5, index, 1), b"x" * 10)
        payloads.take((5, index, 1))

    assert payloads.get((5, 2, 1)) == b"5/2 from the log"
    assert payloads.get((5, 3, 1)) == b"x" * 10


def test_a_payload_that_is_written_again_counts_once() -> None:
    payloads = payloads_of(FakeLog(), memory_max=2 * (COST + 10))
    for _ in range(3):
        payloads.stage((5, 2, 1), b"x" * 10)
        payloads.take((5, 2, 1))
    payloads.stage((5, 3, 1), b"y" * 10)
    payloads.take((5, 3, 1))

    assert payloads.get((5, 2, 1)) == b"x" * 10


def test_one_payload_larger_than_the_memory_stays_until_the_next() -> None:
    payloads = payloads_of(FakeLog(), memory_max=10)
    payloads.stage((5, 2, 1), b"x" * 100)
    payloads.take((5, 2, 1))

    assert payloads.get((5, 2, 1)) == b"x" * 100


def test_a_closed_group_leaves_nothing() -> None:
    payloads = payloads_of(FakeLog())
    for group in (5, 6):
        payloads.stage((group, 2, 1), b"a")
        payloads.take((group, 2, 1))
        payloads.stage((group, 3, 1), b"b")
    payloads.forget(5)

    assert payloads.get((5, 2, 1)) == b"5/2 from the log"
    assert payloads.get((5, 3, 1)) == b"5/3 from the log"
    assert (payloads.get((6, 2, 1)), payloads.get((6, 3, 1))) == (b"a", b"b")


@pytest.mark.parametrize("key", [(7, 2, 1), (5, 1, 1), (5, 2, 2)])
def test_an_entry_that_the_log_no_longer_has_is_gone(key: tuple[int, int, int]) -> None:
    with pytest.raises(Gone, match=f"the log of group {key[0]} has no entry {key[1]} of term {key[2]}"):
        payloads_of(FakeLog()).get(key)
