"""The pace of a replay: rows are not sent faster than permitted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark.tests.conftest import arrow_or_skip

arrow_or_skip()
pytest.importorskip("pyspark")

import pyarrow as pa  # needs pyarrow

from pyjs_spark.lake.replay import paced as replay_sink
from pyjs_spark.lake.replay.paced import paced


class Clock:
    """A clock that advances when the code sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_s = 100.0
        monkeypatch.setattr(replay_sink, "time", self)

    def monotonic(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(rows))], ["n"])


def given(batches: Iterator[pa.RecordBatch], rate: int, clock: Clock) -> list[tuple[float, int]]:
    """Return when rows were yielded, and how many."""
    return [(round(clock.at_s - 100.0, 6), part.num_rows) for part in paced(batches, rate)]


def test_a_tenth_of_a_second_is_given_at_a_time(clock: Clock) -> None:
    assert given(iter([batch(25), batch(10)]), 100, clock) == [(0.0, 10), (0.1, 10), (0.2, 5), (0.25, 10)]


def test_fewer_than_ten_a_second_come_one_by_one(clock: Clock) -> None:
    assert given(iter([batch(3)]), 2, clock) == [(0.0, 1), (0.5, 1), (1.0, 1)]


def test_rows_that_come_late_are_not_made_up_for(clock: Clock) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield batch(10)
        clock.sleep(60.0)
        yield batch(30)

    assert given(slow(), 100, clock) == [(0.0, 10), (60.0, 10), (60.1, 10), (60.2, 10)]
