"""Correction of one damaged byte in a short piece of a segment file."""
from libc.stdint cimport uint64_t

cdef enum:
    MEND_SIZE_MAX = 512  # bytes; in a longer record, the search for the damaged byte would hash more than 60 MB

# Correct the only damaged byte among these `length` bytes; return -1 if more bytes are damaged.
cdef int mend_record(char* p, size_t length, uint64_t before) noexcept nogil
