"""The seam for time: a monotonic clock for deadlines, and the wall time.

A server has one Clock (server/system/clock.pyx is the real one); tests use a virtual clock. Below `server/`, no other
code reads the time.
"""

from __future__ import annotations

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock:
    """A source of time; subclasses implement it.

    Deadlines use `now_ns`, which does not change when the wall clock is set. Messages are stored with the wall time,
    which is `now_ns() + skew_ns()`.
    """

    def now_ns(self) -> int:
        """Return the wall time at the server's start plus the time since then, in nanoseconds.

        The value never decreases.
        """
        raise NotImplementedError("a Clock subclass supplies the time")

    def skew_ns(self) -> int:
        """Return wall time minus `now_ns`; negative after the wall clock has been set back."""
        return 0

    def wall_ns(self) -> int:
        """Return the wall time in nanoseconds since the epoch."""
        return self.now_ns() + self.skew_ns()


class VirtualClock(Clock):
    """A clock for tests and simulations, which changes only through calls to its methods."""

    def __init__(self, now_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = now_ns
        self._skew_ns = 0

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self._now_ns

    def skew_ns(self) -> int:
        """Return the sum of all steps of the wall clock, in nanoseconds."""
        return self._skew_ns

    def step_wall(self, ns: int) -> None:
        """Set the wall clock forward, or back if `ns` is negative."""
        self._skew_ns += ns

    def advance(self, ns: int) -> None:
        """Move the clock `ns` nanoseconds forward."""
        assert ns >= 0
        self._now_ns += ns
