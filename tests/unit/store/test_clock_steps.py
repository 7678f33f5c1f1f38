"""The steps of a stream's clock: the time a window ago, bounds, and their encoding."""

from __future__ import annotations

import random
import struct

import pytest

from pyjs.store.clock_steps import ClockSteps

MOST = (1 << 63) - 1


def steps(*pairs: tuple[int, int]) -> bytes:
    """Return encoded steps."""
    return b"".join(struct.pack("<qq", *pair) for pair in pairs)


def loaded(data: bytes, last_ns: int = MOST) -> ClockSteps:
    """Return the steps of an encoding."""
    made = ClockSteps()
    made.load(data, last_ns)
    return made


def test_a_window_without_steps_is_a_difference() -> None:
    assert ClockSteps().horizon(100, 30) == 70
    assert ClockSteps().horizon(100, MOST) == 100 - MOST
    assert ClockSteps().encode() == b""


def test_a_window_across_steps_is_longer_by_each_of_them() -> None:
    made = loaded(steps((1000, 100), (2000, 500)))
    assert made.horizon(2300, 200) == 2100
    assert made.horizon(2300, 300) == 2000
    assert made.horizon(2300, 301) == 1499
    assert made.horizon(2300, 800) == 1000
    assert made.horizon(2300, 801) == 899
    assert made.horizon(1100, 200) == 800  # before the second step


def test_a_step_is_at_most_the_time_between_the_entries() -> None:
    made = ClockSteps()
    made.add(100, 150, 70)
    made.add(150, 150, 70)
    made.add(150, 160, -1)
    made.add(160, MOST, MOST)
    assert made.encode() == steps((150, 50), (MOST, MOST - 160))


def test_the_oldest_steps_are_joined() -> None:
    made = ClockSteps()
    for number in range(1, 12):
        made.add(number * 100, number * 100 + 50, 10)
    assert made.count == 8
    assert made.encode()[:32] == steps((450, 40), (550, 10))
    assert loaded(made.encode()).encode() == made.encode()


def test_passed_steps_are_dropped() -> None:
    made = loaded(steps((1000, 100), (2000, 500), (3000, 1)))
    made.drop_until(999)
    assert made.count == 3
    made.drop_until(2000)
    assert made.encode() == steps((3000, 1))
    made.clear()
    assert made.count == 0


@pytest.mark.parametrize(
    "data",
    [
        bytes(1),
        bytes(17),
        steps((100, 0)),
        steps((100, -1)),
        steps((100, 100)),
        steps((-100, 1)),
        steps((-(1 << 63), MOST)),
        steps((MOST, MOST)),
        steps((200, 10), (100, 10)),
        steps((200, 10), (205, 10)),
        steps((200, 10), (1001, 10)),
        steps(*((number * 10, 1) for number in range(1, 10))),
    ],
)
def test_impossible_steps_are_refused(data: bytes) -> None:
    made = loaded(steps((50, 3)))
    with pytest.raises(ValueError, match="clock step"):
        made.load(data, 1000)
    assert made.encode() == steps((50, 3))


def test_the_time_a_window_ago_never_decreases() -> None:
    rng = random.Random(1)
    for _ in range(200):
        made, now, newest = ClockSteps(), 1, 0
        for _ in range(50):
            last, now = now, now + rng.randrange(1, 200)
            if made.count < 8 and rng.random() < 0.3:
                made.add(last, now, rng.randrange(300))
            horizon = made.horizon(now, 150)
            assert horizon >= newest or newest == 0
            newest = max(horizon, 0)
            made.drop_until(horizon)
            assert made.horizon(now, 150) == horizon
