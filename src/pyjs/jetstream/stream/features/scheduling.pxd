"""The message schedules of one stream."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.aging cimport Lifetimes
from pyjs.jetstream.stream.stream cimport Stream

cdef class Scheduling:
    cdef Stream stream              # None: this object is closed
    cdef object timer               # expiry.Expiry
    cdef Lifetimes due              # next firing of each schedule, by sequence
    cdef dict learned               # used during recovery: sequence -> next firing
    cdef bint busy                  # more firings follow in the next turn
    cdef bint learning              # a new leader reads the stored schedules; new schedules go to `learned`

    cdef void note(self, uint64_t seq, int64_t at_ns) noexcept
    cdef void note_again(self, uint64_t seq, int64_t at_ns) noexcept
    cdef bint fire_some(self) except -1
    cdef bint propose_some(self) except -1
    cdef void fire(self, uint64_t seq, int64_t at_ns, int64_t now_ns) except *
    cdef bint is_over(self, uint64_t seq, bytes subject) except -1
    cdef object content_of(self, schedule)
    cdef bytes transformed(self, bytes subject, uint64_t seq, int64_t at_ns)
    cdef bint publish(self, bytes subject, bytes headers, bytes payload) except -1
