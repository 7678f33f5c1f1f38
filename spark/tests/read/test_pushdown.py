"""Filters: no matching row is lost, and filters that are applied exactly admit no other row."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs_spark.options.values import SEQ_MAX
from pyjs_spark.read.pushdown import Bounds, push
from pyjs_spark.subjects import covers
from pyjs_spark.times import EPOCH


@dataclass(frozen=True)
class Filter:
    """Stands in for a filter of pyspark; filters are recognised by the names of their classes."""

    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(Filter):
    pass


class GreaterThan(Filter):
    pass


class GreaterThanOrEqual(Filter):
    pass


class LessThan(Filter):
    pass


class LessThanOrEqual(Filter):
    pass


class In(Filter):
    pass


class StringStartsWith(Filter):
    pass


class StringContains(Filter):
    pass


class IsNotNull(Filter):
    pass


TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda cell, values: cell in values,
    StringStartsWith: lambda cell, value: cell.startswith(value),
    StringContains: lambda cell, value: value in cell,
    IsNotNull: lambda cell, _: True,
}
ORDER = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
TIMES = st.integers(0, 30).map(lambda us: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
SUBJECTS = st.sampled_from(["a", "a.b", "a.b.c", "a.c", "b", "b.c", "ab", "ab.c"])
BASE_NS = (datetime(2026, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000
FILTERS = st.one_of(
    st.builds(lambda kind, value: kind(("seq",), value), ORDER, st.integers(-2, 30)),
    st.builds(lambda kind, value: kind(("TS",), value), ORDER, TIMES),
    st.builds(lambda kind, value: kind(("ts_ns",), BASE_NS + value), ORDER, st.integers(0, 30_000)),
    st.builds(lambda value: EqualTo(("subject",), value), SUBJECTS),
    st.builds(lambda values: In(("subject",), tuple(values)), st.sets(SUBJECTS, min_size=1)),
    st.builds(
        lambda value: StringStartsWith(("subject",), value), st.sampled_from(["a", "a.", "a.b", "a.b."])
    ),
    st.builds(lambda value: StringContains(("subject",), value), SUBJECTS),
    st.builds(lambda values: In(("stream",), tuple(values)), st.sets(st.sampled_from("ST"), min_size=1)),
    st.builds(lambda column: IsNotNull((column,)), st.sampled_from(["seq", "ts", "subject", "headers"])),
)
WIDE = st.sampled_from([(), ("a.>", "a"), ("a.*",), ("a.b", "b.>")])


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    seq = draw(st.integers(1, 30))
    at_ns = BASE_NS + seq * 997
    ts = EPOCH + timedelta(microseconds=at_ns // 1000)
    return {
        "seq": seq,
        "ts_ns": at_ns,
        "ts": ts,
        "subject": draw(SUBJECTS),
        "stream": draw(st.sampled_from("ST")),
        "headers": {},
    }


def is_read(row: dict[str, Any], bounds: Bounds, wide: tuple[str, ...]) -> bool:
    """Return whether a read within these bounds returns the row."""
    subjects = wide if bounds.subjects is None else bounds.subjects
    has_subject = (bounds.subjects is None and not wide) or any(
        covers(each, row["subject"]) for each in subjects
    )
    has_stream = bounds.streams is None or row["stream"] in bounds.streams
    has_time = (bounds.low_ns or 0) <= row["ts_ns"] < (bounds.high_ns or SEQ_MAX)
    return has_subject and has_stream and has_time and bounds.seq_low <= row["seq"] < bounds.seq_high


def passes(row: dict[str, Any], filters: list[Filter]) -> bool:
    return all(TESTS[type(each)](row[each.attribute[0].lower()], each.value) for each in filters)


@given(st.lists(FILTERS, max_size=5), rows(), WIDE)
def test_bounds_and_the_filters_handed_back_are_the_filters(
    filters: list[Filter], row: dict[str, Any], wide: tuple[str, ...]
) -> None:
    bounds, rest = push(filters, wide)

    expected = is_read(row, Bounds(), wide) and passes(row, filters)
    assert (is_read(row, bounds, wide) and passes(row, rest)) == expected
    assert not (bounds.is_empty and expected)
    assert all(any(each is given for given in filters) for each in rest)


@pytest.mark.parametrize(
    "handed_back",
    [
        EqualTo(("subject",), "a.*"),
        EqualTo(("subject",), "with space"),
        EqualTo(("subject",), "broken.\ufffd"),
        In(("subject",), ("a", None)),
        StringStartsWith(("subject",), "nodot"),
        StringStartsWith(("subject",), ".x"),
        EqualTo(("seq",), 1.5),
        In(("seq",), (1, 2)),
        EqualTo(("ts",), datetime(2026, 1, 1)),
        EqualTo(("headers", "a"), "x"),
        EqualTo(("size",), 3),
        IsNotNull(("headers",)),
    ],
)
def test_what_cannot_be_used_is_handed_back_and_narrows_nothing(handed_back: Filter) -> None:
    assert push([handed_back], ()) == (Bounds(), [handed_back])


def test_a_prefix_of_a_subject_becomes_a_wildcard() -> None:
    exact, partial = StringStartsWith(("subject",), "orders.eu."), StringStartsWith(("subject",), "orders.eu")

    assert push([exact], ()) == (Bounds(subjects=("orders.eu.>",)), [])
    assert push([partial], ()) == (Bounds(subjects=("orders.>",)), [partial])
    assert push([partial], ("orders.eu.>",)) == (Bounds(), [partial])


def test_contradictions_leave_nothing_to_read() -> None:
    assert push([EqualTo(("stream",), "S"), EqualTo(("stream",), "T")], ())[0].is_empty
    assert push([EqualTo(("seq",), 5), EqualTo(("seq",), 6)], ())[0].is_empty
    assert push([EqualTo(("subject",), "b")], ("a.>",))[0].is_empty
