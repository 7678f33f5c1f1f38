"""Searches and counts in steps, compared with a list of the live messages while the store changes."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from pyjs.store import searches
from pyjs.store.memory import MemStore
from pyjs.subjects.tokens import subject_matches

MSGS = 90_000
# `w.*.x` has more subjects than a search looks up at once, and they are far apart
FILTERS = [(b"w.*.x",), (b"w.*.x", b"rare.1"), (b"w.>",), (b"rare.*",), (b"often",), (b"no.*",), ()]


class Filled:
    """A store with many subjects, and the subject of each live message by its sequence."""

    def __init__(self) -> None:
        rng = random.Random(7)
        self.store = MemStore()
        self.live: dict[int, bytes] = {}
        for at in range(MSGS):
            near_end = at < 30_000 or at > MSGS - 500
            subject = b"w.%d.x" % at if near_end and at % 3 else b"w.%d.y" % rng.randrange(60_000)
            subject = b"often" if at % 7 == 0 else subject
            self.add(b"rare.%d" % (at % 4) if at % 9000 == 1 else subject)
        for seq in rng.sample(sorted(self.live), MSGS // 20):
            self.drop(seq)

    def add(self, subject: bytes) -> None:
        """Store a message."""
        self.live[self.store.store(subject, b"", b"", 1)] = subject

    def drop(self, seq: int) -> None:
        """Remove a message."""
        self.store.drop_seq(seq)
        del self.live[seq]

    def matches(self, filters: tuple[bytes, ...]) -> list[int]:
        """Return the sequences of the matching live messages."""
        return [
            seq
            for seq, subject in self.live.items()
            if not filters or any(subject_matches(subject, each) for each in filters)
        ]


@pytest.fixture(scope="module")
def filled() -> Filled:
    return Filled()


def result(steps: Generator[None, None, int]) -> tuple[int, int]:
    """Return the result of steps, and the number of steps."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return int(ended.value), count
        count += 1


@pytest.mark.parametrize("filters", FILTERS)
def test_a_purge_ends_before_the_newest_matches_that_it_keeps(
    filled: Filled, filters: tuple[bytes, ...]
) -> None:
    catalogue, wanted = filled.store.catalogue, filled.store.make_filter(filters)
    matches = filled.matches(filters)
    for keep in (1, 2, 500, 25_000, len(matches), len(matches) + 1):
        for before_seq in (0, 40_000):
            end_seq = result(searches.purge_end(catalogue, wanted, before_seq, keep))[0]
            purged = [seq for seq in matches[:-keep] if seq < (before_seq or MSGS + 1)]
            assert [seq for seq in matches if seq < end_seq] == purged


@pytest.mark.parametrize("filters", FILTERS)
def test_matches_are_found_in_order_and_in_steps(filled: Filled, filters: tuple[bytes, ...]) -> None:
    catalogue, wanted = filled.store.catalogue, filled.store.make_filter(filters)
    matches = filled.matches(filters)
    for low, high in ((1, MSGS + 1), (31_000, 70_000), (70_000, 70_000)):
        steps, found = searches.matches(catalogue, low, high, wanted), None
        while found is None:
            try:
                next(steps)
            except StopIteration as ended:
                found = ended.value
        assert found == [seq for seq in matches if low <= seq < high]


@pytest.mark.parametrize("filters", FILTERS)
def test_searches_and_counts_from_any_sequence_are_right(filled: Filled, filters: tuple[bytes, ...]) -> None:
    catalogue, wanted = filled.store.catalogue, filled.store.make_filter(filters)
    matches = filled.matches(filters)
    for seq in (1, 20, 29_990, 31_000, 45_000, 60_000, MSGS - 600, MSGS, MSGS + 1):
        assert result(searches.next_match(catalogue, seq, wanted))[0] == min(
            (each for each in matches if each >= seq), default=0
        )
        assert result(searches.last_match(catalogue, seq, wanted))[0] == max(
            (each for each in matches if each <= seq), default=0
        )
        expected = sum(each >= seq for each in matches)
        assert result(searches.count(catalogue, seq, wanted))[0] == expected
        assert catalogue.count_matching(seq, wanted) == expected


def test_a_search_over_many_messages_takes_several_steps(filled: Filled) -> None:
    catalogue, wanted = filled.store.catalogue, filled.store.make_filter((b"w.*.x",))

    assert result(searches.next_match(catalogue, 31_000, wanted))[1] > 1
    assert result(searches.last_match(catalogue, MSGS - 600, wanted))[1] > 1
    assert result(searches.count(catalogue, 20, wanted))[1] > 1


def test_what_few_subjects_answer_takes_one_step(filled: Filled) -> None:
    catalogue = filled.store.catalogue
    for filters in ((b"rare.*",), (b"no.*",), ()):
        wanted = filled.store.make_filter(filters)
        while not catalogue.learn_subjects(wanted, 100_000):
            pass
        assert result(searches.next_match(catalogue, 31_000, wanted))[1] == 1
        assert result(searches.count(catalogue, 31_000, wanted))[1] == 1


def test_messages_may_come_and_go_between_the_steps() -> None:
    filled = Filled()
    store, wanted = filled.store, filled.store.make_filter((b"w.*.x",))
    count, found = (
        searches.count(store.catalogue, 1, wanted),
        searches.next_match(store.catalogue, 31_000, wanted),
    )
    next(count)
    next(found)

    for seq in filled.matches((b"w.*.x",)):
        if seq > 60_000:
            filled.drop(seq)
    filled.add(b"w.1.x")

    assert result(found)[0] == max(filled.live)
    assert result(count)[0] == len(filled.matches((b"w.*.x",)))


def test_all_messages_may_be_removed_between_the_steps() -> None:
    filled = Filled()
    store, wanted = filled.store, filled.store.make_filter((b"w.*.x",))
    steps = [
        searches.count(store.catalogue, 20, wanted),
        searches.next_match(store.catalogue, 31_000, wanted),
        searches.last_match(store.catalogue, MSGS - 600, wanted),
    ]
    for each in steps:
        next(each)
    first = sum(seq >= 20 and seq < 20 + (1 << 15) for seq in filled.matches((b"w.*.x",)))

    store.purge(store.make_filter(()))

    assert [result(each)[0] for each in steps] == [first, 0, 0]
