"""Reading the segments of a directory back."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef class RecoveredSegment:
    """One segment file as a start found it."""
    cdef SegmentContents contents
    cdef bint ended                     # it grows no more, although it may have no footer
    cdef uint32_t form                  # flags of its outer header
    cdef uint64_t size                  # of the file's image
    cdef uint64_t indexed               # bytes that its index file tells of; 0: it has none

cdef class Recovery:
    """One start: what was found so far, over all segments."""
    cdef SegmentFiles files
    cdef uint64_t segment_size
    cdef object stored_tail             # (number, index file) of a segment as it stopped; None: it has its own
    cdef uint32_t next_number           # of the next segment
    cdef uint64_t last_seq              # used by what was read so far
    cdef uint64_t floor                 # highest first_seq that a STATE record names
    cdef list lost                      # (first, last) sequence of each loss
    cdef uint64_t lost_bytes
    cdef list scanned                   # numbers of the segments that were read, not taken from an index file
    cdef list unrecorded                # removals that only a missing segment told of, with ERASED_BIT
    cdef list witnesses                 # what index files say whose segments are missing
    cdef list damaged_paths             # of segments that are not read, from now or earlier
    cdef list ends                      # (path, end, next sequence) of segments that end without a footer
    cdef object sync_error              # of a file that could not be synced: the store believes no sync
    cdef bint state_due                 # nothing in the files says how far the sequences went
    cdef bint end_damaged               # the last record of the file read last
    cdef bint marked                    # the end of that file is known to be the one that it had
    cdef uint64_t cut                   # so many messages may be missing there
    cdef uint64_t shift                 # where the image begins in it, unless it is compressed

    cdef void miss(self, SegmentContents known, uint32_t start) except *
    cdef RecoveredSegment take(self, SegmentContents c, image, uint64_t size, bint ended, uint64_t indexed)
