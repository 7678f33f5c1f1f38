"""Which messages of one stream are due to go by their age."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.lifetimes cimport Lifetimes
from pyjs.store.store cimport StreamStore

cdef class Aging:
    cdef StreamStore store
    cdef readonly Lifetimes lifetimes       # of messages that have one of their own
    cdef uint64_t passed_seq                # every message up to here outlives max_age
    cdef bint busy                          # steps are under way

    cdef int64_t next_due(self, int64_t max_age_ns) noexcept nogil
    cdef uint64_t oldest_expiring(self) noexcept nogil
    cdef uint64_t next_expiring(self, uint64_t seq) noexcept nogil
    cdef bint drop_some(self, stream, int64_t wall, int64_t max_age_ns, bint marked) except -1
    cdef bint drop_older(self, stream, int64_t horizon, int left, bint marked) except -1
    cdef bint drop(self, stream, uint64_t seq, bint marked) except -1
