"""What one segment file holds, by itself: entries, subjects, removals, and what is damaged."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.base.table cimport Table
from pyjs.store.index.sequences cimport Entry
from pyjs.store.format.record cimport RecordHeader, SegmentHeader

cdef enum:
    NO_PLACE = 0xffffffff       # as subject: there is none

cdef uint64_t ERASED_BIT        # set in a removal whose message was overwritten

cdef struct SubjectRow:         # 24 bytes, as in an .idx file; its place is the id that entries name it by
    uint32_t count              # messages
    uint32_t first              # place of its first entry
    uint32_t last
    uint32_t name_at            # in the names
    uint32_t name_size
    uint32_t spare

cdef class SegmentContents:
    """One segment file, read by `scan` or from its index file. Liveness is not its business: removals are a list."""
    cdef readonly uint64_t base_seq, incarnation
    cdef readonly uint32_t number
    cdef readonly bint sealed           # its last record is a footer
    cdef readonly uint64_t end          # bytes that header and records take
    cdef readonly uint64_t chain        # checksum of the last record
    cdef readonly uint64_t floor        # highest first_seq that a STATE record names; 0: none
    cdef readonly int64_t first_ts      # of the first message; 0: none
    cdef readonly int64_t last_ts       # of the last message or STATE record; 0: none
    cdef readonly uint32_t messages, with_headers
    cdef readonly uint64_t message_bytes        # subjects, headers and payloads
    cdef Entry* entries                 # subject_id is a place in `subjects`, prev stays inside the segment
    cdef bint borrowed                  # they are somebody else's
    cdef object source                  # whose: the map of an index file; None: none is
    cdef bint erased                    # from an index file: some are overwritten
    cdef readonly uint32_t n
    cdef uint32_t cap                   # a multiple of 64
    cdef SubjectRow* subjects
    cdef readonly uint32_t n_subjects
    cdef uint32_t subjects_cap
    cdef char* names
    cdef size_t names_size, names_cap
    cdef uint64_t* removals             # with ERASED_BIT
    cdef readonly uint32_t n_removals
    cdef uint32_t removals_cap
    cdef readonly bint sparse           # its entries have wide gaps (store/index/sequences), and no index file
    cdef readonly list problems         # (offset, size, what)
    cdef readonly list lost             # (first, last) sequence of each loss
    cdef readonly dict mended           # place -> bytes of a record in which a damaged byte was put right
    cdef readonly uint64_t lost_bytes
    cdef readonly bint end_damaged      # the last record is, whatever it was
    cdef readonly size_t meta_at, meta_size     # place of the last META record's body; 0: there is none
    # Of the scan only:
    cdef Table by_name                  # name -> place in `subjects` + 1
    cdef uint32_t latest                # place of the subject of the last message
    cdef uint64_t bad_before            # pages of maps that could not be read before this scan
    cdef const char* p
    cdef size_t size
    cdef size_t effort                  # bytes that may still be hashed to find records behind damage
    cdef int mends                      # records in which a damaged byte was looked for
    cdef public uint64_t shift          # where the image begins in its file: writes stop at sectors of that
    cdef public bint unread             # the disk could not read its end: that is no write that was cut short
    cdef bint adrift                    # damage took the checksum that the next record is chained to
    cdef size_t after_damage            # bytes before the next record were unreadable: of so many messages at most

    cdef int own_entries(self) except -1
    cdef int scan(self, const char* p, size_t size) except -1
    cdef int scan_without(self, SegmentHeader* header, const char* p, size_t size) except -1
    cdef int scan_behind(self, SegmentHeader* header, const char* p, size_t size) except -1
    cdef int records(self) noexcept nogil
    cdef bint accept(self, size_t at) noexcept nogil
    cdef int put_right(self, size_t at, size_t length) noexcept nogil
    cdef bint goes_on(self, size_t at, RecordHeader* h) noexcept nogil
    cdef int take(self, size_t at, const char* record) noexcept nogil
    cdef int take_message(self, size_t at, const char* record, RecordHeader* h) noexcept nogil
    cdef int take_removals(self, size_t at, const char* record, RecordHeader* h) noexcept nogil
    cdef bint follows(self, uint64_t before) noexcept nogil
    cdef int fill_gap(self, uint64_t before) noexcept nogil
    cdef Entry* add_entry(self) noexcept nogil
    cdef int add_wide_gap(self, uint32_t count) noexcept nogil
    cdef int grow_sparse(self, uint32_t n) noexcept nogil
    cdef uint32_t subject_place(self, const char* name, uint32_t size) noexcept nogil
    cdef uint32_t add_subject(self, const char* name, uint32_t size) noexcept nogil
    cdef void count_message(self, Entry* e, uint32_t place) noexcept nogil
    cdef size_t resync(self, size_t at) noexcept nogil
    cdef void judge_end(self, size_t at, size_t used) noexcept nogil
    cdef bint is_cut_in_checksum(self, size_t at, size_t length, size_t end) noexcept nogil
    cdef size_t cut_at(self, size_t used) noexcept nogil
    cdef void report(self, size_t at, size_t size, const char* what) noexcept nogil
    cdef int reserve(self, uint32_t n, uint32_t n_subjects, size_t names_size, uint32_t n_removals) noexcept nogil

# Whether a subject can stand in a protocol line.
cdef bint sendable(const char* subject, size_t n) noexcept nogil

# Makes the header of a file whose own is damaged, as the first whole record of it tells; -1: there is none.
cdef int told_header(SegmentHeader* header, const char* p, size_t size, uint32_t number, uint64_t incarnation,
                     uint64_t next_seq) except -2
