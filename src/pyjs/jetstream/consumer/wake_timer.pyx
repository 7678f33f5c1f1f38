"""The one timer of a consumer, set to the next of its deadlines.

Knows nothing of what is due. Compiled because every turn of a consumer asks it (benchmarks/: pull 500).
"""
from libc.stdint cimport int64_t


cdef class WakeTimer:
    """A timer that is armed again and again."""

    def __cinit__(self, timers):
        self.timers = timers

    cdef bint is_later(self, int64_t due_ns) noexcept:
        """Tell whether the timer calls only after `due_ns`, or not at all."""
        return self.timer is None or self.due_ns > due_ns

    def arm(self, int64_t due_ns, callback, owner) -> None:
        """Call `callback` at `due_ns`, and no more when it was armed for."""
        self.cancel()
        self.due_ns = due_ns
        self.timer = self.timers.at(due_ns, callback, owner)

    def fired(self) -> None:
        """Note that it called."""
        self.timer = None

    def cancel(self) -> None:
        """Call nothing."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
