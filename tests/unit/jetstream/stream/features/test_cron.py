"""The times of cron patterns; tests/conformance/scenarios/schedule/patterns.txt tests which patterns are valid.

The expected times are results of nats-server 2.15's own function for the same patterns, zones and instants.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from pyjs.jetstream.stream.features import cron
from pyjs.jetstream.stream.features.cron import PATTERN_SIZE_MAX, parse_cron
from pyjs.jetstream.stream.features.schedule import Due

NS = 1_000_000_000
# pattern, zone, instant, and the first match after the instant; "-" stands for none
TIMES = [
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-30T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-30T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-30T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T02:30:00+01:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-25T02:30:00+01:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-30T02:00:00+02:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-30T02:00:00+02:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-30T02:00:00+02:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T02:00:00+02:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T02:00:00+01:00"),
    ("0 0 2 * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-26T02:00:00+01:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T03:00:00+02:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-29T03:00:00+02:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-30T03:00:00+02:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00+01:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T03:00:00+01:00"),
    ("0 0 3 * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-25T03:00:00+01:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T00:20:00+01:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-29T03:00:00+02:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-29T03:20:00+02:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T01:20:00+02:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T02:00:00+01:00"),
    ("0 */20 * * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-25T02:20:00+01:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-30T00:00:00+02:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-30T00:00:00+02:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-30T00:00:00+02:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-26T00:00:00+01:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-26T00:00:00+01:00"),
    ("0 0 0 * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-26T00:00:00+01:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T01:15:00+01:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-29T03:15:00+02:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-29T03:15:00+02:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T01:15:00+02:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T02:15:00+01:00"),
    ("0 15 1-3 * * *", "Europe/Berlin", "2026-10-25T01:01:00Z", "2026-10-25T02:15:00+01:00"),
    ("0 0 2 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-06T02:00:00+10:30"),
    ("0 0 2 * * *", "Australia/Lord_Howe", "2026-04-04T14:59:00Z", "2026-04-06T02:00:00+10:30"),
    ("0 0 2 * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", "2026-10-05T02:00:00+11:00"),
    ("0 0 2 * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z", "2026-10-05T02:00:00+11:00"),
    ("0 30 2 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-05T02:30:00+10:30"),
    ("0 30 2 * * *", "Australia/Lord_Howe", "2026-04-04T14:59:00Z", "2026-04-05T02:30:00+10:30"),
    ("0 30 2 * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", "2026-10-04T02:30:00+11:00"),
    ("0 30 2 * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z", "2026-10-04T02:30:00+11:00"),
    ("0 15 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-05T01:15:00+11:00"),
    ("0 15 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:59:00Z", "2026-04-06T01:15:00+10:30"),
    ("0 15 1 * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", "2026-10-04T01:15:00+10:30"),
    ("0 15 1 * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z", "2026-10-05T01:15:00+11:00"),
    ("0 0,30 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-05T01:30:00+11:00"),
    ("0 0,30 * * * *", "Australia/Lord_Howe", "2026-04-04T14:59:00Z", "2026-04-05T01:30:00+10:30"),
    ("0 0,30 * * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", "2026-10-04T01:30:00+10:30"),
    ("0 0,30 * * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z", "2026-10-04T02:30:00+11:00"),
    ("0 0 0 * * *", "Africa/Cairo", "2026-04-23T20:00:00Z", "2026-04-25T00:00:00+03:00"),
    ("0 0 0 * * *", "Africa/Cairo", "2026-04-23T21:59:00Z", "2026-04-25T00:00:00+03:00"),
    ("0 30 0 * * *", "Africa/Cairo", "2026-04-23T20:00:00Z", "2026-04-25T00:30:00+03:00"),
    ("0 0 0 1 * *", "America/Sao_Paulo", "2018-11-04T02:53:20Z", "2019-01-01T00:00:00-02:00"),
    ("0 0 0 4 11 *", "America/Sao_Paulo", "2018-11-02T23:06:40Z", "2019-11-04T00:00:00-03:00"),
    ("0 0 9 * * mon-fri", "America/New_York", "2026-03-29T01:00:00Z", "2026-03-30T09:00:00-04:00"),
    ("0 0 9 * * mon-fri", "Asia/Kolkata", "2026-03-29T01:00:00Z", "2026-03-30T09:00:00+05:30"),
    ("0 0 0 29 2 *", "", "2026-03-29T01:00:00Z", "2028-02-29T00:00:00Z"),
    ("0 0 0 29 2 *", "", "2026-02-28T23:59:59Z", "2028-02-29T00:00:00Z"),
    ("0 0 0 31 * *", "", "2026-03-29T01:00:00Z", "2026-03-31T00:00:00Z"),
    ("0 0 0 31 * *", "", "2026-02-28T23:59:59Z", "2026-03-31T00:00:00Z"),
    ("0 0 0 13 * 5", "", "2026-03-29T01:00:00Z", "2026-04-03T00:00:00Z"),
    ("0 0 0 13 * 5", "", "2026-02-28T23:59:59Z", "2026-03-06T00:00:00Z"),
    ("0 0 0 13 * ?", "", "2026-03-29T01:00:00Z", "2026-04-13T00:00:00Z"),
    ("0 0 0 13 * ?", "", "2026-02-28T23:59:59Z", "2026-03-13T00:00:00Z"),
    ("59 59 23 31 12 *", "", "2026-03-29T01:00:00Z", "2026-12-31T23:59:59Z"),
    ("59 59 23 31 12 *", "", "2026-02-28T23:59:59Z", "2026-12-31T23:59:59Z"),
    ("0 0 0 , * 1", "", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"),
    ("0 0 0 , * 1", "", "2026-02-28T23:59:59Z", "2026-03-02T00:00:00Z"),
    ("0 0 0 30 2 *", "", "2026-03-29T01:00:00Z", "-"),
    ("0 0 0 30 2 *", "", "2026-02-28T23:59:59Z", "-"),
    ("7/13 * * * * *", "", "2026-03-29T01:00:00Z", "2026-03-29T01:00:07Z"),
    ("7/13 * * * * *", "", "2026-02-28T23:59:59Z", "2026-03-01T00:00:07Z"),
    ("* * * * * *", "", "2026-03-29T01:00:00Z", "2026-03-29T01:00:01Z"),
    ("* * * * * *", "", "2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"),
    ("0 0 0 1 1,6 0", "", "2026-03-29T01:00:00Z", "2026-06-01T00:00:00Z"),
    ("0 0 0 1 1,6 0", "", "2026-02-28T23:59:59Z", "2026-06-01T00:00:00Z"),
    ("0 0 12 */2 * 1", "", "2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"),
    ("0 0 12 */2 * 1", "", "2026-02-28T23:59:59Z", "2026-03-01T12:00:00Z"),
    ("0 0 12 1/2 * 1", "", "2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"),
    ("0 0 12 1/2 * 1", "", "2026-02-28T23:59:59Z", "2026-03-01T12:00:00Z"),
]


@pytest.mark.parametrize(("pattern", "zone", "after", "expected"), TIMES)
def test_the_next_match_is_that_of_nats_server(pattern: str, zone: str, after: str, expected: str) -> None:
    cron, place = parse_cron(pattern), ZoneInfo(zone) if zone else None
    assert cron is not None
    found = cron.next_after(int(datetime.fromisoformat(after).timestamp()), place)
    assert ("-" if found is None else Due(found * NS, True, place).text.decode()) == expected


@pytest.mark.parametrize("field", range(6))
def test_every_field_refuses_what_is_no_range(field: int) -> None:
    for wrong in ("x", "1-2-3", "1/2/3", "5-1", "60", "-1", "1/0", "", "1/x", "²"):
        fields = ["*"] * 6
        fields[field] = wrong
        assert parse_cron(" ".join(fields)) is None


@pytest.mark.parametrize("field", [0, 1, 2, 4])
def test_a_field_without_values_never_matches(field: int) -> None:
    fields = ["*"] * 6
    fields[field] = ","
    cron = parse_cron(" ".join(fields))
    assert cron is not None
    assert cron.next_after(0, None) is None


def test_a_long_pattern_is_invalid() -> None:
    longest = "0," * ((PATTERN_SIZE_MAX - 10) // 2) + "0"
    assert parse_cron(f"{longest} 0 0 1 1 *") is None
    assert parse_cron(f"{longest[:-9]} 0 0 1 1 *") is not None


@pytest.mark.parametrize("dates", ["31 2,4,6,9,11 *", "30-31 feb *", ", * *", "* * ,", "* , *", "30 2 ,"])
def test_a_date_that_does_not_exist_is_not_searched_day_by_day(
    dates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron, "YEARS_MAX", 10**9)  # a search would not end
    pattern = parse_cron(f"0 0 0 {dates}")
    assert pattern is not None
    assert pattern.next_after(0, ZoneInfo("Europe/Berlin")) is None
