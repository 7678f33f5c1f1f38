"""Examination of damaged segments."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_reader cimport SegmentReader
from pyjs.store.file.segment_writer cimport SegmentWriter

cdef class Losses:
    """The messages lost to damage that was found when the store was opened or later."""
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # number of damaged or missing bytes in files
    cdef readonly list seqs             # the first LISTED_MAX of the lost messages
    cdef readonly list every            # in a replica: all of the lost messages

cdef class Examiner:
    """An examiner of damaged segments of an open store, which drops or lists their damaged messages."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentWriter writer
    cdef SegmentReader reader
    cdef readonly Losses losses
    # an index file was wrong: reads of damaged messages wait until the store is reopened
    cdef readonly bint mistaken
    cdef public object on_mistake  # called when `mistaken` becomes true; None: the store is never reopened
    cdef public bint keeps                  # damaged messages stay in the catalogue, since other replicas have them
    # number of a segment -> sequences of its damaged messages that are still in the catalogue
    cdef readonly dict damaged
    cdef public object on_loss              # called when such messages are found

    cdef int examine(self, uint64_t seq) noexcept nogil
    cdef void distrust(self, Segment* s) except *
    cdef bint contradicts(self, Segment* s, SegmentContents c) noexcept
    cdef SegmentContents contents_in(self, Segment* s)
    cdef bint drop_erased(self, Segment* s, SegmentContents c) except -1
    cdef void settle(self, Segment* s, SegmentContents c) except *
    cdef void keep_damaged(self, Segment* s, list lost) except *
    cdef void drop_damaged(self, Segment* s, list lost) except *
    cdef bint record_again(self, Segment* s, SegmentContents c) except -1
    cdef list lost_in(self, Segment* s, SegmentContents c)
    cdef void note_lost(self, object seqs) except *
