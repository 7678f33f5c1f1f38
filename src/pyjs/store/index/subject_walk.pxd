"""The subjects that match a filter, a few at a time."""
from libc.stdint cimport uint8_t, uint32_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.subjects cimport Subject

cdef class SubjectWalk:
    cdef Catalogue store
    cdef StoreFilter wanted
    cdef uint32_t* ids              # ids and generations in pairs; NULL: all subjects, in the order of their ids
    cdef size_t room                # number of pairs that fit in the memory of `ids`
    cdef readonly size_t total      # number of subjects when the walk began; valid after `look`
    cdef size_t at, end
    cdef bint found_all
    cdef size_t pattern_at          # the next pattern that `look` searches in the index of subjects
    cdef size_t* broad              # patterns that need too many lookups: every subject is compared with them
    cdef size_t n_broad
    cdef uint32_t looked_at, look_end       # next id to compare, and the end: the number of ids when the walk began
    cdef uint8_t* known             # a bit for each id: an earlier pattern found it

    cdef size_t collect(self, size_t k) except 0
    cdef bint matches_broad(self, Subject* s) noexcept nogil
    cdef int remember(self, Subject* s) except -1
    cdef Subject* next(self) noexcept nogil
