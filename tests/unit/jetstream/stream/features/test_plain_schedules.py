"""The fast path for schedules in their usual form, compared with the reader of all forms (schedule.py)."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.headers import fields_of
from pyjs.jetstream.stream.features.plain_schedules import read
from pyjs.jetstream.stream.features.schedule import Due, continued_by, ended_by, next_due

NOW = 1_700_000_000_000_000_000
AT = "Nats-Schedule: @at 2026-02-28T23:59:59"
TARGET = "Nats-Schedule-Target: s.to"


def block(*lines: str) -> bytes:
    return "".join(line + "\r\n" for line in ("NATS/1.0", *lines)).encode() + b"\r\n"


def agrees(headers: bytes) -> bool:
    """Return whether the fast path reads a block, and check that schedule.py reads the same."""
    found = read(headers)
    if found is None:
        return False
    at_ns, target, rolls_up = found
    fields = fields_of(headers)
    assert next_due(headers, NOW, NOW) == Due(at_ns, False)
    assert fields.get(b"Nats-Schedule-Target", b"") == target
    assert fields.get(b"Nats-Rollup", b"") == (b"sub" if rolls_up else b"")
    known = ("Nats-Schedule", "Nats-Schedule-Target", "Nats-Rollup", "Nats-Msg-Id")
    assert {each for each in fields if each.startswith(b"Nats-")} <= {name.encode() for name in known}
    assert ended_by(headers) == b""
    assert continued_by(headers) is None
    return True


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)), st.integers(0, 10**9 - 1), st.integers(0, 9)
)
def test_every_time_of_this_century_is_read(at: datetime, ns: int, digits: int) -> None:
    fraction = f".{ns:09d}"[: digits + 1] if digits else ""
    assert agrees(block(f"Nats-Schedule: @at {at:%Y-%m-%dT%H:%M:%S}{fraction}Z", TARGET))


@pytest.mark.parametrize(
    "lines",
    [
        (AT + "Z", TARGET),
        (TARGET, AT + ".5Z", "Nats-Rollup: sub", "Nats-Msg-Id: 1", "Own: x", "No colon"),
        ("Nats-Schedule:   @at 2024-02-29T00:00:00Z", "Nats-Schedule-Target:a"),
        (AT + "Z",),
    ],
)
def test_the_usual_form_is_read(lines: tuple[str, ...]) -> None:
    assert agrees(block(*lines))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (TARGET,),
        ("Nats-Schedule: @every 1h", TARGET),
        (AT + "Z", AT + "Z", TARGET),
        (AT + "Z", TARGET, TARGET),
        (AT + "Z", TARGET, "Nats-Rollup: all"),
        (AT + "Z", TARGET, "Nats-Schedule-Source: a"),
        (AT + "Z", TARGET, "Nats-Schedule-TTL: 1m"),
        (AT + "Z", TARGET, "Nats-Schedule-Time-Zone: UTC"),
        (AT + "Z", TARGET, "Nats-Scheduler: a", "Nats-Schedule-Next: purge"),
        (AT + "Z", TARGET, "Nats-Expected-Stream: S"),
        (AT + "Z", TARGET, ""),
        (AT + "Z", "a\nNats-Schedule-Source: x"),
        (AT + "Z", "a\rb"),
        (AT + "+00:00", TARGET),
        (AT, TARGET),
        (AT + ".Z", TARGET),
        (AT + ".1234567890Z", TARGET),
        (AT + ",5Z", TARGET),
        (AT + ".5xZ", TARGET),
        ("Nats-Schedule: @at  2026-02-28T23:59:59Z", TARGET),
        ("Nats-Schedule: @at", TARGET),
        ("Nats-Schedule:", TARGET),
        *((f"Nats-Schedule: @at {at}Z", TARGET) for at in (
            "2026-02-29T00:00:00", "2026-13-01T00:00:00", "2026-00-01T00:00:00", "2026-01-00T00:00:00",
            "2026-01-01T24:00:00", "2026-01-01T00:60:00", "2026-01-01T00:00:60", "1999-01-01T00:00:00",
            "2100-01-01T00:00:00", "2026-01-01 00:00:00", "2026-1-01T000:00:00", "20x6-01-01T00:00:00",
        )),
    ],
)  # fmt: skip
def test_another_form_is_left_to_the_long_way(lines: tuple[str, ...]) -> None:
    assert read(block(*lines)) is None


@pytest.mark.parametrize("headers", [b"", b"NATS/1.0\r\n", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n"])
def test_a_block_without_lines_is_no_schedule(headers: bytes) -> None:
    assert read(headers) is None


@given(st.binary(max_size=12), st.integers(0, 80), st.integers(0, 12))
def test_a_damaged_block_is_read_the_same_way_or_not_at_all(put: bytes, at: int, cut: int) -> None:
    headers = block(AT + ".25Z", TARGET, "Own: x")
    damaged = headers[:at] + put + headers[at + cut :]
    try:
        agrees(damaged)
    except ApiError:
        pytest.fail(f"{damaged!r} is refused by the long way")


@pytest.mark.parametrize(
    ("target", "code"),
    [("s.to", 0), ("s.at", 10190), ("s.*", 10190), ("", 10190), ("t.to", 10190), ("q.x", 0)],
)
def test_its_target_is_checked_as_in_every_form(target: str, code: int) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s.>", "q.*"], allow_msg_schedules=True)
    for pattern in ("@at 2030-01-01T00:00:00Z", "@at 2030-01-01T00:00:00+00:00"):
        ack = js.publish("s.at", b"tick", Nats_Schedule=pattern, Nats_Schedule_Target=target)
        assert ack.get("error", {}).get("err_code", 0) == code


def test_a_stream_without_schedules_refuses_it() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s.>"])
    ack = js.publish("s.at", Nats_Schedule="@at 2030-01-01T00:00:00Z", Nats_Schedule_Target="s.to")
    assert ack["error"]["err_code"] == 10188
