"""The trie of subject tokens, tested by searches in a store with many subjects, and compared with a plain list."""

from __future__ import annotations

import random

import pytest
from tests.unit.store.file_state import subject_counts

from pyjs.store.memory import MemStore
from pyjs.subjects.tokens import subject_matches

FEW = 1000  # a store looks up this number of subjects individually
TOKENS = [b"a", b"b", b"cc", b"ccc", b"d" * 20]
PATTERNS = [
    b"a.>",
    b"*.b",
    b"*.*.cc",
    b"a.*.>",
    b"b.cc.*.a",
    b"*.>",
    b"a.b.cc",
    b"nope.*",
    b"*",
    b"a.*.*.*.*.*",
]
DEEP = b".".join([b"t"] * 30_000)


class Twin:
    """A store with a live message for each subject, and the same subjects in a dict."""

    def __init__(self) -> None:
        self.store = MemStore()
        self.seqs: dict[bytes, int] = {}
        for number in range(FEW + 1):
            self.add(b"many.%d" % number)
        assert self.store.catalogue.learn_subjects(self.store.make_filter((b"many.*",)), 1_000_000)

    def add(self, subject: bytes) -> None:
        self.seqs[subject] = self.store.store(subject, b"", b"", 1)

    def drop(self, subject: bytes) -> None:
        assert self.store.drop_seq(self.seqs.pop(subject))

    def found(self, pattern: bytes) -> set[bytes]:
        return set(subject_counts(self.store, self.store.make_filter((pattern,))))

    def expected(self, pattern: bytes) -> set[bytes]:
        return {subject for subject in self.seqs if subject_matches(subject, pattern)}


def some_subject(rng: random.Random) -> bytes:
    return b".".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 6)))


@pytest.mark.parametrize("seed", range(6))
def test_subjects_that_come_and_go_are_found_as_in_a_list(seed: int) -> None:
    rng, twin = random.Random(seed), Twin()
    for _ in range(40):
        for subject in {some_subject(rng) for _ in range(rng.randint(1, 60))}:
            if subject in twin.seqs:
                twin.drop(subject)
            else:
                twin.add(subject)
        for pattern in PATTERNS:
            assert twin.found(pattern) == twin.expected(pattern)


def test_a_subject_that_ends_where_others_go_on_is_found_before_and_after_they_left() -> None:
    twin = Twin()
    for subject in (b"x.y.z", b"x.y", b"x.y.z.1", b"x", b"x.y.z.2"):
        twin.add(subject)
        assert twin.found(b"x.>") == twin.expected(b"x.>")
    for subject in (b"x.y", b"x.y.z.1", b"x.y.z", b"x.y.z.2", b"x"):
        twin.drop(subject)
        for pattern in (b"x.>", b"x.*", b"x.*.z", b"*"):
            assert twin.found(pattern) == twin.expected(pattern)


def test_subjects_of_tens_of_thousands_of_tokens_are_added_found_and_removed() -> None:
    twin = Twin()
    deep = [DEEP + tail for tail in (b".a", b".b.c", b"", b".b")]
    for subject in deep:
        twin.add(subject)
    assert twin.found(b"t.>") == set(deep)
    assert twin.found(b"*." + DEEP[2:] + b".*") == {deep[0], deep[3]}
    for subject in deep:
        twin.drop(subject)
        assert twin.found(b"t.>") == twin.expected(b"t.>")


def test_a_branch_of_very_many_subjects_grows_and_shrinks() -> None:
    twin = Twin()
    for number in range(20_000):
        twin.add(b"wide.%d" % number)
    assert twin.found(b"wide.*") == twin.expected(b"wide.*")
    for number in range(19_990):
        twin.drop(b"wide.%d" % number)
    assert twin.found(b"wide.*") == twin.expected(b"wide.*")
