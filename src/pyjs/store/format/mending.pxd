"""Correction of one damaged byte in a short piece of a segment file."""
from libc.stdint cimport uint64_t

cdef enum:
    MEND_SIZE_MAX = 512         # of a record in which a damaged byte is looked for: 60 MB are hashed at most

# Puts the one byte right that is damaged in these `length` bytes: 0, or -1 when it is not one byte of a record.
cdef int mend_record(char* p, size_t length, uint64_t before) noexcept nogil
