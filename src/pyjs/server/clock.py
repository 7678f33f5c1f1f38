"""The real seams: time and chance of this machine.

Theory of the clock: wall time can be set back, the monotonic clock cannot. Time is the monotonic clock plus an
offset; the offset grows when the wall clock is found ahead (a forward step, or a machine that slept) and never
shrinks, so that a wall clock set back is not seen. The wall clock is read first: a thread switch between the
two readings then makes the wall look late, never early.
"""

from __future__ import annotations

import os
import time

from pyjs.base.clock import Clock
from pyjs.base.rng import Rng


class SystemClock(Clock):
    """Nanoseconds since the epoch, close to wall time, never going backwards."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = self._wall_ns() - self._monotonic_ns()

    def now_ns(self) -> int:
        """Return the time."""
        wall_ns = self._wall_ns()
        now_ns = self._monotonic_ns() + self._offset_ns
        if wall_ns > now_ns:
            self._offset_ns += wall_ns - now_ns
            return wall_ns
        return now_ns

    _wall_ns = staticmethod(time.time_ns)
    _monotonic_ns = staticmethod(time.monotonic_ns)


class OsRng(Rng):
    """Random bytes of the operating system."""

    def randbytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return os.urandom(count)
