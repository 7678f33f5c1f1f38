"""What of a file store is on the medium."""
from libc.stdint cimport uint32_t, uint64_t

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
