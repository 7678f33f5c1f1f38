"""The next firing of a schedule, and its product; refused publishes are in the scenarios schedule/."""

from __future__ import annotations

import pytest

from pyjs.base.bounds import INT64
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.schedule import (
    Due,
    continued_by,
    ended_by,
    following,
    next_due,
    produced_headers,
    with_rollup,
)

S = 1_000_000_000
NOW = 1_700_000_000 * S  # 2023-11-14T22:13:20Z


def block(*lines: str) -> bytes:
    return "".join(line + "\r\n" for line in ("NATS/1.0", *lines)).encode() + b"\r\n"


def due(pattern: str, after_ns: int = NOW, now_ns: int = NOW, zone: str = "") -> Due:
    lines = [f"Nats-Schedule: {pattern}", *([f"Nats-Schedule-Time-Zone: {zone}"] if zone else [])]
    found = next_due(block(*lines), after_ns, now_ns)
    assert found is not None
    return found


def text(pattern: str, after_ns: int = NOW, now_ns: int = NOW, zone: str = "") -> str:
    return due(pattern, after_ns, now_ns, zone).text.decode()


def test_a_time_is_due_once_even_when_it_has_passed() -> None:
    assert due("@at 2020-01-01T00:00:00Z") == Due(1_577_836_800 * S, False)
    assert due("@at 2020-01-01T1:00:00.5+01:00").at_ns == 1_577_836_800 * S + S // 2


def test_an_interval_counts_from_whole_seconds() -> None:
    assert text("@every 1h") == "2023-11-14T23:13:20Z"
    assert text("@every 1.5s", NOW + S // 2) == "2023-11-14T22:13:22.5Z"
    assert text("@every 10s", NOW + S // 2 - 1) == "2023-11-14T22:13:30Z"


def test_firings_that_have_passed_are_skipped() -> None:
    assert text("@every 10s", NOW - 95 * S) == "2023-11-14T22:13:30Z"
    assert text("@every 10s", NOW - 10 * S) == "2023-11-14T22:13:20Z"
    assert text("@hourly", NOW - 10 * 3600 * S) == "2023-11-14T23:00:00Z"


def test_a_zone_moves_the_fields_and_shows_its_offset() -> None:
    assert text("@daily", zone="America/New_York") == "2023-11-15T00:00:00-05:00"
    assert text("0 30 9 * * *", zone="Asia/Kathmandu") == "2023-11-15T09:30:00+05:45"
    assert text("@daily", zone="Europe/London") == "2023-11-15T00:00:00Z"
    assert text("@daily", zone="UTC") == text("@daily", zone="Local") == "2023-11-15T00:00:00Z"


def test_times_beyond_the_range_of_the_clock_stay_at_its_end() -> None:
    assert due("@at 9999-12-31T23:59:59Z").at_ns == INT64.high
    assert due("@at 0001-01-02T00:00:00Z").at_ns == INT64.low
    assert due("@every 2562047h").at_ns == INT64.high


@pytest.mark.parametrize(
    "pattern",
    ["@at 0001-01-01T00:00:00Z", f"@every {'1s' * 501}", "@at 2100-01-01T00:00:00+25:00", "@every x"],
)
def test_an_invalid_pattern_is_named(pattern: str) -> None:
    with pytest.raises(ApiError, match="pattern is invalid"):
        due(pattern)


@pytest.mark.parametrize("zone", ["x" * 256, "..", "\N{SNOWMAN}", "a\0b", "Europe"])
def test_a_zone_that_does_not_exist_is_named(zone: str) -> None:
    with pytest.raises(ApiError, match="time zone is invalid"):
        due("@daily", zone=zone)


def test_a_message_without_a_schedule_is_none() -> None:
    assert next_due(block("Nats-Schedule-Target: a"), NOW, NOW) is None
    assert following(block("Nats-Schedule-Target: a"), NOW, NOW) is None


@pytest.mark.parametrize(
    "lines",
    [
        ("Nats-Schedule: nonsense", "Nats-Schedule-Target: a"),
        ("Nats-Schedule: @hourly",),
        ("Nats-Schedule: @hourly", "Nats-Schedule-Target: a", "Nats-Schedule-TTL: x"),
    ],
)
def test_a_stored_schedule_that_no_publish_could_store_does_not_fire(lines: tuple[str, ...]) -> None:
    assert following(block(*lines), NOW, NOW) is None


def test_a_product_has_the_headers_of_its_content_without_those_of_schedules() -> None:
    schedule = block("Nats-Schedule: @every 1h", "Nats-Schedule-TTL: 5m", "Nats-Schedule-Rollup: sub")
    content = block(
        "Own: 1", "Nats-Schedule: @hourly", "Nats-Schedule-Target: x", "Nats-Scheduler: y", "Nats-Expected-Stream: S",
        "Nats-Msg-Id: 7", "Nats-TTL: 1h", "Nats-Rollup: sub", "Nats-TTL-Other: kept",
    )  # fmt: skip

    made = produced_headers(schedule, b"at.1", content, due("@every 1h"))

    assert made == block(
        "Own: 1", "Nats-TTL-Other: kept", "Nats-Scheduler: at.1", "Nats-Schedule-Next: 2023-11-14T23:13:20Z",
        "Nats-TTL: 5m", "Nats-Rollup: sub",
    )  # fmt: skip


def test_the_last_product_tells_that_the_schedule_is_over() -> None:
    made = produced_headers(b"", b"at.1", b"", due("@at 2020-01-01T00:00:00Z"))
    assert made == block("Nats-Scheduler: at.1", "Nats-Schedule-Next: purge")
    assert ended_by(made) == b"at.1"
    assert continued_by(made) is None


def test_a_product_tells_when_its_schedule_fires_next() -> None:
    made = block("Nats-Scheduler: at.1", "Nats-Schedule-Next: 2023-11-14T22:13:20Z")
    assert continued_by(made) == (b"at.1", NOW)
    assert ended_by(made) == b""
    assert continued_by(block("Nats-Scheduler: at.1", "Nats-Schedule-Next: soon")) is None
    assert continued_by(block("Nats-Schedule-Next: 2023-11-14T22:13:20Z")) is None
    assert ended_by(block("Nats-Schedule-Next: purge", "Nats-Scheduler: a.*")) == b""


def test_a_schedule_rolls_its_subject_up() -> None:
    assert with_rollup(block("Nats-Schedule: @hourly")) == block("Nats-Schedule: @hourly", "Nats-Rollup: sub")
    assert with_rollup(block("Nats-Schedule: x", "Nats-Rollup: all")) == block(
        "Nats-Schedule: x", "Nats-Rollup: all"
    )
    assert with_rollup(block("Other: x")) == block("Other: x")
