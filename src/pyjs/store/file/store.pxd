"""The store of file streams."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.file.compactor cimport Compactor
from pyjs.store.file.condition cimport StoreCondition
from pyjs.store.file.eraser cimport Eraser
from pyjs.store.file.examiner cimport Examiner
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.entry_mark cimport EntryMark
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.segment_reader cimport SegmentReader, Trust
from pyjs.store.file.segment_writer cimport SegmentWriter
from pyjs.store.store cimport StreamStore
from pyjs.store.file.store_sync cimport RetiredFiles, StoreSync

cdef class FileStore(StreamStore):
    """A store of messages in the segment files of one directory."""
    cdef readonly SegmentFiles files
    cdef readonly StoreCondition condition
    cdef readonly StoreSync syncs
    cdef readonly SegmentMaps maps
    cdef readonly RetiredFiles retired
    cdef readonly Compactor compactor
    cdef readonly SegmentWriter writer
    cdef readonly SegmentReader reader
    cdef readonly Examiner examiner
    cdef Eraser eraser
    cdef bint freeing                       # a running job closes replaced files
    cdef readonly uint64_t synced_index     # in a replica: all effects up to this entry are durable; 0: none
    cdef uint64_t syncing_index             # the value of `synced_index` once the running sync has ended
    cdef readonly bint healing              # in a replica: some lost messages have not been restored yet
    cdef readonly list set_aside            # paths of segments that this or an earlier start has set aside

    # Find as find_stored does, but the caller must verify `check` of the record.
    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil
    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil
    cdef int take_mark(self, EntryMark mark) except -1
    cdef int leave_empty_tail(self) noexcept nogil
    cdef Segment* take_out(self, size_t at) noexcept nogil
    cdef void give_up(self, Segment* s) noexcept
