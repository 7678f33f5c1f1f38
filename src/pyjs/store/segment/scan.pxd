"""Scan, which reads the records of one segment file to find the contents and the damage of the file."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport Table
from pyjs.store.format.record cimport RecordHeader, SegmentHeader
from pyjs.store.segment.contents cimport SegmentContents

cdef class SegmentScan:
    """A single scan of one segment file; another scan needs a new object."""
    cdef SegmentContents c              # the result
    cdef uint64_t shift    # offset of the image in its file, since torn writes end at sectors of the file
    cdef bint unread                    # the end of the file is unreadable, so damage there is not a torn write
    cdef const char* p
    cdef size_t size
    cdef size_t effort                  # bytes that may still be hashed in the search for records after damage
    cdef int mends                      # number of records in which a damaged byte was searched
    cdef uint64_t bad_before            # number of unreadable pages in all maps before this scan
    cdef Table by_name                  # name -> 1 + position of the subject
    cdef uint32_t latest                # position of the subject of the last message
    cdef size_t batch_at                # offset of a batch of which the last message was not read yet; 0: none
    cdef dict parts    # batches with a hole: offset of the batch -> offset of the first record after the hole
    cdef bint has_parts
    cdef int scans                      # number of earlier scans of this file
    cdef size_t part_end                # offset at which the hole begins
    cdef bint torn  # the last damage was a hole, so the records after it may be the rest of a batch
    cdef uint64_t torn_seq              # sequence of the last message in such a rest
    cdef size_t hole_at                 # offset at which a write was torn; 0: none. Marks after it are not valid
    cdef bint begun_adrift              # the header was damaged
    cdef bint adrift                    # after damage: the checksum from which the next record continues is unknown
    cdef size_t after_damage    # unreadable bytes before the next record, which limit the number of lost messages

    cdef SegmentContents whole(self, const char* p, size_t size)
    cdef SegmentContents without_header(self, SegmentHeader* header, const char* p, size_t size)
    cdef SegmentContents behind(self, SegmentHeader* header, const char* p, size_t size)
    cdef SegmentContents without_batch(self, SegmentHeader* header)
    cdef SegmentContents without_parts(self, SegmentHeader* header)
    cdef int records(self) noexcept nogil
    cdef void note_part(self, size_t end) noexcept nogil
    cdef size_t end_of_part(self, size_t at) noexcept nogil
    cdef bint is_hole(self, size_t at, size_t end) noexcept nogil
    cdef bint is_rest(self, const char* record, RecordHeader* h) noexcept nogil
    cdef bint accept(self, size_t at) noexcept nogil
    cdef int put_right(self, size_t at, size_t length) noexcept nogil
    cdef bint goes_on(self, size_t at, RecordHeader* h) noexcept nogil
    cdef int take(self, size_t at, const char* record) noexcept nogil
    cdef int take_message(self, size_t at, const char* record, RecordHeader* h) noexcept nogil
    cdef int take_removals(self, size_t at, const char* record, RecordHeader* h) noexcept nogil
    cdef void note_mark(self, size_t at, RecordHeader* h) noexcept nogil
    cdef bint follows(self, uint64_t before) noexcept nogil
    cdef int fill_gap(self, uint64_t before) noexcept nogil
    cdef uint32_t subject_place(self, const char* name, uint32_t size) noexcept nogil
    cdef size_t resync(self, size_t at) noexcept nogil
    cdef void judge_end(self, size_t at, size_t used) noexcept nogil
    cdef bint is_cut_in_checksum(self, size_t at, size_t length, size_t end) noexcept nogil
    cdef size_t cut_at(self, size_t used) noexcept nogil
    cdef void report(self, size_t at, size_t size, const char* what) noexcept nogil

# Return whether a protocol line can contain the subject.
cdef bint sendable(const char* subject, size_t n) noexcept nogil

# Rebuild a damaged header from the first intact record; return -1 if there is none.
cdef int told_header(SegmentHeader* header, const char* p, size_t size, uint32_t number, uint64_t incarnation,
                     uint64_t next_seq) except -2
