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
from pyjs.store.subjects cimport Subject, SubjectTable, subject_by_id

SOURCE_HASH = PYJS_SOURCE_HASH


cdef class SubjectWalk:
    """The subjects of one store that matched when the walk began."""

    cdef Catalogue store
    cdef uint32_t* ids              # and generations, in pairs; NULL: all subjects, in the order of their ids
    cdef readonly size_t total      # when the walk began
    cdef size_t at, end

    def __init__(self, Catalogue store not None, StoreFilter f not None):
        cdef Matches found
        cdef size_t i
        self.store = store
        if f.all:
            self.total = store.subject_table.table.used
            self.end = store.subject_table.n_ids
            return
        store.collect_for_python(f, &found)
        self.ids = <uint32_t*> malloc(found.n * 2 * sizeof(uint32_t) + 1)
        if self.ids == NULL:
            free(found.items)
            raise MemoryError
        for i in range(found.n):
            self.ids[2 * i] = found.items[i].id
            self.ids[2 * i + 1] = found.items[i].gen
        self.total = self.end = found.n
        free(found.items)

    def __dealloc__(self):
        free(self.ids)

    def skip(self, size_t count) -> None:
        """Leave out the next `count`."""
        while count and self.at < self.end:
            count -= self.subject() != NULL
            self.at += 1

    def take(self, size_t count) -> dict:
        """Return name and number of messages of the next `count`, those left out that are gone."""
        cdef dict counts = {}
        cdef Subject* s
        while count and self.at < self.end:
            s = self.subject()
            if s != NULL:
                counts[PyBytes_FromStringAndSize(s.name, s.len)] = s.count
                count -= 1
            self.at += 1
        return counts

    cdef Subject* subject(self) noexcept nogil:
        """The subject where the walk is, NULL: it has gone."""
        cdef SubjectTable* t = &self.store.subject_table
        cdef uint32_t id = <uint32_t> self.at if self.ids == NULL else self.ids[2 * self.at]
        cdef Subject* s = subject_by_id(t, id) if id < t.n_ids else NULL        # a closed store has none
        return s if s != NULL and (self.ids == NULL or s.gen == self.ids[2 * self.at + 1]) else NULL

    @property
    def done(self) -> bool:
        """Whether all were taken."""
        return self.at == self.end
