"""Segment files: the layout of their header and records, and the checksum that chains them.

A segment is a 64-byte header followed by records. Numbers are little-endian; there is no padding:

    record   = length u32 | kind u8 | flags u8 | subject_len u16 | seq u64 | ts i64 | header_len u32 | check u32
               [term u64 | index u64]  subject  headers  payload  checksum u64

The hash of a record is XXH64 of the bytes after its header; its seed is XXH64 of the header before `check`.
`check` is half of the hash. It proves that a record is intact, even if the bytes before the record are lost.
The checksum is XXH64 of the hash; its seed is the eight bytes before the record, which are the checksum of
the previous record or of the segment header. Invariant: if all checksums in a range of records are right, no
record of the range is missing.

Version 4 of a segment differs from version 3 only in the marks of replicas (store/segment/entry_mark).

This module knows nothing of files. Compiled: each append writes one record (benchmarks/: JetStream async publish).
"""
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.xxh64 cimport xxh64

cdef enum:
    CHECK_AT = RECORD_HEADER_SIZE - CHECK_SIZE


cdef inline uint64_t hash_of(const char* record, size_t length) noexcept nogil:
    """Return the hash of a record; it covers neither `check` nor the checksum."""
    return xxh64(record + RECORD_HEADER_SIZE, length - RECORD_SIZE_MIN, xxh64(record, CHECK_AT, 0))


cdef inline uint32_t check_of(uint64_t own) noexcept nogil:
    cdef uint32_t half = <uint32_t> own
    return half if half else 1


cdef inline uint32_t stored_check(const char* record) noexcept nogil:
    cdef uint32_t check = 0
    memcpy(&check, record + CHECK_AT, CHECK_SIZE)
    return check


cdef uint64_t seal_record(char* record, size_t length, uint64_t before) noexcept nogil:
    cdef uint64_t own = hash_of(record, length)
    cdef uint64_t checksum = xxh64(&own, sizeof(own), before)
    cdef uint32_t check = check_of(own)
    memcpy(record + CHECK_AT, &check, sizeof(check))
    memcpy(record + length - CHECKSUM_SIZE, &checksum, CHECKSUM_SIZE)
    return checksum


cdef uint64_t stored_checksum(const char* record, size_t length) noexcept nogil:
    cdef uint64_t checksum = 0
    memcpy(&checksum, record + length - CHECKSUM_SIZE, CHECKSUM_SIZE)
    return checksum


cdef bint plausible(const char* p, size_t left) noexcept nogil:
    cdef RecordHeader h
    cdef size_t fixed = RECORD_SIZE_MIN
    if left < RECORD_SIZE_MIN:
        return False
    memcpy(&h, p, RECORD_HEADER_SIZE)
    if h.length < RECORD_SIZE_MIN or h.length > left or h.length > RECORD_SIZE_MAX:
        return False
    if h.kind < KIND_MSG or h.kind > KIND_META or h.flags > FLAGS_ALL:
        return False
    if h.flags & FLAG_EXTENDED:
        fixed += 16
    return fixed + h.subject_len + h.header_len <= h.length


cdef uint64_t computed_checksum(const char* p, size_t length, uint64_t before, bint* sound) noexcept nogil:
    cdef uint64_t own = hash_of(p, length)
    sound[0] = stored_check(p) == check_of(own)
    return xxh64(&own, sizeof(own), before)


cdef bint intact(const char* p, uint64_t before) noexcept nogil:
    cdef uint32_t length = 0
    cdef bint sound = True
    memcpy(&length, p, 4)
    return computed_checksum(p, length, before, &sound) == stored_checksum(p, length)


cdef bint intact_alone(const char* p) noexcept nogil:
    cdef RecordHeader h
    memcpy(&h, p, RECORD_HEADER_SIZE)
    return h.check == check_of(hash_of(p, h.length))


cdef bint whole(const char* p, uint64_t before) noexcept nogil:
    cdef uint32_t length = 0
    cdef bint sound = True
    memcpy(&length, p, 4)
    return computed_checksum(p, length, before, &sound) == stored_checksum(p, length) and sound


cdef void make_segment_header(SegmentHeader* h, uint64_t base_seq, uint32_t number,
                              uint64_t incarnation, uint16_t version=FORMAT_VERSION) noexcept nogil:
    memset(h, 0, sizeof(SegmentHeader))
    memcpy(h.magic, b"PYJSSEG\n", 8)
    h.version = version
    h.needs_major, h.needs_minor = NEEDS_MAJOR, NEEDS_MINOR
    h.base_seq = base_seq
    h.number = number
    h.incarnation = incarnation
    h.checksum = xxh64(h, SEGMENT_HEADER_SIZE - CHECKSUM_SIZE, 0)


cdef void write_segment_header(char* out, uint64_t base_seq, uint32_t number, uint64_t incarnation,
                               uint16_t version=FORMAT_VERSION) noexcept nogil:
    cdef SegmentHeader h
    make_segment_header(&h, base_seq, number, incarnation, version)
    memcpy(out, &h, SEGMENT_HEADER_SIZE)


cdef int check_segment_header(const char* p, size_t size) noexcept nogil:
    cdef SegmentHeader h
    if size < SEGMENT_HEADER_SIZE or memcmp(p, b"PYJSSEG\n", 8) != 0:
        return -1
    memcpy(&h, p, SEGMENT_HEADER_SIZE)
    if h.checksum != xxh64(p, SEGMENT_HEADER_SIZE - CHECKSUM_SIZE, 0):
        return -1
    if not FORMAT_VERSION <= h.version <= STEPS_VERSION or h.flags:
        return -2
    return 0


def checksum_of(bytes data, uint64_t seed) -> int:
    """Return the XXH64 of `data` with `seed`, as used in records."""
    cdef const char* p = data
    return xxh64(p, len(data), seed)
