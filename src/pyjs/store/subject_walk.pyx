"""The subjects that match a filter, handed out a few at a time while the store goes on.

Remembers ids and generations, not subjects: one that loses its last message meanwhile is left out. Knows nothing of
what they are listed for.

Compiled because a stream may have millions of subjects (benchmarks/: scaling, subjects).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.catalogue cimport Catalogue
from pyjs.store.filter cimport StoreFilter
from pyjs.store.subject_index cimport Matches
from pyjs.store.subjects cimport Subject

SOURCE_HASH = PYJS_SOURCE_HASH


cdef class SubjectWalk:
    """The subjects of one store that matched when the walk began."""

    cdef Catalogue store
    cdef uint32_t* ids              # and generations, in pairs
    cdef readonly size_t total
    cdef size_t at

    def __init__(self, Catalogue store not None, StoreFilter f not None):
        cdef Matches found
        cdef size_t i
        self.store = store
        store.collect_for_python(f, &found)
        self.ids = <uint32_t*> malloc(found.n * 2 * sizeof(uint32_t) + 1)
        if self.ids == NULL:
            free(found.items)
            raise MemoryError
        for i in range(found.n):
            self.ids[2 * i] = found.items[i].id
            self.ids[2 * i + 1] = found.items[i].gen
        self.total = found.n
        free(found.items)

    def __dealloc__(self):
        free(self.ids)

    def skip(self, size_t count) -> None:
        """Leave out the next `count`."""
        self.at = min(self.at + count, self.total)

    def take(self, size_t count) -> dict:
        """Return name and number of messages of the next `count`, fewer where some are gone."""
        cdef dict counts = {}
        cdef size_t end = min(self.at + count, self.total)
        cdef Subject* s
        while self.at < end:
            s = NULL
            if self.ids[2 * self.at] < self.store.subject_table.n_ids:      # more than that in a closed store
                s = self.store.subject_table.by_id[self.ids[2 * self.at]]
            if s != NULL and s.gen == self.ids[2 * self.at + 1]:
                counts[PyBytes_FromStringAndSize(s.name, s.len)] = s.count
            self.at += 1
        return counts

    @property
    def done(self) -> bool:
        """Whether all were taken."""
        return self.at == self.total
