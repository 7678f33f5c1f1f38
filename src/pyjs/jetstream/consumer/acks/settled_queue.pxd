"""Sequences that a consumer needs no more, on their way to its stream."""
from libc.stdint cimport uint64_t

cdef class SettledQueue:
    cdef uint64_t* seqs
    cdef size_t count, room
    cdef size_t taken           # of them were taken already

    cdef void add(self, uint64_t seq) noexcept nogil
    cdef list take(self, size_t most)
