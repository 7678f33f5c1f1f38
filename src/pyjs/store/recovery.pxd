"""Reading the segments of a directory back."""
from libc.stdint cimport uint64_t

from pyjs.store.filestore cimport FileStore
from pyjs.store.index cimport Segment

cdef class Scan:
    """One recovery: what was found so far, over all segments."""
    cdef FileStore store
    cdef Segment* segment               # being read
    cdef const char* p                  # its bytes
    cdef size_t size
    cdef uint64_t floor                 # highest first_seq that a STATE record names
    cdef uint64_t chain                 # checksum of the last record taken
    cdef list removed                   # (seq, erased)
    cdef set erased_seen                # messages whose bytes are overwritten
    cdef bint after_damage              # bytes before the next record were unreadable

    cdef size_t records(self) except? 0
    cdef int take(self, const char* record) except -1
    cdef int take_message(self, const char* record) except -1
    cdef int fill_gap(self, uint64_t before) except -1
    cdef size_t resync(self, size_t at) noexcept nogil
    cdef bint only_checksum_damaged(self, size_t at) noexcept nogil
    cdef int lose(self, uint64_t first, uint64_t last, size_t size) except -1
