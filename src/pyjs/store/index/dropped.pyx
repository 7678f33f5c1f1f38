"""Dropped messages of a store: a log for consumers (`DropLog`), and memory that any thread may free (`Remains`).

Consumers read the log to update num_pending, and then empty it. If out of memory, a drop is not logged. A million
messages are a million allocations, so a purge only moves the store's tables to a `Remains`, and returns at once.
`Remains.free` may run in any thread, after the jobs that read the segments have ended.

This module knows nothing of stores and files. Compiled: limits drop a message per publish (benchmarks/: JetStream
rows), and `Remains` frees the tables of the store (benchmarks/hostile.py: purge).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport Segment, index_free, index_push, segment_free
from pyjs.store.index.subject_trie cimport subject_index_free
from pyjs.store.index.subjects cimport subjects_free, subjects_init


cdef class DropLog:
    def __dealloc__(self):
        free(self.data)

    cdef void add(self, uint64_t seq, const char* subject, uint32_t n) noexcept nogil:
        cdef char* p
        if grow(<void**> &self.data, &self.room, self.size + 12 + n, 1) != 0:
            return
        p = self.data + self.size
        memcpy(p, &seq, 8)
        memcpy(p + 8, &n, 4)
        memcpy(p + 12, subject, n)
        self.size += 12 + n

    cdef void empty(self) noexcept nogil:
        """Remove all entries; the reader must have processed them."""
        self.told += self.size
        self.size = self.at = 0

    def take(self):
        """Yield (sequence, subject) of every unread entry, then empty the log. For tests."""
        cdef uint64_t seq = 0
        cdef uint32_t n = 0
        while self.at < self.size:
            memcpy(&seq, self.data + self.at, 8)
            memcpy(&n, self.data + self.at + 8, 4)
            yield seq, PyBytes_FromStringAndSize(self.data + self.at + 12, n)
            self.at += 12 + n
        self.empty()


cdef class Remains:
    def __dealloc__(self):
        self.free_all()

    cdef void take_subjects(self, SubjectTable* table, SubjectIndex** by_token) except *:
        cdef SubjectTable fresh
        subjects_init(&fresh)
        fresh.last_gen = table.last_gen         # filters store generations, so these must not restart
        self.subjects, table[0] = table[0], fresh
        self.by_token, by_token[0] = by_token[0], NULL

    cdef void take_segments(self, SeqIndex* index) noexcept nogil:
        self.index = index[0]
        memset(index, 0, sizeof(SeqIndex))

    cdef void take_first_segments(self, SeqIndex* index, size_t n) noexcept nogil:
        cdef size_t i
        for i in range(n):
            if index.segments[i] != NULL and index_push(&self.index, index.segments[i]) != 0:
                segment_free(index.segments[i])
        memmove(index.segments, index.segments + n, (index.n - n) * sizeof(Segment*))
        index.n -= n
        index.hot = 0

    cdef void take_segment(self, Segment* s) noexcept nogil:
        if index_push(&self.index, s) != 0:
            segment_free(s)

    cdef void take_bodies(self, Segment* s, Found* found) noexcept nogil:
        cdef bint fits = grow(<void**> &self.bodies, &self.bodies_room, self.n_bodies + found.n, sizeof(char*)) == 0
        cdef uint32_t k
        cdef char** body
        for k in range(found.n):
            body = &s.bodies[found.entries[k]]
            if fits:
                self.bodies[self.n_bodies + k] = body[0]
            else:
                free(body[0])
            body[0] = NULL
        self.n_bodies += found.n if fits else 0

    cdef void free_all(self) noexcept nogil:
        cdef size_t i
        for i in range(self.n_bodies):
            free(self.bodies[i])
        free(self.bodies)
        self.bodies, self.n_bodies = NULL, 0
        index_free(&self.index)
        subject_index_free(self.by_token)
        self.by_token = NULL
        subjects_free(&self.subjects)

    def free(self) -> None:
        """Free the memory, without the GIL."""
        with nogil:
            self.free_all()
