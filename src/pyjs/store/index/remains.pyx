"""The memory of what a store held, taken out of the store in one piece and freed where nobody waits for it.

A million messages are as many pieces of memory. A store that is emptied is empty at once: it hands its tables over,
and `free` may run in any thread. Knows nothing of files; a job that reads the segments has to end before.

Compiled: what is freed are the tables of the store (benchmarks/hostile.py: purge).
"""
from libc.string cimport memmove, memset

from pyjs.store.index.sequences cimport Segment, index_free, index_push, segment_free
from pyjs.store.index.subject_trie cimport subject_index_free
from pyjs.store.index.subjects cimport subjects_free, subjects_init


cdef class Remains:
    def __dealloc__(self):
        self.free_all()

    cdef void take_subjects(self, SubjectTable* table, SubjectIndex** by_token) except *:
        cdef SubjectTable fresh
        subjects_init(&fresh)
        fresh.last_gen = table.last_gen         # filters remember generations
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

    cdef void free_all(self) noexcept nogil:
        index_free(&self.index)
        subject_index_free(self.by_token)
        self.by_token = NULL
        subjects_free(&self.subjects)

    def free(self) -> None:
        """Give the memory back, without the GIL."""
        with nogil:
            self.free_all()
