"""Group commit of a file store, and the retired files, which are removed after a commit is durable."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.dropped cimport Remains
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef class StoreSync:
    """The state of group commit: the writes that the next sync must cover, and the last durable commit."""
    cdef SegmentFiles files
    cdef readonly uint64_t written_mark     # number of the last commit that wrote anything
    cdef readonly uint64_t synced_mark      # number of the last durable commit; <= written_mark
    cdef object in_flight                   # the running SyncJob; None: no sync is running
    cdef list unindexed                     # FullSegments without an index file

    cdef bint is_due(self)
    cdef void forget_index(self, uint32_t number) except *

cdef class RetiredFiles:
    """The files to remove when the commit that makes them superfluous is durable, and segments to free later."""
    cdef SegmentFiles files
    cdef StoreSync syncs
    cdef list paths    # (written_mark, path): remove the file when this commit is durable; 0: not committed yet
    cdef bint undated                   # some files were retired after the last commit
    cdef object removing                # the running removal.SegmentRemoval; None: no job is running
    cdef Segment** segments             # removed segments whose entries a running sync may read
    cdef size_t n, room

    cdef void retire(self, str path) except *
    cdef void date(self) noexcept
    cdef bint is_due(self)
    # Free a segment: now or, if a sync is running, when the sync has ended.
    cdef void free_segment(self, Segment* s) noexcept nogil
    # Free a segment together with `remains` or, if a sync is running, when the sync has ended.
    cdef void hand_over(self, Segment* s, Remains remains) noexcept nogil
    # Free a segment when the running sync, or without one the next sync, has ended.
    cdef void keep(self, Segment* s) noexcept nogil
    cdef void free_segments(self) noexcept nogil
