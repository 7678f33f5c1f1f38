"""When the next delivery may be sent: the intervals of a replay, and the token bucket of a rate limit."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.delivery.pacing import Pacing

MS = 1_000_000
SECOND = 1000 * MS
NOW = 1000 * SECOND
STORED = 5 * SECOND  # time at which the first message of a replay was stored


@pytest.fixture
def replay() -> Pacing:
    """Return the pacing of a replay whose first message, stored at STORED, was delivered at NOW."""
    pacing = Pacing(1000)
    assert not pacing.is_early(STORED, NOW)
    pacing.note_replayed(STORED, NOW)
    return pacing


@pytest.fixture
def limited() -> Pacing:
    """Return a limit of 1000 bytes per second, in bursts of 1000 bytes."""
    pacing = Pacing(1000)
    pacing.set_rate(8000)
    return pacing


# -- replay ----------------------------------------------------------------------------------------------------


def test_a_message_waits_as_long_as_it_was_stored_after_the_one_before(replay: Pacing) -> None:
    assert replay.is_early(STORED + 300 * MS, NOW + 298 * MS)
    assert replay.hold_until == NOW + 300 * MS


def test_a_message_may_come_a_millisecond_early(replay: Pacing) -> None:
    assert not replay.is_early(STORED + 300 * MS, NOW + 299 * MS)
    assert replay.hold_until == 0


def test_a_message_stored_before_its_predecessor_does_not_wait(replay: Pacing) -> None:
    assert not replay.is_early(STORED - SECOND, NOW)


def test_small_delays_do_not_add_up(replay: Pacing) -> None:
    replay.note_replayed(STORED + 100 * MS, NOW + 149 * MS)

    assert replay.is_early(STORED + 200 * MS, NOW + 150 * MS)
    assert replay.hold_until == NOW + 200 * MS


def test_a_late_delivery_begins_a_new_count(replay: Pacing) -> None:
    replay.note_replayed(STORED + 100 * MS, NOW + 150 * MS)

    assert replay.is_early(STORED + 200 * MS, NOW + 150 * MS)
    assert replay.hold_until == NOW + 250 * MS


# -- rate ------------------------------------------------------------------------------------------------------


def test_a_burst_passes_at_once_and_then_its_rate(limited: Pacing) -> None:
    assert limited.take_rate(600, NOW)
    assert limited.take_rate(400, NOW)

    assert not limited.take_rate(500, NOW)
    assert limited.hold_until == NOW + 500 * MS
    assert limited.take_rate(500, NOW + 500 * MS)


def test_bytes_that_were_refused_are_not_taken(limited: Pacing) -> None:
    limited.take_rate(1000, NOW)
    for _ in range(5):
        assert not limited.take_rate(1000, NOW)

    assert limited.take_rate(1000, NOW + SECOND)


def test_a_bucket_holds_no_more_than_a_burst(limited: Pacing) -> None:
    assert limited.take_rate(1000, NOW)

    assert limited.take_rate(1000, NOW + 60 * SECOND)
    assert not limited.take_rate(1, NOW + 60 * SECOND)


def test_a_message_larger_than_the_burst_passes_when_the_bucket_is_full(limited: Pacing) -> None:
    assert limited.take_rate(3000, NOW)

    assert not limited.take_rate(3000, NOW + 2999 * MS)
    assert limited.take_rate(3000, NOW + 3000 * MS)


def test_a_wait_is_no_shorter_than_a_millisecond(limited: Pacing) -> None:
    limited.set_rate(8_000_000_000)
    assert limited.take_rate(1000, NOW)

    assert not limited.take_rate(1, NOW)
    assert limited.hold_until == NOW + MS


def test_another_rate_begins_with_a_full_bucket(limited: Pacing) -> None:
    limited.take_rate(1000, NOW)
    limited.set_rate(8000)
    assert not limited.take_rate(1000, NOW)

    limited.set_rate(16000)

    assert limited.take_rate(1000, NOW)
