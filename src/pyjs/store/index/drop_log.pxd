"""What was dropped from a store since somebody last asked."""
from libc.stdint cimport uint32_t, uint64_t

cdef class DropLog:
    """(sequence u64, length u32, subject) of each message dropped while `tracked`, one behind the other."""
    cdef public bint tracked            # someone drains it
    cdef char* data
    cdef size_t size                    # bytes; whoever drained it sets it to 0
    cdef size_t room

    cdef void add(self, uint64_t seq, const char* subject, uint32_t n) noexcept nogil
