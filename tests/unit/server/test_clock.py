from pyjs.server.clock import OsRng, SystemClock


class SteeredClock(SystemClock):
    """A SystemClock whose two readings the test decides."""

    wall_ns = 1_000
    monotonic_ns = 0

    def _wall_ns(self) -> int:  # type: ignore[override]
        return self.wall_ns

    def _monotonic_ns(self) -> int:  # type: ignore[override]
        return self.monotonic_ns


def test_time_is_wall_time_and_moves_with_the_monotonic_clock() -> None:
    clock = SteeredClock()

    clock.wall_ns, clock.monotonic_ns = 1_500, 500

    assert clock.now_ns() == 1_500


def test_a_forward_step_of_the_wall_clock_is_adopted() -> None:
    clock = SteeredClock()

    clock.wall_ns, clock.monotonic_ns = 9_000, 10

    assert clock.now_ns() == 9_000
    clock.wall_ns, clock.monotonic_ns = 9_005, 15
    assert clock.now_ns() == 9_005


def test_a_backward_step_of_the_wall_clock_is_not_seen() -> None:
    clock = SteeredClock()

    clock.wall_ns, clock.monotonic_ns = 3, 10

    assert clock.now_ns() == 1_010
    clock.wall_ns, clock.monotonic_ns = 4, 20
    assert clock.now_ns() == 1_020


def test_the_real_clock_never_goes_backwards() -> None:
    clock = SystemClock()

    times = [clock.now_ns() for _ in range(10_000)]

    assert times == sorted(times)


def test_random_bytes_differ() -> None:
    rng = OsRng()

    assert len(rng.randbytes(16)) == 16
    assert rng.randbytes(16) != rng.randbytes(16)
