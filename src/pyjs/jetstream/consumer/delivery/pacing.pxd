"""The rate of deliveries: replay_policy original and rate_limit_bps."""
cimport cython
from libc.stdint cimport int64_t, uint64_t


@cython.final
cdef class Pacing:
    cdef uint64_t replay_to  # first deliveries up to this sequence keep their original intervals; 0: none do
    cdef int64_t replay_ts              # time at which the last such message was stored; 0: none was delivered yet
    cdef int64_t replay_at              # time at which it was delivered
    cdef readonly int64_t rate_bps      # bits per second; 0: unlimited
    cdef int64_t burst_size             # bytes that may be sent at once
    cdef int64_t burst_at               # time from which `burst_size` bytes may be sent at once again
    cdef readonly int64_t hold_until    # ns: time of the next delivery; 0: now

    cdef int64_t replay_due(self, int64_t ts, int64_t now) noexcept nogil
    cpdef bint is_early(self, int64_t ts, int64_t now) noexcept nogil
    cpdef void note_replayed(self, int64_t ts, int64_t now) noexcept nogil
    cpdef bint take_rate(self, int64_t size, int64_t now) noexcept nogil
