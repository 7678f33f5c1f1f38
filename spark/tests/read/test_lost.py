"""The number of lost sequences: each counts once, however often its gap is found."""

from __future__ import annotations

from pyjs_spark.read.plan import Gap
from pyjs_spark.read.planner import LossCount


def test_a_gap_that_grows_counts_once() -> None:
    count = LossCount()
    for low, high in ((1, 5), (1, 5), (1, 8), (20, 22)):
        count.add(Gap("ORDERS", low, high, "why"))

    assert count.counts == {"ORDERS": 9}


def test_a_gap_without_an_end_counts_nothing() -> None:
    count = LossCount()
    count.add(Gap("ORDERS", 5, 0, "why"))

    assert count.counts == {}


def test_a_stream_that_was_made_again_begins_again() -> None:
    count = LossCount()
    count.add(Gap("ORDERS", 1, 11, "why"))
    count.begin_again("ORDERS")
    count.add(Gap("ORDERS", 3, 5, "why"))
    count.begin_again("OTHER")

    assert count.counts == {"ORDERS": 12}
