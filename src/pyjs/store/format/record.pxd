"""Segment files: the layout of their header and records, as specified in docs/storage-format.md."""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    FORMAT_VERSION = 3
    STEPS_VERSION = 4           # the same, but marks may have clock steps, which version 3 would read as an id
    NEEDS_MAJOR = 0             # the first pyjs-server version that reads these
    NEEDS_MINOR = 1
    SEGMENT_HEADER_SIZE = 64
    RECORD_HEADER_SIZE = 32
    CHECKSUM_SIZE = 8
    CHECK_SIZE = 4              # bytes of `check`, at the end of a record's header
    RECORD_SIZE_MIN = 40        # RECORD_HEADER_SIZE + CHECKSUM_SIZE
    RECORD_SIZE_MAX = 134217728
    FOOTER_SIZE = 88            # RECORD_SIZE_MIN and six u64
    REMOVALS_MAX = 56  # maximum number of sequences in a DELETES record, so that store/format/mending can correct it

cdef enum Kind:
    KIND_MSG = 1
    KIND_STATE = 2              # seq: last_seq; body: first_seq, last_ts, and in a replica a mark
    KIND_DELETES = 3            # body: the removed sequences
    KIND_FOOTER = 4             # the segment is sealed; body: its summary
    KIND_META = 5               # seq: last_seq; body: the stream's metadata, as in its own files

cdef enum:
    FLAG_EXTENDED = 1           # 16 bytes of term and index follow the header
    FLAG_ERASED = 2             # MSG: the body is overwritten; DELETES: the listed messages are overwritten
    FLAG_UNFINISHED = 4         # MSG: the next record belongs to the same batch
    FLAGS_ALL = 7

cdef packed struct RecordHeader:
    uint32_t length             # bytes of the whole record, including header and checksum
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint64_t seq
    int64_t ts
    uint32_t header_len
    uint32_t check              # half of the hash of this record alone; never 0

cdef packed struct SegmentHeader:
    char[8] magic
    uint16_t version
    uint8_t needs_major         # the first pyjs-server version that reads this file
    uint8_t needs_minor
    uint32_t flags              # compression and encryption; 0: plain
    uint64_t base_seq           # no record in the file has a lower sequence
    int64_t spare_ts
    uint32_t number
    uint32_t spare
    uint64_t incarnation        # of the stream; files with another incarnation are ignored
    uint64_t spare2
    uint64_t checksum           # XXH64 of the bytes before it; seeds the checksum of the first record

# Write `check` and the checksum of a record; return the checksum.
cdef uint64_t seal_record(char* record, size_t length, uint64_t before) noexcept nogil
cdef uint64_t stored_checksum(const char* record, size_t length) noexcept nogil
cdef bint plausible(const char* p, size_t left) noexcept nogil    # the sizes in the header are consistent
# Return the checksum of these bytes if `before` is the checksum before them; set `sound` if their `check` is right.
cdef uint64_t computed_checksum(const char* p, size_t length, uint64_t before, bint* sound) noexcept nogil
# plausible, and the checksum is right after the checksum `before`
cdef bint intact(const char* p, uint64_t before) noexcept nogil
cdef bint intact_alone(const char* p) noexcept nogil                    # plausible, and `check` is right
cdef bint whole(const char* p, uint64_t before) noexcept nogil  # plausible, and checksum and `check` are right
cdef void make_segment_header(SegmentHeader* h, uint64_t base_seq, uint32_t number,
                              uint64_t incarnation, uint16_t version=?) noexcept nogil
cdef void write_segment_header(char* out, uint64_t base_seq, uint32_t number, uint64_t incarnation,
                               uint16_t version=?) noexcept nogil
cdef int check_segment_header(const char* p, size_t size) noexcept nogil  # 0; -1: not a segment; -2: another version
