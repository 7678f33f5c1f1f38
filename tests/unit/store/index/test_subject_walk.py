"""The subjects that match a filter, found in steps whose work is bounded."""

from __future__ import annotations

import pytest

from pyjs.store.index.subject_walk import SubjectWalk
from pyjs.store.memory import MemStore
from pyjs.subjects.tokens import subject_matches

LOOKS = 8_192  # lookups of one pattern in the index of subjects, as in subject_walk.pyx
FILTERS = [
    (b"a.*",),  # a broad filter: each subject is compared with it
    (b"a.1.*",),  # few matches, below one token
    (b"*.7.*", b"a.1.*", b"a.1.7"),  # the second and third find the same as the first
    (b"a.>", b"a.1.*", b"b.0.1"),
    (b"*.*.3", b"*.*.4"),
    (b"b.0.1", b"no.*", b"b.0.1"),
    (b">",),
]


@pytest.fixture(scope="module")
def store() -> MemStore:
    store = MemStore()
    names = [b"a.%d" % n for n in range(20_000)]
    names += [b"a.%d.%d" % (n, leaf) for n in range(200) for leaf in range(100)]
    names += [b"b.%d.%d" % (n, leaf) for n in range(100) for leaf in range(50)]
    for seq, name in enumerate(names, 1):
        store.store(name, b"", b"", seq)
    return store


def subjects(store: MemStore) -> list[bytes]:
    found = [store.get(seq) for seq in range(1, store.last_seq + 1)]
    return [message.subject for message in found if message is not None]


def walked(walk: SubjectWalk, limit: int) -> tuple[list[bytes], int]:
    """Return the subjects that the walk finds, and the largest number found in one step."""
    before, most = 0, 0
    while not walk.look(limit):
        most = max(most, walk.total - before)
        before = walk.total
    found = list(walk.take(1 << 30))
    assert walk.total == len(found)
    return found, most


@pytest.mark.parametrize("patterns", FILTERS, ids=str)
@pytest.mark.parametrize("limit", [1, 1_000, 1 << 30])
def test_a_walk_takes_each_matching_subject_once(
    store: MemStore, patterns: tuple[bytes, ...], limit: int
) -> None:
    found, _ = walked(SubjectWalk(store.catalogue, store.make_filter(patterns)), limit)
    # then
    wanted = {name for name in subjects(store) if any(subject_matches(name, p) for p in patterns)}
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("patterns", [(b"*.*",), (b"a.>", b"b.>"), (b"*.*.*",)], ids=str)
def test_no_step_of_a_walk_does_more_than_a_pattern_may(store: MemStore, patterns: tuple[bytes, ...]) -> None:
    walk = SubjectWalk(store.catalogue, store.make_filter(patterns))
    assert walk.total == 0  # the search begins with the first step
    found, most = walked(walk, limit=1)
    assert len(found) > most
    assert most <= LOOKS


def test_subjects_that_came_or_went_after_the_walk_began_are_left_out() -> None:
    # given
    store = MemStore()
    for seq in range(1, 2_001):
        store.store(b"a.%d" % seq, b"", b"", seq)
    walk = SubjectWalk(store.catalogue, store.make_filter((b"a.1", b"a.2", b"*.new")))
    assert not walk.look(1)
    # when
    store.store(b"a.new", b"", b"", 2_001)
    assert store.drop_seq(1)
    # then
    while not walk.look(1):
        pass
    assert walk.total == 2
    assert list(walk.take(10)) == [b"a.2"]
