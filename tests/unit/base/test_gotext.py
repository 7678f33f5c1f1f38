from datetime import UTC, datetime

import pytest

from pyjs.base.gotext import duration_text, moment_text, quoted, size_text, time_text, uptime_text

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0001-01-01T00:00:00Z"),
        (1_700_000_000 * SECOND, "2023-11-14T22:13:20Z"),
        (1_700_000_000 * SECOND + 41_985_490, "2023-11-14T22:13:20.04198549Z"),
        (1_700_000_000 * SECOND + 1, "2023-11-14T22:13:20.000000001Z"),
        (1_700_000_000 * SECOND + 500_000_000, "2023-11-14T22:13:20.5Z"),
    ],
)
def test_a_time_has_only_the_digits_that_are_not_zero(ns: int, text: str) -> None:
    assert time_text(ns) == text


def test_a_time_that_is_never_unset_begins_in_1970() -> None:
    assert moment_text(0) == "1970-01-01T00:00:00Z"
    assert moment_text(1_500_000_000) == time_text(1_500_000_000)


def test_times_of_every_day_of_many_years_are_those_of_the_calendar() -> None:
    for day in range(-40_000, 40_000, 7):
        second = day * 86400 + day * 12_345 % 86400
        if second:
            assert time_text(second * SECOND) == f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (742_000, "742µs"),
        (1_500, "1.5µs"),
        (9_999_999, "9.999999ms"),
        (SECOND, "1s"),
        (SECOND + 500_000_000, "1.5s"),
        (MINUTE, "1m0s"),
        (2 * MINUTE + 3 * SECOND, "2m3s"),
        (HOUR, "1h0m0s"),
        (26 * HOUR + 90 * SECOND + 1, "26h1m30.000000001s"),
        (-1_500_000, "-1.5ms"),
    ],
)
def test_a_duration_reads_as_in_go(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (3600, "1h0m0s"),
        (86400 * 2 + 5, "2d0h0m5s"),
        (86400 * 366, "1y1d0h0m0s"),
    ],
)
def test_an_uptime_starts_at_its_largest_part(seconds: int, text: str) -> None:
    assert uptime_text(seconds * SECOND) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KB"),
        (64 << 20, "64.00 MB"),
        (1 << 30, "1.00 GB"),
        (3 << 70, "3072.00 EB"),
    ],
)
def test_a_size_is_in_powers_of_1024(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_quoted_text_escapes_what_would_end_or_hide_it() -> None:
    assert quoted('a"b\\c\n\r\t\x01é') == '"a\\"b\\\\c\\n\\r\\t\\x01é"'
