"""Dropped messages of a store: a log of them for consumers, and their memory, which must be freed."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.sequences cimport Found, Segment, SeqIndex
from pyjs.store.index.subject_trie cimport SubjectIndex
from pyjs.store.index.subjects cimport SubjectTable

cdef class DropLog:
    """A log of the messages that were dropped while `tracked` was set.

    The entries (sequence u64, length u32, subject) follow each other without gaps.
    """
    cdef public bint tracked            # drops are logged, and a reader must empty the log
    cdef char* data
    cdef size_t size                    # bytes in the log
    cdef size_t at                      # offset of the entry that its reader is passing on
    cdef uint64_t told                  # bytes of all entries that have left the log
    cdef size_t room

    cdef void add(self, uint64_t seq, const char* subject, uint32_t n) noexcept nogil
    cdef void empty(self) noexcept nogil

cdef class Remains:
    """Tables that a store no longer uses, until their memory is freed."""
    cdef SeqIndex index
    cdef SubjectTable subjects
    cdef SubjectIndex* by_token
    cdef char** bodies                  # of dropped messages in memory
    cdef size_t n_bodies, bodies_room

    cdef void take_subjects(self, SubjectTable* table, SubjectIndex** by_token) except *  # leave empty tables behind
    cdef void take_segments(self, SeqIndex* index) noexcept nogil       # may be called only once
    cdef void take_first_segments(self, SeqIndex* index, size_t n) noexcept nogil
    cdef void take_segment(self, Segment* s) noexcept nogil             # which is not in an index any more
    cdef void take_bodies(self, Segment* s, Found* found) noexcept nogil
    cdef void free_all(self) noexcept nogil
