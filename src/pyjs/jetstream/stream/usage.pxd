"""Bytes held by many streams together, against one limit."""
from libc.stdint cimport int64_t

cdef class Usage:
    cdef public int64_t used        # bytes of all streams that count here
    cdef public int64_t reserved    # sum of their max_bytes
    cdef public int64_t max         # -1: unlimited
