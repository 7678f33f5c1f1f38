"""The one timer of a consumer, set to the next of its deadlines."""
from libc.stdint cimport int64_t

cdef class WakeTimer:
    cdef object timers                  # base.timers.Timers
    cdef object timer                   # base.timers.Timer, None: it is not armed
    cdef readonly int64_t due_ns        # of the timer armed last

    cdef bint is_later(self, int64_t due_ns) noexcept
