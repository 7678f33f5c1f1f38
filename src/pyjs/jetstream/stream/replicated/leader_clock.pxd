"""The clock of a leader, compared with the times of the previous entries."""
from libc.stdint cimport int64_t

from pyjs.jetstream.stream.replicated.payload cimport Item
from pyjs.jetstream.stream.stream cimport Stream

cdef class LeaderClock:
    cdef int64_t least_skew     # ns, see leader_clock.pyx
    cdef bint is_known          # `least_skew` has a value
    cdef int in_flight          # proposed steps that are neither applied nor lost

    cdef void entry_came(self, int64_t time_ns, int64_t now_ns) noexcept nogil
    cdef void lead(self, int64_t skew) noexcept nogil
    cdef int64_t step(self, int64_t skew) noexcept nogil
    cdef void proposed(self, int64_t skew) noexcept nogil
    cdef void ended(self, int64_t step, bint is_lost) noexcept nogil

cdef int note_step(Stream stream, int64_t previous_ns, Item* item) except -1
