"""The store of file streams."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.compactor cimport Compactor
from pyjs.store.condition cimport StoreCondition
from pyjs.store.index cimport Entry, Segment
from pyjs.store.retired_files cimport RetiredFiles
from pyjs.store.segment_files cimport SegmentFiles
from pyjs.store.segment_maps cimport SegmentMaps
from pyjs.store.segment_reader cimport SegmentReader, Trust
from pyjs.store.segment_writer cimport SegmentWriter
from pyjs.store.store cimport StreamStore
from pyjs.store.store_sync cimport StoreSync

cdef class FileStore(StreamStore):
    """Messages in segment files of one directory."""
    cdef readonly SegmentFiles files
    cdef readonly StoreCondition condition
    cdef readonly StoreSync syncs
    cdef readonly SegmentMaps maps
    cdef readonly RetiredFiles retired
    cdef readonly Compactor compactor
    cdef readonly SegmentWriter writer
    cdef readonly SegmentReader reader
    cdef readonly uint64_t lost_msgs, lost_bytes    # found damaged at the start or since
    cdef readonly list lost_seqs                    # the first of them
    cdef readonly list set_aside                    # paths of segments that are not read, from now or earlier
    cdef readonly bint mistaken             # an index file was wrong: reads wait for the store to be opened again
    cdef public object on_mistake           # called then; None: nobody opens it again

    # As find_stored, but whoever gets the record has to see whether its check fits it.
    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil
    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil
    cdef int examine(self, uint64_t seq) noexcept nogil
    cdef int distrust(self, Segment* s) except -1
    cdef int leave_empty_tail(self) noexcept nogil
    cdef void overwrite(self, Segment* s, uint32_t i) noexcept
    cdef int unpack(self, Segment* s) except -1
    cdef int overwrite_veiled(self, int fd, Segment* s, Entry* e, uint64_t at) except -1
    cdef void give_up(self, Segment* s) noexcept
