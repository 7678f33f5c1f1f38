"""Bytes held by many streams together, against one limit."""
from libc.stdint cimport int64_t

cdef class Usage:
    cdef public int64_t used        # bytes of all streams that count here
    cdef public int64_t reserved    # sum of their max_bytes
    cdef public int64_t max         # -1: unlimited

cdef class UsageShare:
    cdef Usage account, server
    cdef int64_t counted            # bytes of this stream that both hold

    cdef void count(self, int64_t stored) noexcept nogil
