"""Rewriting of one sealed segment."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.contents cimport SegmentContents

cdef class SegmentRewrite:
    """A job that compacts or repairs one segment. It uses only files, so any thread may run it.

    The job has a copy of the segment's state at the time of its creation; the caller decides at the end whether this
    state is still valid.
    """
    cdef object disk
    cdef readonly str path              # path of the segment; see `new_path` for the new file
    cdef readonly uint32_t number
    cdef readonly uint64_t mark         # the new file may replace the old one when this commit is durable
    cdef public bint stale              # the segment has changed: discard the new file
    cdef readonly uint32_t encoding         # encoding of the new file: flags of its outer header
    cdef uint32_t codec                 # compression of the new file
    cdef object key                     # keys.StreamKey of the stream; None: not encrypted
    cdef readonly bint written          # the new file is complete and durable
    # open_files.ReplacedFile of the old file, opened when the new one is written; None: passed on
    cdef public object old
    cdef readonly SegmentContents contents      # of the new file
    cdef uint64_t incarnation, base, first, last    # sequences: base of the old segment, first and last live message
    cdef uint64_t floor
    cdef int64_t first_ts, last_ts
    cdef bint has_mark                  # the mark of the old file is intact
    cdef uint16_t version               # of the format of the new file
    cdef bytes new_mark                 # mark for a segment that did not exist; b"": keep the mark of the old file
    cdef bytes meta
    cdef dict restored  # sequence -> record that replaces a damaged one; None: the job is a compaction
    cdef uint64_t* dead                 # dead messages of the old segment, one bit for each sequence from `base` on
    cdef uint64_t* removed              # removals that must stay recorded in this segment
    cdef uint32_t n_removed
    # Used only while the job runs:
    cdef char* out
    cdef size_t size, room
    cdef uint64_t chain

    cdef bint is_repair(self) noexcept
    cdef object read(self)
    cdef SegmentContents contents_in(self, object view)
    cdef SegmentContents damaged_contents(self, object view)
    cdef int copy_live(self, SegmentContents old, const char* file) noexcept nogil
    cdef int restore_all(self, SegmentContents old, const char* file) except -1
    cdef int rewrite_contents(self, SegmentContents old, const char* file) noexcept nogil
    cdef int put_copy(self, const char* record, size_t length) noexcept nogil
    cdef int put_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil
    cdef int put_meta(self) noexcept nogil
    cdef int put_removals(self, int flags) noexcept nogil
    cdef void seal(self, size_t length) noexcept nogil
    cdef int make_room(self, size_t length) noexcept nogil

cdef SegmentRewrite rewrite_of(object disk, str path, Segment* s, uint64_t incarnation, uint64_t mark, bytes meta,
                               object key, uint32_t codec, dict restored)
# Return the job that writes a missing segment, with those of the messages base..last that are in `records`.
cdef SegmentRewrite missing_of(object disk, str path, uint32_t number, uint64_t base, uint64_t last,
                               uint64_t incarnation, bytes meta, object key, dict records, bytes mark)
# Return the segment that replaces `old` in the index; NULL: out of memory, or the new file lacks a live message.
cdef Segment* rewritten_segment(SegmentRewrite job, Segment* old) noexcept nogil
