"""What of a store's files was found damaged."""
from libc.stdint cimport uint64_t

cdef class Losses:
    """Messages that are gone because their bytes are damaged, found at the start or since."""
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # of files
    cdef readonly list seqs             # the first of the messages

    cdef void note(self, object seqs) except *
