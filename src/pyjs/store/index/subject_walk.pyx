"""The subjects that match a filter, found and returned in steps while the store changes.

Few matches come from the index of subjects at once. For many, `look` examines all subjects, some in each call; it
must finish first. The walk stores ids and generations, not subjects: a subject that loses its last message is left
out. Knows nothing of its callers.

Compiled: a stream may have millions of subjects (benchmarks/: scaling, subjects).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free

from pyjs.base.grow cimport grow
from pyjs.store.index.subject_trie cimport Matches
from pyjs.store.index.subjects cimport SubjectTable, subject_by_id


cdef class SubjectWalk:
    def __init__(self, Catalogue store not None, StoreFilter f not None):
        cdef Matches found
        self.store = store
        self.wanted = f
        if store.subjects.is_every(f):
            self.total = store.subjects.table.table.used
            self.end = store.subjects.table.n_ids
            self.found_all = True
        elif store.subjects.collect_few(f, &found) == 0:
            try:
                self.remember(found.items, found.n)
            finally:
                free(found.items)
            self.found_all = True
        else:
            self.look_end = store.subjects.table.n_ids

    def __dealloc__(self):
        free(self.ids)

    def look(self, uint32_t limit) -> bool:
        """Examine `limit` more subjects; return whether all matches are known. Call it until then, before `take`.

        Raises MemoryError.
        """
        cdef SubjectTable* t = &self.store.subjects.table
        cdef Subject* s
        if self.found_all:
            return True
        while self.looked_at < self.look_end and limit:
            s = subject_by_id(t, self.looked_at) if self.looked_at < t.n_ids else NULL      # a closed store has none
            if s != NULL and self.wanted.matches_name(s, self.wanted.n):
                self.remember(&s, 1)
            self.looked_at += 1
            limit -= 1
        self.found_all = self.looked_at == self.look_end
        return self.found_all

    cdef int remember(self, Subject** items, size_t n) except -1:
        cdef size_t i
        if grow(<void**> &self.ids, &self.room, self.total + n, 2 * sizeof(uint32_t)) != 0:
            raise MemoryError
        for i in range(n):
            self.ids[2 * self.total] = items[i].id
            self.ids[2 * self.total + 1] = items[i].gen
            self.total += 1
        self.end = self.total
        return 0

    def skip(self, size_t count) -> None:
        """Skip the next `count` subjects."""
        while count and self.next() != NULL:
            count -= 1

    def take(self, size_t count) -> dict:
        """Return name and number of messages of the next `count` subjects, without removed ones."""
        cdef dict counts = {}
        cdef Subject* s
        while count:
            s = self.next()
            if s == NULL:
                break
            counts[PyBytes_FromStringAndSize(s.name, s.len)] = s.count
            count -= 1
        return counts

    cdef Subject* next(self) noexcept nogil:
        """Return the next subject with live messages; NULL: there is none."""
        cdef SubjectTable* t = &self.store.subjects.table
        cdef Subject* s
        cdef uint32_t id
        while self.at < self.end:
            id = <uint32_t> self.at if self.ids == NULL else self.ids[2 * self.at]
            s = subject_by_id(t, id) if id < t.n_ids else NULL        # a closed store has none
            self.at += 1
            if s != NULL and (self.ids == NULL or s.gen == self.ids[2 * self.at - 1]):
                return s
        return NULL

    @property
    def done(self) -> bool:
        """Whether all subjects were returned."""
        return self.at >= self.end
