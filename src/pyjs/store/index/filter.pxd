"""A set of subject filters over one store."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.filter_tree cimport FilterTree
from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef class StoreFilter:
    """A set of subject filters bound to one store; a set without filters matches everything.

    It caches its results for recently searched subjects, and the matches that a look-ahead found.
    """
    cdef readonly tuple subjects        # each may have wildcards
    cdef readonly bint all
    cdef bint literal                   # the only filter is a subject without wildcards
    cdef const char** patterns          # borrowed from `subjects`
    cdef size_t* lengths
    cdef char* wild                     # for each pattern, whether it has wildcards
    cdef size_t n
    cdef FilterTree tree                # of all patterns; empty if there are few
    # generation * 2 + (1 if it matches), by the low bits of the subject id; NULL: nothing is cached yet
    cdef uint32_t* verdicts

    cdef uint64_t* ahead    # the matches from ahead_from to ahead_to, ascending; some may have been removed since
    cdef size_t n_ahead, ahead_at       # number of matches; those before index `ahead_at` were returned already
    cdef uint64_t ahead_from, ahead_to
    cdef uint64_t no_ahead_before       # below this sequence, a look-ahead finds too many matches

    cdef bint matches(self, SubjectTable* t, uint32_t id) noexcept nogil
    cdef bint matches_name(self, Subject* s) noexcept nogil
    cdef void forget_ahead(self) noexcept nogil
