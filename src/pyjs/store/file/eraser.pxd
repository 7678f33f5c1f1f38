"""Secure erasure, which overwrites removed messages in their files."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_writer cimport SegmentWriter

# Return whether headers and payload of an entry are zeros in the file, as the Eraser leaves them.
cdef bint is_overwritten(SegmentFiles files, Segment* s, Entry* e) noexcept

cdef class Eraser:
    """An object that overwrites messages whose removal is already recorded."""
    cdef SegmentFiles files
    cdef SegmentWriter writer

    cdef void overwrite(self, Segment* s, uint32_t i) noexcept
    cdef void unpack(self, Segment* s) except *
    cdef void overwrite_encrypted(self, int fd, Segment* s, Entry* e, uint64_t at) except *
