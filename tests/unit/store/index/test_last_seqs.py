"""The last sequence of each subject and the number of matches, computed in steps while the store is used."""

from __future__ import annotations

import random

import pytest
from tests.support.packed import pack

from pyjs.store.index.last_seqs import Count, LastSeqs
from pyjs.store.memory import MemStore
from pyjs.subjects.tokens import subject_matches

FILTERS = [
    (),
    (b">",),
    (b"a.*",),
    (b"a.>",),
    (b"*.*",),
    (b"a.1*",),
    (b"*.7", b"b.*"),
    (b"a.3", b"a.4"),
    (b"no.*",),
]


class Filled:
    """A store of many subjects, with a few messages of each in random order, and a list of them by sequence."""

    def __init__(self, subjects: int, msgs: int, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.store = MemStore()
        self.live: dict[int, bytes] = {}
        for _ in range(msgs):
            self.add(b"%s.%d" % (rng.choice((b"a", b"a", b"b")), rng.randrange(subjects)))
        for seq in rng.sample(sorted(self.live), msgs // 10):
            self.drop(seq)

    def add(self, subject: bytes) -> None:
        self.live[self.store.store(subject, b"", b"", 1 + self.store.last_seq)] = subject

    def drop(self, seq: int) -> None:
        assert self.store.drop_seq(seq)
        del self.live[seq]

    def matches(self, patterns: tuple[bytes, ...]) -> dict[int, bytes]:
        wanted = patterns or (b">",)
        return {s: name for s, name in self.live.items() if any(subject_matches(name, p) for p in wanted)}

    def lasts(self, patterns: tuple[bytes, ...]) -> list[int]:
        return sorted({name: seq for seq, name in sorted(self.matches(patterns).items())}.values())


@pytest.mark.parametrize("patterns", FILTERS, ids=str)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("limit", [1, 999, 1 << 30])
def test_what_is_stored_during_the_search_is_not_in_it(
    patterns: tuple[bytes, ...], learned: bool, limit: int
) -> None:
    # given
    filled = Filled(subjects=9_000, msgs=20_000)
    f = filled.store.make_filter(patterns)
    if learned:
        assert filled.store.catalogue.learn_subjects(filled.store.make_filter((b"*.*",)), 1 << 30)
    lasts, msgs = filled.lasts(patterns), len(filled.matches(patterns))
    # when
    search, counting = LastSeqs(filled.store.catalogue, f), Count(filled.store.catalogue, f)
    steps, done = 0, (False, False)
    while not all(done):
        done = (done[0] or search.step(limit), done[1] or counting.step(limit))
        steps += 1
        if steps < 50:
            filled.add(b"a.%d" % steps)
            filled.add(b"new.%d" % steps)
    # then
    assert search.packed() == pack(lasts)
    assert search.n == len(lasts)
    assert search.up_to == counting.up_to == 20_000
    assert counting.msgs == msgs
    assert counting.is_exact
    if limit == 1 and len(lasts) > 1000:
        assert steps > len(lasts)


def test_a_count_during_which_a_message_was_removed_is_not_exact() -> None:
    filled = Filled(subjects=100, msgs=1_000)
    counting = Count(filled.store.catalogue, filled.store.make_filter((b"a.*",)))
    assert not counting.step(5)
    filled.drop(next(iter(filled.live)))
    while not counting.step(5):
        pass
    assert not counting.is_exact


@pytest.mark.parametrize("subjects", [4096, 4097, 8192, 3 * 4096 + 5])
def test_sequences_in_falling_order_are_merged(subjects: int) -> None:
    # given: the subject stored first has the newest message
    store = MemStore()
    names = [b"s.%d" % number for number in range(subjects)]
    for subject in names + names[::-1]:
        store.store(subject, b"", b"", 1 + store.last_seq)
    # when
    search = LastSeqs(store.catalogue, store.make_filter(()))
    while not search.step(100):
        pass
    # then
    assert search.packed() == pack(range(subjects + 1, 2 * subjects + 1))


def test_a_store_that_is_purged_meanwhile_ends_the_search() -> None:
    filled = Filled(subjects=3_000, msgs=9_000)
    search = LastSeqs(filled.store.catalogue, filled.store.make_filter((b"*.*",)))
    assert not search.step(10)
    filled.store.purge(filled.store.make_filter(()))
    while not search.step(10):
        pass
    assert search.n <= 6_000


@pytest.mark.parametrize(
    ("pattern", "others", "expected"),
    [
        (b"a.b.>", [], 5_000),
        (b"a.*.>", [], 5_000),
        (b"a.>", [], 5_000),
        (b"*.>", [], 5_000),
        (b"a.b.c.>", [], 0),
        (b"a.c.>", [], 0),
        (b"a.b.>", [b"a.b"], 5_000),
        (b"a.b.>", [b"a.c"], 5_000),
        (b"a.>", [b"a"], 5_000),
        (b"*.>", [b"b.x"], 5_001),
        (b"a.b.*", [b"a.b.c.d"], 5_000),
    ],
)
def test_filters_that_all_subjects_may_match_count_those_that_do(
    pattern: bytes, others: list[bytes], expected: int
) -> None:
    # given
    store = MemStore()
    for number in range(5_000):
        store.store(b"a.b.%d" % number, b"", b"", 1 + number)
    f = store.make_filter((pattern,))
    assert store.catalogue.learn_subjects(f, 1 << 30)
    before = store.catalogue.count_matching(1, f)
    # when
    for subject in others:
        store.store(subject, b"", b"", 10_000)
    # then
    assert store.catalogue.count_matching(1, f) == expected
    assert before == (0 if expected == 0 else 5_000)
    # when: the others are removed again
    for _ in others:
        store.drop_seq(store.last_seq)
    # then
    assert store.catalogue.count_matching(1, f) == before
