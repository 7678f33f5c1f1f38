"""The contents of one segment file: entries, subjects, removals, damage."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.format.record cimport RECORD_HEADER_SIZE
from pyjs.store.index.sequences cimport ENTRY_EXTENDED, Entry

cdef enum:
    NO_PLACE = 0xffffffff       # stands for the position of a subject that is not in the segment

cdef uint64_t ERASED_BIT        # set in the removal of a message that was erased

cdef struct SubjectRow:         # 24 bytes, as in an .idx file; entries refer to the row by its position
    uint32_t count              # number of its messages
    uint32_t first              # position of its first entry
    uint32_t last
    uint32_t name_at            # offset of the name in `names`
    uint32_t name_size
    uint32_t spare

cdef struct Run:                # messages without a record of removals, or a change of the metadata, between them
    uint64_t first_seq          # 0: there is no run
    bint joins                  # it begins with the segment, so it may continue the run of the segment before
    bint ended                  # a record of removals follows it
    bint changed                # the metadata changed after the segment's last message, so no run before it counts

cdef inline uint64_t subject_at(Entry* e) noexcept nogil:
    """Return the offset in the image of a segment at which the subject of a message begins; its body follows."""
    return <uint64_t> e.offset + RECORD_HEADER_SIZE + (16 if e.flags & ENTRY_EXTENDED else 0)

cdef class SegmentContents:
    """The contents of one segment file, from a scan or from its index file. Removals are listed but not applied."""
    cdef readonly uint64_t base_seq, incarnation
    cdef readonly uint32_t number
    cdef readonly bint sealed           # its last record is a FOOTER
    cdef readonly uint64_t end          # bytes of header and records
    cdef readonly uint64_t chain        # checksum of the last record
    cdef readonly uint64_t floor        # highest first_seq of a STATE record; 0: none
    cdef readonly int64_t first_ts      # of the first message; 0: none
    cdef readonly int64_t last_ts       # of the last message or STATE record; 0: none
    cdef Run run                        # the last run; only a scan finds it
    cdef readonly uint32_t messages, with_headers
    cdef readonly uint64_t message_bytes        # bytes of subjects, headers and payloads
    cdef Entry* entries    # subject_id is a position in `subjects`; `prev` refers only to this segment
    cdef bint borrowed                  # `entries` belongs to another object
    cdef object source                  # the owner of `entries`: the map of an index file; None: this object
    cdef bint erased                    # set in contents from an index file: some messages are erased
    cdef readonly uint32_t n
    cdef size_t room                    # entries for which there is memory; a multiple of 64
    cdef SubjectRow* subjects
    cdef readonly uint32_t n_subjects
    cdef size_t subjects_room
    cdef char* names
    cdef size_t names_size, names_room
    cdef uint64_t* removals             # removed sequences, with ERASED_BIT if erased
    cdef readonly uint32_t n_removals
    cdef size_t removals_room
    cdef readonly bint sparse    # `entries` has wide gaps (store/index/sequences); such a segment has no index file
    cdef readonly list problems         # (offset, size, text) of each damaged place
    cdef readonly list lost             # (first, last) sequence of each range of lost messages
    cdef readonly dict mended           # offset -> bytes of a record in which one byte was corrected
    cdef readonly uint64_t lost_bytes
    cdef readonly bint end_damaged      # the last record is damaged
    cdef readonly size_t mark_at, mark_size    # body of the last STATE record that has a replica's mark
    cdef readonly size_t mark_end               # end of the records that this mark covers; 0: there is no mark
    cdef readonly size_t meta_at, meta_size     # body of the last META record; offset 0: there is none

    cdef void own_entries(self) except *
    cdef Entry* add_entry(self) noexcept nogil
    cdef int add_gap(self, uint64_t before) noexcept nogil
    cdef int grow_sparse(self, uint32_t n) noexcept nogil
    cdef uint32_t add_subject(self, const char* name, uint32_t size) noexcept nogil
    cdef void count_message(self, Entry* e, uint32_t place) noexcept nogil
    cdef list lacks(self, const uint64_t* removals, uint32_t n)
    cdef int reserve_entries(self, size_t n) noexcept nogil
    cdef int reserve(self, size_t n_subjects, size_t names_size, size_t n_removals) noexcept nogil
