"""The subjects that match a filter, a few at a time."""
from libc.stdint cimport uint8_t, uint32_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.subjects cimport Subject

cdef class SubjectWalk:
    cdef Catalogue store
    cdef StoreFilter wanted
    cdef uint32_t* ids              # pairs of id and generation; NULL: all subjects, in the order of their ids
    cdef size_t room                # number of pairs for which `ids` has memory
    # number of matching subjects when the walk began; valid after `look` has returned True
    cdef readonly size_t total
    cdef size_t at, end
    cdef bint found_all
    cdef size_t pattern_at          # index of the next pattern that is searched in the trie
    cdef size_t* broad  # indexes of the patterns that need too many lookups: every subject is compared with these
    cdef size_t n_broad
    cdef uint32_t looked_at, look_end       # the next id to compare, and the number of ids when the walk began
    cdef uint8_t* known             # one bit for each id that an earlier pattern has found

    cdef size_t collect(self, size_t k) except 0
    cdef bint matches_broad(self, Subject* s) noexcept nogil
    cdef int remember(self, Subject* s) except -1
    cdef Subject* next(self) noexcept nogil
