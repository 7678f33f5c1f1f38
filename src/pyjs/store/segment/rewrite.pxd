"""Sealed segments written anew, without what is gone from them."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.contents cimport SegmentContents

cdef class SegmentRewrite:
    """One segment to be written anew: a job for any thread, which touches nothing but files.

    It knows the segment as it was when the job was made. Who made it decides at the end whether that is still right.
    """
    cdef object disk
    cdef readonly str path              # of the segment; the new file is beside it, see `new_path`
    cdef readonly uint32_t number
    cdef readonly uint64_t mark         # the new file may take its place when this commit is on the medium
    cdef public bint stale              # the segment changed in a way that the new file does not know of
    cdef readonly uint32_t form         # of the new file: flags of its outer header
    cdef uint32_t codec                 # what it is to be compressed with
    cdef object key                     # vault.StreamKey: what it is encrypted with; None: nothing
    cdef readonly bint written          # the new file is whole and on the medium
    cdef readonly SegmentContents contents      # of the new file
    cdef uint64_t incarnation, base, first, last        # sequences: of the old segment, and what is left
    cdef uint64_t floor
    cdef int64_t last_ts
    cdef bytes meta
    cdef uint64_t* dead                 # of the old segment, a bit for each sequence from `base` on
    cdef uint64_t* removed              # removals of other segments' messages, which stay recorded here
    cdef uint32_t n_removed
    # Of the work only:
    cdef char* out
    cdef size_t size, room
    cdef uint64_t chain

    cdef int write_anew(self, SegmentContents old, const char* file) noexcept nogil
    cdef int put_copy(self, const char* record, size_t length) noexcept nogil
    cdef int put_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil
    cdef int put_meta(self) noexcept nogil
    cdef int put_removals(self, int flags) noexcept nogil
    cdef void seal(self, size_t length) noexcept nogil
    cdef int make_room(self, size_t length) noexcept nogil

cdef SegmentRewrite rewrite_of(object disk, str path, Segment* s, uint64_t incarnation, uint64_t mark, bytes meta,
                               object key, uint32_t codec)
# Makes what takes the place of `old` in the index; NULL: no memory, or the new file does not hold what is live.
cdef Segment* rewritten_segment(SegmentRewrite job, Segment* old) noexcept nogil
