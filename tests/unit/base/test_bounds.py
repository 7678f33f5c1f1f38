"""Ranges of incoming numbers."""

from __future__ import annotations

import pytest

from pyjs.base import bounds
from pyjs.base.bounds import INT64, SPAN_NS, TAKEN, TIME_NS, Range, taken, wrapped_ns

NOW_NS = 1_790_000_000_000_000_000


def test_a_range_gives_the_nearest_number_of_its_own() -> None:
    assert [Range(-2, 3).clamp(value) for value in (-(10**30), -2, 0, 3, 4)] == [-2, -2, 0, 3, 3]


def test_a_time_and_two_spans_fit_in_64_bits() -> None:
    assert NOW_NS + 2 * SPAN_NS.high <= INT64.high


@pytest.mark.parametrize("field", TAKEN)
def test_what_the_engine_takes_fits_in_64_bits(field: str) -> None:
    for value in (-(10**40), -1, 0, 1, 10**40):
        assert INT64.low <= taken(field, value) <= INT64.high


def test_a_field_keeps_what_it_takes() -> None:
    assert [taken("max_deliver", value) for value in (-1, 0, 5, 2**63 - 1)] == [0, 0, 5, 2**32 - 1]


@pytest.mark.parametrize("time_ns", [0, -1, NOW_NS, INT64.low, INT64.high])
def test_a_time_of_64_bits_is_itself(time_ns: int) -> None:
    assert wrapped_ns(time_ns) == time_ns


def test_a_time_of_more_bits_is_what_is_left_of_them() -> None:
    assert wrapped_ns(INT64.high + 1) == INT64.low
    assert wrapped_ns(TIME_NS.high) == TIME_NS.high - 14 * 2**64
    assert bounds.UINT64.high == 2**64 - 1
