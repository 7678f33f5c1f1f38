"""Examination of damaged segments."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_reader cimport SegmentReader
from pyjs.store.file.segment_writer cimport SegmentWriter

cdef class Losses:
    """Messages lost to damage, found at the start or later."""
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # of files
    cdef readonly list seqs             # the first LISTED_MAX of the lost messages
    cdef readonly list every            # of a replica: all of them

cdef class Examiner:
    """Reads whole segments of an open store and drops their damaged messages."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentWriter writer
    cdef SegmentReader reader
    cdef readonly Losses losses
    cdef readonly bint mistaken             # reads of damaged messages wait until the store is reopened
    cdef public object on_mistake           # called when `mistaken` becomes true; None: the store is never reopened
    cdef public bint keeps                  # damaged messages stay listed, since other replicas have them
    cdef readonly dict damaged              # number of a segment -> sequences of its listed damaged messages
    cdef public object on_loss              # called when such messages are found

    cdef int examine(self, uint64_t seq) noexcept nogil
    cdef void distrust(self, Segment* s) except *
    cdef bint contradicts(self, Segment* s, SegmentContents c) noexcept
    cdef SegmentContents contents_in(self, Segment* s)
    cdef bint drop_erased(self, Segment* s, SegmentContents c) except -1
    cdef void settle(self, Segment* s, SegmentContents c) except *
    cdef void keep_damaged(self, Segment* s, list lost) except *
    cdef void drop_damaged(self, Segment* s, list lost) except *
    cdef list lost_in(self, Segment* s, SegmentContents c)
    cdef void note_lost(self, object seqs) except *
