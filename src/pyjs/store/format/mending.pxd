"""Correction of one damaged byte in a short piece of a segment file."""
from libc.stdint cimport uint64_t

cdef enum:
    MEND_SIZE_MAX = 512         # bytes of a record that is searched for a damaged byte: 60 MB are hashed at most

# Correct the one damaged byte of these `length` bytes; return -1 if that is not the damage.
cdef int mend_record(char* p, size_t length, uint64_t before) noexcept nogil
