"""The single timer of a consumer, set to the next deadline.

This module knows nothing of the deadlines. Compiled because it is set once per turn of a consumer (benchmarks/: pull
500).
"""
from libc.stdint cimport int64_t


cdef class WakeTimer:
    """A timer that is set repeatedly."""

    def __cinit__(self, timers):
        self.timers = timers

    cdef bint is_later(self, int64_t due_ns) noexcept:
        """Return whether the timer fires after `due_ns`, or is not set."""
        return self.timer is None or self.due_ns > due_ns

    def arm(self, int64_t due_ns, callback, owner) -> None:
        """Call `callback` at `due_ns` instead of at the time that was set before."""
        self.cancel()
        self.due_ns = due_ns
        self.timer = self.timers.at(due_ns, callback, owner)

    def fired(self) -> None:
        """Record that the timer has fired."""
        self.timer = None

    def cancel(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
