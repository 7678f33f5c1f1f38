"""The messages of one stream that have a time to live of their own."""
from libc.stdint cimport int64_t, uint64_t

cdef struct Due:
    int64_t at_ns
    uint64_t seq

cdef inline bint before(Due* a, Due* b) noexcept nogil:
    """Whether `a` is due earlier; what is due at once comes in the order of the stream."""
    return a.at_ns < b.at_ns or (a.at_ns == b.at_ns and a.seq < b.seq)

cdef class Lifetimes:
    cdef Due* heap              # none is due before its parent
    cdef size_t n, room
    cdef uint64_t* never        # ascending: messages that outlive max_age
    cdef size_t n_never, never_room

    cdef void note(self, uint64_t seq, int64_t ttl_ns, int64_t stored_at_ns) noexcept nogil
    cdef int64_t next_due(self) noexcept nogil                          # 0: nothing expires
    cdef uint64_t take_due(self, int64_t now_ns) noexcept nogil         # and forget it; 0: nothing has expired
    cdef bint outlives(self, uint64_t seq) noexcept nogil
    cdef void forget_below(self, uint64_t seq) noexcept nogil           # messages that are gone, some time
    cdef void clear(self) noexcept nogil

    cdef int add_never(self, uint64_t seq) except -1
    cdef size_t place_of(self, uint64_t seq) noexcept nogil
