import pytest

from pyjs.base.clock import Clock
from pyjs.server.system.clock import OsRng, SystemClock


class SteeredClock(SystemClock):
    """A SystemClock with two readings that the test sets."""

    wall_ns = 1_000  # type: ignore[assignment]
    monotonic_ns = 0
    interrupted_ns = 0  # duration of an interruption between the two readings

    def _wall_ns(self) -> int:  # type: ignore[override]
        return self.wall_ns

    def _monotonic_ns(self) -> int:  # type: ignore[override]
        self.monotonic_ns += self.interrupted_ns
        return self.monotonic_ns


def test_time_begins_at_wall_time_and_moves_with_the_monotonic_clock() -> None:
    clock = SteeredClock()

    clock.wall_ns, clock.monotonic_ns = 1_500, 500

    assert (clock.now_ns(), clock.skew_ns(), Clock.wall_ns(clock)) == (1_500, 0, 1_500)


@pytest.mark.parametrize("step_ns", [10**15, -900])
def test_a_step_of_the_wall_clock_moves_no_deadline(step_ns: int) -> None:
    clock = SteeredClock()

    clock.wall_ns, clock.monotonic_ns = 1_500 + step_ns, 500

    assert (clock.now_ns(), clock.skew_ns()) == (1_500, step_ns)


def test_a_thread_that_was_interrupted_between_two_readings_sees_no_step() -> None:
    clock = SteeredClock()
    clock.wall_ns += 50
    assert clock.skew_ns() == 50

    clock.interrupted_ns = 100_001

    assert clock.skew_ns() == 50


def test_the_real_clock_never_goes_backwards() -> None:
    clock = SystemClock()

    times = [clock.now_ns() for _ in range(10_000)]

    assert times == sorted(times)


def test_random_bytes_differ() -> None:
    rng = OsRng()

    assert len(rng.randbytes(16)) == 16
    assert rng.randbytes(16) != rng.randbytes(16)
