"""The memory of what a store held."""
from pyjs.store.index.sequences cimport SeqIndex
from pyjs.store.index.subject_trie cimport SubjectIndex
from pyjs.store.index.subjects cimport SubjectTable

cdef class Remains:
    """Tables that no store refers to any more."""
    cdef SeqIndex index
    cdef SubjectTable subjects
    cdef SubjectIndex* by_token

    cdef void take_subjects(self, SubjectTable* table, SubjectIndex** by_token) except *    # leaves empty ones
    cdef void take_segments(self, SeqIndex* index) noexcept nogil       # only once
    cdef void take_first_segments(self, SeqIndex* index, size_t n) noexcept nogil
    cdef void free_all(self) noexcept nogil
