"""Go's duration texts."""

from __future__ import annotations

import pytest

from pyjs.jetstream.times import parse_duration_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("5s", 5_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("-2m30s", -150_000_000_000),
        ("+10ms", 10_000_000),
        ("3us", 3_000),
        ("3µs", 3_000),
        (".5s", 500_000_000),
        ("1ns", 1),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "s", "-", "1d", "1s2", "x", "1.s.s", "9999999999999h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration_ns(text)
