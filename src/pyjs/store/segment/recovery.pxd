"""Recovery: reads the segments of a directory at a start."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef class RecoveredSegment:
    """One segment file, as a start found it."""
    cdef SegmentContents contents
    cdef bint ended                     # complete, even if it has no FOOTER
    cdef uint32_t encoding                  # flags of its outer header
    cdef uint64_t size                  # size of the file's image
    cdef uint64_t indexed               # bytes that its index file covers; 0: there is none

cdef class Recovery:
    """One start: the results over all segments read so far."""
    cdef SegmentFiles files
    cdef uint64_t segment_size
    cdef object stored_tail    # (number, index file) of the last segment in the common file; None: it is not there
    cdef uint32_t next_number           # number of the next segment
    cdef uint64_t last_seq              # last used sequence of the segments read so far
    cdef uint64_t floor                 # highest first_seq of a STATE record
    cdef list lost                      # (first, last) sequence of each loss
    cdef uint64_t lost_bytes
    cdef list scanned                   # numbers of the segments whose records were read, not the index file
    cdef list unrecorded    # removals that were recorded only in a segment that is now missing, with ERASED_BIT
    cdef list witnesses                 # contents of index files whose segments are missing
    cdef list damaged_paths             # of segments that were set aside, by this or an earlier start
    cdef list ends                      # (path, end, next sequence) of segments that end without a footer
    cdef object sync_error              # error of a file that could not be synced: later syncs prove nothing
    cdef bint state_due                 # no file records the last used sequence: a STATE record is needed
    cdef bint end_damaged               # the last record of the last segment is damaged
    cdef bint marked                    # the last file read is known to be complete
    cdef uint64_t cut                   # number of messages that may be missing at the end of that file
    cdef uint64_t shift                 # offset of the image in that file, unless it is compressed

    cdef void miss(self, SegmentContents known, uint32_t start) except *
    cdef RecoveredSegment take(self, SegmentContents c, image, uint64_t size, bint ended, uint64_t indexed)
