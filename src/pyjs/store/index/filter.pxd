"""Which subjects of a store are wanted."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef class StoreFilter:
    """A set of subject filters bound to one store; no filters match everything. Made by StreamStore.make_filter.

    Remembers its verdict on the subjects it met last, and the sequences that a search far ahead found.
    """
    cdef readonly tuple subjects        # bytes, wildcards allowed
    cdef readonly bint all
    cdef bint literal                   # one subject without wildcards
    cdef const char** patterns          # borrowed from `subjects`
    cdef size_t* lengths
    cdef char* wild                     # whether each has wildcards
    cdef size_t n
    cdef uint32_t* verdicts             # by the low bits of the subject id: generation * 2 + yes; NULL: none yet

    cdef uint64_t* ahead                # the matches from ahead_from to ahead_to, ascending; some may be gone
    cdef size_t n_ahead, ahead_at       # those before ahead_at were asked for
    cdef uint64_t ahead_from, ahead_to
    cdef uint64_t no_ahead_before       # below this sequence there is no point in looking ahead

    cdef bint matches(self, SubjectTable* t, uint32_t id) noexcept nogil
    cdef bint matches_name(self, Subject* s, size_t n_patterns) noexcept nogil      # one of the first patterns
    cdef void forget_ahead(self) noexcept nogil
