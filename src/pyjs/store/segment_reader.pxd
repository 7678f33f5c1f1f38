"""Records of a directory's segments, read by sequence."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index cimport Segment
from pyjs.store.store cimport StreamStore
from pyjs.store.view cimport ViewCache

cdef class SegmentReader(StreamStore):
    """What a store in segments reads; segment_store.pyx writes, and inherits this."""
    cdef readonly object disk               # base.disk.Disk
    cdef readonly object files              # open_files.OpenFiles of the node
    cdef readonly str directory
    cdef readonly object log                # base.log.Log
    cdef public uint64_t segment_size       # a segment is sealed before it grows beyond
    cdef readonly uint64_t incarnation
    cdef readonly object key                # vault.StreamKey; None: the stream is not encrypted
    cdef readonly uint64_t lost_msgs, lost_bytes    # found damaged at the start or since
    cdef readonly list lost_seqs            # the first of them
    cdef readonly bint mistaken             # an index file was wrong: reads wait for the store to be opened again
    cdef public object on_mistake           # called then; None: nobody opens it again
    cdef dict maps                          # segment number -> memoryview of its map
    cdef dict views                         # segment number -> View of a segment that is not plain
    cdef readonly ViewCache view_cache      # of the node
    cdef object __weakref__                 # for its views
    cdef char* staging                      # records not written yet, of the last segment
    cdef uint64_t written                   # bytes of the last segment in its file
    cdef uint64_t indexed                   # bytes of it that its index file tells of; 0: it has none

    # As find_stored, but whoever gets the record has to see whether its check fits it.
    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil
    cdef int map_segment(self, Segment* s, uint64_t wanted) noexcept nogil
    cdef int open_view(self, Segment* s, uint64_t wanted) except -1
    cdef int fill(self, Segment* s, uint64_t begin, uint64_t end) noexcept nogil
    cdef void forget_map(self, Segment* s) noexcept
    cdef int distrust(self, Segment* s) except -1
    cdef int examine(self, uint64_t seq) noexcept nogil
    cdef size_t place_of(self, uint32_t number) noexcept nogil
