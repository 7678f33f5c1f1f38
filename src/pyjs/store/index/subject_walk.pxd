"""The subjects that match a filter, a few at a time."""
from libc.stdint cimport uint32_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.subjects cimport Subject

cdef class SubjectWalk:
    cdef Catalogue store
    cdef StoreFilter wanted
    cdef uint32_t* ids              # and generations, in pairs; NULL: all subjects, in the order of their ids
    cdef size_t room                # pairs
    cdef readonly size_t total      # when the walk began; after `look`
    cdef size_t at, end
    cdef uint32_t looked_at, look_end       # ids that `look` has still to look at
    cdef bint found_all

    cdef int remember(self, Subject** items, size_t n) except -1
    cdef Subject* next(self) noexcept nogil
