"""Segments of which a record did not check out."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_reader cimport SegmentReader
from pyjs.store.file.segment_writer cimport SegmentWriter

cdef class Losses:
    """Messages that are gone because their bytes are damaged, found at the start or since."""
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # of files
    cdef readonly list seqs             # the first of the messages

cdef class Examiner:
    """Reads whole segments of an open store, and drops what is damaged in them."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentWriter writer
    cdef SegmentReader reader
    cdef readonly Losses losses
    cdef readonly bint mistaken             # an index file was wrong: reads wait for the store to be opened again
    cdef public object on_mistake           # called then; None: nobody opens it again

    cdef int examine(self, uint64_t seq) noexcept nogil
    cdef void distrust(self, Segment* s) except *
    cdef bint contradicts(self, Segment* s, SegmentContents c) noexcept
    cdef SegmentContents contents_in(self, Segment* s)
    cdef void drop_damaged(self, Segment* s, SegmentContents c) except *
    cdef void note_lost(self, object seqs) except *
