"""Correction of one damaged byte in a short piece of a segment file.

For each byte, all values are tried until the checksum is right. Two kinds of pieces need this, since their contents
are stored nowhere else: a record of removals, without which removed messages would exist again, and the header of an
encrypted or compressed file, without which the file cannot be read.

This module knows nothing of files. Compiled: a start may compute 130,000 hashes for a record
(benchmarks/store_start.py).
"""
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from pyjs.base.xxh64 cimport xxh64
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, KIND_MSG, SEGMENT_HEADER_SIZE, computed_checksum, intact, intact_alone, plausible, stored_checksum,
)

cdef enum:
    KIND_AT = 4


cdef int mend_record(char* p, size_t length, uint64_t before) noexcept nogil:
    cdef size_t at, end = length - CHECKSUM_SIZE
    cdef uint64_t checksum
    cdef char was
    cdef int change
    cdef bint sound = False
    if fits(p, length):                                     # the checksum itself is damaged
        checksum = computed_checksum(p, length, before, &sound)
        if sound and one_byte_differs(checksum, stored_checksum(p, length)):
            memcpy(p + end, &checksum, CHECKSUM_SIZE)
            return 0
    for at in range(end):
        # a message is not corrected, unless its kind is the damaged byte
        if p[KIND_AT] == KIND_MSG and at != KIND_AT:
            continue
        was = p[at]
        for change in range(1, 256):
            p[at] = <char> (was ^ change)
            if fits(p, length) and intact_alone(p) and intact(p, before):
                return 0
        p[at] = was
    return -1


def mended_header(bytes head not None) -> bytes | None:
    """Return the damaged header of a segment file with one byte corrected, or None if more bytes are wrong."""
    cdef char[SEGMENT_HEADER_SIZE] header
    cdef size_t at, end = SEGMENT_HEADER_SIZE - CHECKSUM_SIZE
    cdef uint64_t checksum, stored
    cdef char was
    cdef int change
    if len(head) < SEGMENT_HEADER_SIZE:
        return None
    memcpy(header, <const char*> head, SEGMENT_HEADER_SIZE)
    stored = stored_checksum(header, SEGMENT_HEADER_SIZE)
    checksum = xxh64(header, end, 0)
    if one_byte_differs(checksum, stored):
        memcpy(header + end, &checksum, CHECKSUM_SIZE)
        return header[:SEGMENT_HEADER_SIZE]
    for at in range(end):
        was = header[at]
        for change in range(1, 256):
            header[at] = <char> (was ^ change)
            if xxh64(header, end, 0) == stored:
                return header[:SEGMENT_HEADER_SIZE]
        header[at] = was
    return None


cdef inline bint fits(const char* p, size_t length) noexcept nogil:
    """Return whether the `length` bytes at `p` have the form of exactly one record."""
    cdef uint32_t size = 0
    memcpy(&size, p, 4)
    return size == length and plausible(p, length)


cdef inline bint one_byte_differs(uint64_t a, uint64_t b) noexcept nogil:
    """Return whether `a` and `b` differ in exactly one byte."""
    cdef uint64_t wrong = a ^ b
    while wrong and not wrong & 0xff:
        wrong >>= 8
    return wrong != 0 and wrong <= 0xff
