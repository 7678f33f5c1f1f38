"""A set of subject filters over one store."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef class StoreFilter:
    """A set of subject filters bound to one store; without filters it matches everything.

    Caches its results for recent subjects, and the matches that a look-ahead found.
    """
    cdef readonly tuple subjects        # bytes, wildcards allowed
    cdef readonly bint all
    cdef bint literal                   # one subject without wildcards
    cdef const char** patterns          # borrowed from `subjects`
    cdef size_t* lengths
    cdef char* wild                     # for each pattern, whether it has wildcards
    cdef size_t n
    cdef uint32_t* verdicts    # generation * 2 + matches, by the low bits of the subject id; NULL: none yet

    cdef uint64_t* ahead    # the matches from ahead_from to ahead_to, ascending; some may be removed by now
    cdef size_t n_ahead, ahead_at       # items before `ahead_at` were returned already
    cdef uint64_t ahead_from, ahead_to
    cdef uint64_t no_ahead_before       # from sequences below this, a look-ahead finds too many matches

    cdef bint matches(self, SubjectTable* t, uint32_t id) noexcept nogil
    cdef bint matches_name(self, Subject* s, size_t n_patterns) noexcept nogil    # one of the first patterns matches
    cdef void forget_ahead(self) noexcept nogil
