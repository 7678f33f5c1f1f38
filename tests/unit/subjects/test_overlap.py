"""Overlap of subjects: the tree, compared with a check of each pair."""

from __future__ import annotations

import gc
import random

from pyjs.subjects.overlap import STEP, SubjectTree, at_once, first_covered, first_overlap
from pyjs.subjects.tokens import is_subset, subjects_overlap


def some_subject(rng: random.Random) -> str:
    tokens = [rng.choice(("a", "b", "c", "*")) for _ in range(rng.randrange(1, 5))]
    if rng.random() < 0.2:
        tokens.append(">")
    return ".".join(tokens)


def slow_first_overlap(subjects: list[str]) -> str | None:
    for at, subject in enumerate(subjects):
        others = [other for index, other in enumerate(subjects) if index != at]
        if any(subjects_overlap(subject.encode(), other.encode()) for other in others):
            return subject
    return None


def test_the_first_overlap_is_that_of_pairs() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        subjects = [some_subject(rng) for _ in range(rng.randrange(1, 6))]

        assert at_once(first_overlap(subjects)) == slow_first_overlap(subjects), subjects


def slow_first_covered(subjects: list[str]) -> str | None:
    for at, subject in enumerate(subjects):
        others = [other for index, other in enumerate(subjects) if index != at]
        if any(is_subset(subject.encode(), other.encode()) for other in others):
            return subject
    return None


def test_the_first_that_another_one_covers_is_that_of_pairs() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        subjects = [some_subject(rng) for _ in range(rng.randrange(1, 6))]

        assert at_once(first_covered(subjects)) == slow_first_covered(subjects), subjects


def test_a_search_leaves_out_one_owner_and_what_was_removed() -> None:
    rng = random.Random(2)
    tree = SubjectTree()
    there: list[tuple[str, str]] = []
    for _ in range(3000):
        if there and rng.random() < 0.45:
            tree.remove(*there.pop(rng.randrange(len(there))))
        else:
            there.append((some_subject(rng), rng.choice("XYZ")))
            tree.add(*there[-1])
        asked, owner = some_subject(rng), rng.choice("XYZ")

        found = at_once(tree.overlapping(asked, owner))

        expected = any(subjects_overlap(asked.encode(), each.encode()) for each, own in there if own != owner)
        assert found == expected, (asked, owner, there)


def test_an_empty_tree_holds_nothing() -> None:
    tree = SubjectTree()
    tree.add("a.b.c", "X")
    tree.remove("a.b.c", "X")

    assert tree.is_empty


def test_every_change_has_a_version() -> None:
    tree = SubjectTree()
    tree.add("a", "X")
    tree.remove("a", "X")

    assert tree.version == 2


def test_a_search_that_meets_many_branches_takes_steps() -> None:
    tree = SubjectTree()
    for number in range(3 * STEP):
        tree.add(f"s{number}.a", "X")

    steps = list(tree.overlapping("*.b", "Y"))

    assert len(steps) == 3


def test_ten_thousand_subjects_take_a_few_dozen_steps() -> None:
    steps = list(first_overlap(f"s{number}.a" for number in range(10_000)))

    assert 5 < len(steps) < 40


def test_a_subject_of_its_own_overlaps_with_none_and_is_not_walked_however_long() -> None:
    subject = ".".join(["a"] * 100_000)

    assert list(first_overlap([subject])) == []
    assert list(first_covered([subject])) == []


def branches() -> int:
    """Return the number of branches of all trees."""
    return sum(type(each).__name__ == "_Branch" for each in gc.get_objects())


def test_the_tokens_that_only_one_subject_has_make_no_branches() -> None:
    deep = ".".join(["a"] * 100_000)
    tree = SubjectTree()
    before = branches()
    tree.add(deep, "X")
    tree.add("b.c.d.e", "Y")

    assert branches() - before <= 2
    assert at_once(tree.overlapping("b.c.*.e"))
    assert not at_once(tree.overlapping("b.c.e"))
    tree.remove(deep, "X")
    tree.remove("b.c.d.e", "Y")
    assert tree.is_empty


def test_a_subject_that_two_owners_have_stays_until_both_are_gone() -> None:
    tree = SubjectTree()
    tree.add("a.b.c.d", "X")
    tree.add("a.b.c.d", "Y")
    tree.remove("a.b.c.d", "X")

    assert at_once(tree.overlapping("a.b.c.d", "X"))
    assert not at_once(tree.overlapping("a.b.c.d", "Y"))
    tree.remove("a.b.c.d", "Y")
    assert tree.is_empty
