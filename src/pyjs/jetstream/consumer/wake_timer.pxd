"""The single timer of a consumer, set to the next deadline."""
from libc.stdint cimport int64_t

cdef class WakeTimer:
    cdef object timers                  # base.timers.Timers
    cdef object timer                   # base.timers.Timer; None: not set
    cdef readonly int64_t due_ns        # deadline of the timer set last

    cdef bint is_later(self, int64_t due_ns) noexcept
