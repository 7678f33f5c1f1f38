"""The position of a consumer in its stream."""
cimport cython
from libc.stdint cimport uint8_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.store cimport StreamStore

cdef struct SkipPlace:              # a place in the packed sequences
    uint64_t seq
    size_t at                       # offset of the number after `seq`


@cython.final
cdef class Skips:                   # packed sequences that are delivered first
    cdef readonly size_t left       # number of sequences that were not delivered yet
    cdef SkipPlace place            # of the next sequence
    cdef bytes data
    cdef const uint8_t* raw         # points into `data`
    cdef size_t size                # bytes of `data` up to the end of the last sequence
    cdef SkipPlace* marks           # of every MARK_EVERY-th sequence, owned
    cdef size_t n_marks, room

    cdef int add_mark(self, uint64_t seq, size_t at) except -1
    cdef bint step(self, SkipPlace* place) noexcept nogil
    cdef void advance(self) noexcept nogil
    cdef void cut(self, uint64_t last) noexcept nogil
    cpdef bint has(self, uint64_t seq) noexcept nogil


@cython.final
cdef class DeliveryCursor:
    cdef StreamStore store
    cdef Catalogue catalogue            # of the store
    cdef StoreFilter filter
    cdef readonly uint64_t next_seq     # sequence at which the search for the next first delivery begins
    cdef Skips skips                    # for last_per_subject: up to `skips_end`, only these are delivered
    cdef uint64_t skips_end
    cdef uint64_t end_seq               # sequence at which the last search ended without a match; 0: it found one
    cdef uint64_t unread                # number of live matches from next_seq to counted_to
    cdef uint64_t counted_to
    cdef readonly bint stale            # `unread` is not valid and must be counted again
    cdef bint counting                  # the last step of the count was not the last one that it needs
    cdef uint8_t restarts               # of counts that had not ended
    cdef size_t uncounted               # number of skips that the count has not examined yet
    cdef SkipPlace counted              # of the first of them
    cdef uint64_t excluded, excluded_above  # see `exclude_removals`
    cdef readonly bint searching        # the last `find_some` has not found a match, and has more to search

    cdef bint covers(self, uint64_t seq) noexcept nogil
    cpdef uint64_t find(self) noexcept nogil
    cpdef void pass_by(self, uint64_t seq) noexcept nogil
    cdef void advance(self, uint64_t seq) noexcept nogil
    cdef bint pass_removed_skips(self) noexcept nogil
    cpdef void pass_up_to(self, uint64_t last) noexcept nogil
    cpdef uint64_t find_some(self) noexcept nogil
    cdef bint is_counted(self) noexcept nogil
    cdef void exclude_removals(self) noexcept nogil
    cpdef bint count_some(self) noexcept nogil
    cdef void count_step(self) noexcept nogil
    cdef bint count_skips(self) noexcept nogil
    cpdef void woken(self, uint64_t seq) noexcept nogil
    cpdef void dropped(self, uint64_t seq) noexcept nogil
    cpdef void fit(self, uint64_t last) noexcept nogil
