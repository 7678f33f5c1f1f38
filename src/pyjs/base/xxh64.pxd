"""XXH64 of bytes in C, see xxh64.h."""
from libc.stdint cimport uint64_t

cdef extern from "xxh64.h" nogil:
    uint64_t xxh64 "pyjs_xxh64"(const void* data, size_t n, uint64_t seed)
