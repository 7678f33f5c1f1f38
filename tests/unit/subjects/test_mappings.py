"""Mappings: the first one that matches applies, and weights are shares of the messages."""

from __future__ import annotations

from collections import Counter

import pytest

from pyjs.base.rng import SeededRng
from pyjs.subjects.mappings import Destinations, Mappings
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.transform import SubjectTransform


def mapped(*entries: tuple[str, list[tuple[str, int]]]) -> Mappings:
    return Mappings(
        [
            Destinations(
                [(Rewrite(SubjectTransform(source, to, SeededRng(1))), weight) for to, weight in many]
            )
            for source, many in entries
        ],
        seed=3,
    )


def test_the_first_mapping_that_matches_counts() -> None:
    mappings = mapped(("a.b", [("first", 100)]), ("a.*", [("second.$1", 100)]))
    assert mappings.subject(b"a.b") == b"first"
    assert mappings.subject(b"a.c") == b"second.c"
    assert mappings.subject(b"b.c") == b"b.c"


def test_weights_are_shares_of_the_messages() -> None:
    mappings = mapped(("a", [("x", 70), ("y", 20), ("z", 10)]))
    counts = Counter(mappings.subject(b"a") for _ in range(10_000))
    assert abs(counts[b"x"] - 7000) < 300
    assert abs(counts[b"y"] - 2000) < 300
    assert abs(counts[b"z"] - 1000) < 300


def test_weights_below_100_percent_lose_messages() -> None:
    mappings = mapped(("a", [("a", 40)]))
    counts = Counter(mappings.subject(b"a") for _ in range(10_000))
    assert set(counts) == {b"a", b""}
    assert abs(counts[b""] - 6000) < 300


def test_a_weight_of_0_loses_every_message() -> None:
    assert mapped(("a", [("a", 0)])).subject(b"a") == b""


def test_weights_above_100_percent_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        mapped(("a", [("x", 60), ("y", 60)]))
