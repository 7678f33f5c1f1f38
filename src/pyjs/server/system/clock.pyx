"""The real seams: time and randomness of this machine.

The wall clock can be set forward and back, the monotonic clock cannot. Deadlines use the monotonic clock, shifted so
that it equals the wall time when the server starts. The difference between the two clocks (the skew) changes when the
wall clock is set. To measure it, the wall clock is read between two reads of the monotonic clock: if these are far
apart, the thread was interrupted in between, and the previous skew is used.

Compiled, because each read of a connection and each turn ask for the time several times (measured in benchmarks/:
reqrep, r3-sync-1).
"""
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

import os

from pyjs.base.rng import Rng

cdef int64_t TOGETHER_NS = 100000   # ns: two reads at most this far apart count as simultaneous
cdef int64_t NS_PER_S = 1000000000


cdef int64_t read_clock(int which) noexcept nogil:
    cdef timespec found
    clock_gettime(which, &found)
    return found.tv_sec * NS_PER_S + found.tv_nsec


cdef class SystemClock:
    """The clock of this machine: monotonic time that began at the wall time of the start, and the skew to wall time.

    The interface is that of base.clock.Clock.
    """
    cdef int64_t offset_ns
    cdef int64_t skew

    def __init__(self) -> None:
        self.offset_ns = self._wall_ns() - self._monotonic_ns()

    cpdef int64_t now_ns(self):
        """Return the monotonic time in nanoseconds, which is used for deadlines."""
        return self._monotonic_ns() + self.offset_ns

    def skew_ns(self) -> int:
        """Return the skew: wall time minus `now_ns`, in ns.

        If the measurement was interrupted, return the previous skew.
        """
        cdef int64_t before_ns = self._monotonic_ns()
        cdef int64_t wall_ns = self._wall_ns()
        if self._monotonic_ns() - before_ns <= TOGETHER_NS:
            self.skew = wall_ns - (before_ns + self.offset_ns)
        return self.skew

    def wall_ns(self) -> int:
        """Return the wall time in nanoseconds since the epoch."""
        return self.now_ns() + self.skew_ns()

    cpdef int64_t _wall_ns(self):
        return read_clock(CLOCK_REALTIME)

    cpdef int64_t _monotonic_ns(self):
        return read_clock(CLOCK_MONOTONIC)


class OsRng(Rng):
    """The random number generator of the operating system."""

    def randbytes(self, count):
        """Return `count` random bytes."""
        return os.urandom(count)
