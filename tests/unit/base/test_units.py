from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs.base.gotext import duration_text
from pyjs.base.units import INT64_MAX, parse_duration_ns, parse_number


def test_a_duration_of_any_length_is_read_in_one_pass() -> None:
    assert parse_duration_ns("1ns" * 300_000) == 300_000
    assert (
        parse_duration_ns("1." + "0" * 100_000 + "s")
        == parse_duration_ns("0" * 100_000 + "1s")
        == 1_000_000_000
    )
    for text in ("9" * 100_000 + "ns", "9h" * 300_000):
        with pytest.raises(ValueError, match="longer than 292 years"):
            parse_duration_ns(text)
    with pytest.raises(ValueError, match=r"'x{40}[.]{3}' is no unit"):
        parse_duration_ns("1" + "x" * 100_000)


@pytest.mark.parametrize("text", ["9" * 100_000, "-" + "9" * 5_000 + "k"])
def test_a_number_of_any_length_is_too_large(text: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        parse_number(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("30s", 30_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5ms", 500_000),
        ("1.s", 1_000_000_000),
        ("250µs", 250_000),
        ("250μs", 250_000),
        ("7us", 7_000),
        ("9ns", 9),
        ("-2m", -120_000_000_000),
        ("+2m", 120_000_000_000),
        ("0.000000001s", 1),
        ("1h1h", 7_200_000_000_000),
    ],
)
def test_a_duration_is_read_exactly(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("-", "it is empty"),
        ("5", "the unit is missing"),
        ("1h5", "the unit is missing"),
        ("1d", "'d' is no unit"),
        ("s", "a number is missing before 's'"),
        ("1h ", "'h ' is no unit"),
        (".s", "a number is missing before '.s'"),
        ("300000000h", "longer than 292 years"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (1_000_000_000, "1s"),
        (90_000_000_000, "1m30s"),
        (5_400_000_000_000, "1h30m0s"),
        (-61_500_000_000, "-1m1.5s"),
        (3_600_000_000_001, "1h0m0.000000001s"),
    ],
)
def test_a_duration_is_written_in_its_shortest_form(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@given(st.integers(-INT64_MAX, INT64_MAX))
def test_a_written_duration_reads_back_as_itself(ns: int) -> None:
    assert parse_duration_ns(duration_text(ns)) == ns


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-1", -1),
        ("1k", 1_000),
        ("1K", 1_000),
        ("1kb", 1_024),
        ("1Ki", 1_024),
        ("1KiB", 1_024),
        ("1M", 1_000_000),
        ("1MB", 1_048_576),
        ("1G", 10**9),
        ("1GB", 1 << 30),
        ("2T", 2 * 10**12),
        ("2TiB", 2 << 40),
        ("1p", 10**15),
        ("1PB", 1 << 50),
        ("1e", 10**18),
        ("1EB", 1 << 60),
    ],
)
def test_a_bare_letter_counts_in_thousands_and_with_b_in_1024s(text: str, number: int) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["", "-", "k", "1kbb", "1.5k", "1 k", "9EB", "--1", "1b"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_number(text)
