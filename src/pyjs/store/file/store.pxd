"""The store of file streams."""
from libc.stdint cimport uint32_t

from pyjs.store.file.compactor cimport Compactor
from pyjs.store.file.condition cimport StoreCondition
from pyjs.store.file.eraser cimport Eraser
from pyjs.store.file.examiner cimport Examiner
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.recovery cimport RecoveredSegment, Recovery
from pyjs.store.file.retired_files cimport RetiredFiles
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.segment_reader cimport SegmentReader, Trust
from pyjs.store.file.segment_writer cimport SegmentWriter
from pyjs.store.store cimport StreamStore
from pyjs.store.file.store_sync cimport StoreSync

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
    cdef readonly Examiner examiner
    cdef Eraser eraser
    cdef readonly list set_aside            # paths of segments that are not read, from now or earlier

    # As find_stored, but whoever gets the record has to see whether its check fits it.
    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil
    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil
    cdef int leave_empty_tail(self) noexcept nogil
    cdef void give_up(self, Segment* s) noexcept
    cdef list adopt(self, RecoveredSegment found)
    cdef int settle(self, Recovery recovery, list erased) except -1
    cdef int drop_erased(self, Recovery recovery, list erased) except -1
    cdef int tell_losses(self, Recovery recovery, removed) except -1
    cdef int lose_end(self, Recovery recovery) except -1
    cdef set removed_seqs(self, Recovery recovery)
    cdef int finish_erasure(self) except -1
    cdef int drop_removed(self, Recovery recovery) except -1
    cdef int retire_empty(self) except -1
    cdef int reopen(self, Recovery recovery) except -1
    cdef int leave_last(self, Recovery recovery, Segment* s) except -1
    cdef int sync_later(self, Recovery recovery) except -1
    cdef int find_sparse(self) except -1
