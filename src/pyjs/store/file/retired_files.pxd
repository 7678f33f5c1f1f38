"""Segments that nothing needs any more, until they may go."""
from libc.stdint cimport uint64_t

from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.store_sync cimport StoreSync

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
