"""Filters of a query that the plan of a batch can use: bounds of sequence and time, subjects, streams.

A filter that the plan applies exactly is not returned to Spark. A filter that only narrows the read is returned,
so that Spark applies it again. The filters are pyspark's; they are recognised by the names of their classes, so that
this module does not need pyspark.

A filter on `ts` assumes that times ascend in the stream; the server assumes the same for a start time. A message
that was stored while the server's clock was behind may be missed. That is why pushdown is an option.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pyjs_spark.options.values import SEQ_MAX
from pyjs_spark.subjects import covers, is_subject
from pyjs_spark.times import EPOCH

NEVER_NULL = ("stream", "seq", "ts", "ts_ns", "subject", "data", "size")
NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the rows to read, after filters."""

    seq_low: int = 1
    seq_high: int = SEQ_MAX  # exclusive
    low_ns: int | None = None
    high_ns: int | None = None  # exclusive
    subjects: tuple[str, ...] | None = None  # None: the subjects of the options
    streams: frozenset[str] | None = None  # None: all streams

    @property
    def is_empty(self) -> bool:
        """Return whether these bounds exclude every row."""
        return self.subjects == () or self.streams == frozenset() or self.seq_low >= self.seq_high


def push(filters: Iterable[Any], subjects: tuple[str, ...]) -> tuple[Bounds, list[Any]]:
    """Return the bounds that `filters` set, and the filters that Spark must still apply.

    `subjects` is the server-side filter of the options; () means all.
    """
    bounds, rest = Bounds(), []
    for each in filters:
        narrowed, is_exact = _one(each, bounds, subjects)
        bounds = narrowed
        if not is_exact:
            rest.append(each)
    return bounds, rest


def _one(each: Any, bounds: Bounds, subjects: tuple[str, ...]) -> tuple[Bounds, bool]:
    """Return the bounds narrowed by a filter, and whether they apply the filter exactly."""
    kind = type(each).__name__
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0].lower() if len(path) == 1 else ""
    if kind == "IsNotNull":
        return bounds, column in NEVER_NULL
    if not hasattr(each, "value"):
        return bounds, False
    if column == "seq":
        return _seq(kind, each.value, bounds)
    if column in ("ts", "ts_ns"):
        return _time(kind, each.value, bounds), False
    if column == "stream":
        return _stream(kind, each.value, bounds)
    if column == "subject":
        return _subject(kind, each.value, bounds, subjects)
    return bounds, False


def _seq(kind: str, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    span = _span(kind, value, 1) if type(value) is int else None
    if span is None:
        return bounds, False
    low, high = span
    low = bounds.seq_low if low is None else max(bounds.seq_low, low)
    high = bounds.seq_high if high is None else min(bounds.seq_high, high)
    return replace(bounds, seq_low=low, seq_high=max(high, 1)), True


def _time(kind: str, value: Any, bounds: Bounds) -> Bounds:
    """Return the bounds narrowed by a filter on `ts`, whose value is a datetime, or on `ts_ns`."""
    span = None
    if isinstance(value, datetime) and value.tzinfo is not None:
        span = _span(kind, (value - EPOCH) // timedelta(microseconds=1) * NS_PER_US, NS_PER_US)
    elif type(value) is int:
        span = _span(kind, value, 1)
    low, high = span or (None, None)
    lows = [each for each in (low, bounds.low_ns) if each is not None]
    highs = [each for each in (high, bounds.high_ns) if each is not None]
    return replace(bounds, low_ns=max(lows, default=None), high_ns=min(highs, default=None))


def _span(kind: str, value: int, unit: int) -> tuple[int | None, int | None] | None:
    """Return the range [low, high) of the values that match the filter, or None if they form no range.

    `unit` is the resolution of the column: a value v of the column stands for [v, v + unit).
    """
    ranges: dict[str, tuple[int | None, int | None]] = {
        "EqualTo": (value, value + unit),
        "GreaterThan": (value + unit, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + unit),
    }
    return ranges.get(kind)


def _stream(kind: str, value: Any, bounds: Bounds) -> tuple[Bounds, bool]:
    names = _names(kind, value)
    if names is None:
        return bounds, False
    asked = frozenset(names)
    return replace(bounds, streams=asked if bounds.streams is None else asked & bounds.streams), True


def _subject(kind: str, value: Any, bounds: Bounds, subjects: tuple[str, ...]) -> tuple[Bounds, bool]:
    """Return the bounds narrowed by a filter on `subject`, and whether they apply the filter exactly."""
    if bounds.subjects is not None:
        return bounds, False  # Spark applies a second filter on subjects
    names = _names(kind, value)
    if names is not None:
        if not all(_is_literal(name) for name in names):
            return bounds, False
        inside = [name for name in names if not subjects or any(covers(wide, name) for wide in subjects)]
        return replace(bounds, subjects=tuple(dict.fromkeys(inside))), True
    if kind != "StringStartsWith" or not isinstance(value, str):
        return bounds, False
    stem = value.rpartition(".")[0]
    below = f"{stem}.>"
    if not _is_literal(stem):
        return bounds, False
    if subjects and not any(covers(wide, below) for wide in subjects):
        return bounds, False
    return replace(bounds, subjects=(below,)), value == f"{stem}."


def _is_literal(subject: str) -> bool:
    """Return whether `subject`, as a filter of the server, matches only this subject.

    The result is False for a subject with U+FFFD, since this character may stand for any other bytes.
    """
    return is_subject(subject) and not {"*", ">"} & set(subject.split(".")) and "\ufffd" not in subject


def _names(kind: str, value: Any) -> tuple[str, ...] | None:
    values = (value,) if kind == "EqualTo" else tuple(value) if kind == "In" else ()
    return values if values and all(isinstance(each, str) for each in values) else None
