"""Sequences to deliver first, packed."""
from libc.stdint cimport uint8_t, uint64_t

cdef class Skips:
    cdef readonly size_t left       # not handed out yet
    cdef uint64_t seq               # the next of them
    cdef bytes data
    cdef const uint8_t* raw         # of data
    cdef size_t size, at            # of data; behind the number of `seq`

    cdef void advance(self) noexcept nogil
