"""Recovery, which reads the segments of a directory when a store is opened."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.segment.contents cimport Run, SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef class RecoveredSegment:
    """A segment file, as the recovery found it."""
    cdef SegmentContents contents
    cdef bint ended                     # the file is complete, even if it has no FOOTER
    cdef uint32_t encoding                  # flags of its outer header
    cdef uint64_t size                  # bytes of the file's image
    cdef uint64_t indexed               # bytes that its index file covers; 0: there is none

cdef class Recovery:
    """A recovery of the segments of a directory, with the results from all segments read so far."""
    cdef SegmentFiles files
    cdef uint64_t segment_size
    # (number, index file) of the last segment, if its index file is in the common file; None: it is not
    cdef object stored_tail
    cdef uint32_t next_number           # number of the next segment
    cdef uint64_t last_seq              # last used sequence of the segments read so far
    cdef uint64_t floor                 # highest first_seq in a STATE record
    cdef Run run                        # the last run; it may extend over several segments
    cdef list lost                      # (first, last) sequence of each loss
    cdef uint64_t lost_bytes
    cdef list scanned                   # numbers of the segments whose records were read, instead of the index file
    cdef list unrecorded  # removals recorded only in a missing segment or in damaged bytes, with ERASED_BIT
    cdef list witnesses                 # contents of index files whose segments are missing
    cdef list damaged_paths             # paths of segments that this or an earlier start has set aside
    cdef list ends                      # (path, end, next sequence) of segments that end without a footer
    cdef object sync_error  # error of a file that could not be synced; after it, later syncs prove nothing
    cdef object distrusted  # the IndexUnusable error of a bad index file of the segment being read, or None
    cdef bint state_due  # no file records the last used sequence: the next commit must write a STATE record
    cdef bint end_damaged               # the last record of the last segment is damaged
    cdef bint has_lost_sync             # an earlier process could not sync its segments
    cdef bint marked                    # the last file read is known to be complete
    cdef uint64_t cut                   # number of messages that may be missing at the end of the last file read
    cdef uint64_t shift                 # offset of the image in the last file read, unless it is compressed

    cdef void miss(self, SegmentContents known, uint32_t start) except *
    cdef void note_run(self, SegmentContents c, bint indexed) noexcept
    cdef RecoveredSegment take(self, SegmentContents c, image, uint64_t size, bint ended, uint64_t indexed)
