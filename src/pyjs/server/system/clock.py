"""The real seams: time and randomness of this machine.

The wall clock can be set forward and back, the monotonic clock cannot. Deadlines use the monotonic clock,
shifted so that it begins at the wall time of the start. When the wall clock is set, the skew between the two
changes. The wall clock is read between two reads of the monotonic clock: if these are far apart, the thread
was interrupted between them, and the previous skew is used.
"""

from __future__ import annotations

import os
import time

from pyjs.base.clock import Clock
from pyjs.base.rng import Rng

TOGETHER_NS = 100_000  # reads at most this far apart count as simultaneous


class SystemClock(Clock):
    """The monotonic clock, shifted to begin at the wall time of the start, and the skew of the wall clock."""

    __slots__ = ("_offset_ns", "_skew_ns")

    def __init__(self) -> None:
        self._offset_ns = self._wall_ns() - self._monotonic_ns()
        self._skew_ns = 0

    def now_ns(self) -> int:
        """Return the time for deadlines."""
        return self._monotonic_ns() + self._offset_ns

    def skew_ns(self) -> int:
        """Return wall time minus `now_ns`."""
        before_ns = self._monotonic_ns()
        wall_ns = self._wall_ns()
        if self._monotonic_ns() - before_ns <= TOGETHER_NS:
            self._skew_ns = wall_ns - (before_ns + self._offset_ns)
        return self._skew_ns

    _wall_ns = staticmethod(time.time_ns)
    _monotonic_ns = staticmethod(time.monotonic_ns)


class OsRng(Rng):
    """Random bytes of the operating system."""

    def randbytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return os.urandom(count)
