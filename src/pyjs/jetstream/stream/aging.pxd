"""The expiry of one stream's messages."""
cimport cython
from libc.stdint cimport int64_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport SeqIndex
from pyjs.store.store cimport StreamStore

cdef struct Due:
    int64_t at_ns
    uint64_t seq

cdef inline bint before(Due* a, Due* b) noexcept nogil:
    """Return whether `a` is due before `b` or, if both are due at the same time, has the lower sequence."""
    return a.at_ns < b.at_ns or (a.at_ns == b.at_ns and a.seq < b.seq)


@cython.final
cdef class Lifetimes:
    cdef Due* heap              # no entry is due before its parent
    cdef size_t n, room
    cdef Due* old               # the heap that a sweep empties from its end; NULL: no sweep is running
    cdef size_t n_old
    cdef int64_t absent         # number of sequences without a message at the end of the last sweep
    cdef int64_t taken          # number of entries taken since the last sweep whose messages had been removed
    cdef uint64_t* never        # ascending sequences of messages to which max_age does not apply
    cdef size_t n_never, never_room

    cdef void note(self, uint64_t seq, int64_t ttl_ns, int64_t stored_at_ns) noexcept nogil
    cpdef int64_t next_due(self) noexcept nogil                          # 0: nothing expires
    # remove and return the first due entry; 0: none is due
    cpdef uint64_t take_due(self, int64_t now_ns) noexcept nogil
    cpdef bint outlives(self, uint64_t seq) noexcept nogil
    cpdef void forget_below(self, uint64_t seq) noexcept nogil           # drop entries of removed messages
    cpdef void clear(self) noexcept nogil
    cdef void note_again(self, uint64_t seq, int64_t at_ns) noexcept nogil
    cdef bint is_stale(self, Catalogue catalogue) noexcept nogil
    cdef void begin_sweep(self, Catalogue catalogue) noexcept nogil
    cdef bint sweep(self, SeqIndex* index, size_t most) noexcept nogil

    cdef Due* first(self) noexcept nogil
    cdef void push(self, Due due) noexcept nogil
    cdef int add_never(self, uint64_t seq) except -1
    cdef size_t place_of(self, uint64_t seq) noexcept nogil

cdef class Aging:
    cdef StreamStore store
    cdef readonly Lifetimes lifetimes       # the TTLs of messages
    cdef uint64_t passed_seq                # max_age applies to no message up to this sequence
    cdef bint busy                          # steps are still running

    cdef int64_t next_due(self, int64_t max_age_ns) noexcept nogil
    cdef uint64_t oldest_expiring(self) noexcept nogil
    cdef uint64_t next_expiring(self, uint64_t seq) noexcept nogil
    cdef void tidy(self, stream) except *
    cdef bint drop_some(self, stream, int64_t wall, int64_t max_age_ns, bint marked) except -1
    cdef bint drop_older(self, stream, int64_t horizon, int left, bint marked) except -1
    cdef bint drop(self, stream, uint64_t seq, bint marked) except -1
