"""Reading the segments of a directory back."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.filestore cimport FileStore
from pyjs.store.index cimport Segment
from pyjs.store.segment cimport SegmentContents

cdef class Recovery:
    """One start: what was found so far, over all segments."""
    cdef FileStore store
    cdef uint64_t floor                 # highest first_seq that a STATE record names
    cdef list lost                      # (first, last) sequence of each loss
    cdef list erased                    # messages whose bytes are overwritten
    cdef list scanned                   # numbers of the segments that were read, not taken from an index file
    cdef list unrecorded                # removals that only a missing segment told of, with ERASED_BIT
    cdef list witnesses                 # what index files say whose segments are missing
    cdef object sync_error              # of a file that could not be synced: the store believes no sync
    cdef bint end_damaged               # the last record of the file read last
    cdef list ends                      # (path, end, next sequence) of segments that end without a footer
    cdef uint64_t cut                   # so many messages may be missing at the end of the file read last
    cdef uint64_t shift                 # where the image begins in it, unless it is compressed
    cdef bint marked                    # its end is known to be the one that it had

    cdef int miss(self, SegmentContents known, uint32_t start) except -1
    cdef int adopt(self, SegmentContents c, bint ended) except -1
    cdef int adopt_subjects(self, SegmentContents c, Segment* s) except -1
    cdef int count(self, SegmentContents c, Segment* s) except -1
    cdef int keep_form(self, image) except -1
    cdef int leave_last(self, Segment* s) except -1
    cdef int finish_erasure(self) except -1
    cdef int drop_removed(self) except -1
