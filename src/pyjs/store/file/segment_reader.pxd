"""Records of a directory's segments, read by sequence."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.segment_writer cimport SegmentWriter

cdef enum Trust:                # what is not checked of a record in a file
    TRUST_NONE                  # nothing
    TRUST_READER                # its check: whoever gets it does that
    TRUST_ALL                   # its checksums: this process knows them

cdef int failure_of(object error)

cdef class SegmentReader:
    """Finds records in maps, views and what the writer has staged."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentMaps maps
    cdef SegmentWriter writer

    # Where the record of the live entry i is: 0, 1: it is damaged, -2: unreadable, -3: not now.
    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil
    cdef int map_segment(self, Segment* s, uint64_t wanted) noexcept nogil
    cdef int open_view(self, Segment* s, uint64_t wanted) except -1
    cdef int fill(self, Segment* s, uint64_t begin, uint64_t end) noexcept nogil
