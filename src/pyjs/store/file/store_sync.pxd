"""What of a file store is on the medium, and what may go since it is."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef class StoreSync:
    """Group commit: what the next sync has to cover, and which commits are safe."""
    cdef SegmentFiles files
    cdef readonly uint64_t written_mark     # counts commits that wrote something
    cdef readonly uint64_t synced_mark      # the last of them that is on the medium
    cdef object in_flight                   # the SyncJob handed out, None: no sync is on its way
    cdef list unindexed                     # FullSegments without index file

    cdef bint is_due(self)
    cdef void forget_index(self, uint32_t number) except *

cdef class RetiredFiles:
    """Files that go when what makes them superfluous is on the medium, and entries that a sync may still read."""
    cdef SegmentFiles files
    cdef StoreSync syncs
    cdef list paths                     # (written_mark, path): files to go when it is synced; 0: not committed
    cdef bint undated                   # some of them were retired after the last commit
    cdef object removing                # removal.SegmentRemoval handed out; None: none is
    cdef Segment** segments             # gone, but a sync that is on its way may read their entries
    cdef size_t n, room

    cdef void retire(self, str path) except *
    cdef void date(self) noexcept
    cdef bint is_due(self)
    # Now, or when the sync that is on its way has ended.
    cdef void free_segment(self, Segment* s) noexcept nogil
    # When the sync on its way, or the next one, has ended.
    cdef void keep(self, Segment* s) noexcept nogil
    cdef void free_segments(self) noexcept nogil
