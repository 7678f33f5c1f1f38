"""Decoder of S2 and Snappy blocks, converter from Snappy blocks to shorter S2 blocks, and the CRC-32C of frames.

A block is its decoded size as a varint, followed by elements: literals, and copies of earlier output. The low two
bits of an element's first byte are its kind. An S2 block may repeat the offset of the previous copy (a one-byte copy
with offset 0). Every read and every copy is checked against both buffers. cramjam compresses to Snappy blocks, which
are valid S2 but need three bytes for every 64 bytes of a long match. This module converts such a series of copies to
one copy and one repeat.

Compiled, because backup and restore read every byte of an archive here (measured by benchmarks/archives.py).
Source: google/snappy format_description.txt; the S2 extension as documented by klauspost/compress/s2.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.base.borrow cimport borrowed

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    static int pyjs_counts_crc(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") != 0;
    }
    __attribute__((target("sse4.2")))
    static uint32_t pyjs_crc(uint32_t crc, const uint8_t *p, size_t n) {
        uint64_t wide = crc, eight;
        for (; n >= 8; n -= 8, p += 8) {
            memcpy(&eight, p, 8);
            wide = __builtin_ia32_crc32di(wide, eight);
        }
        for (crc = (uint32_t)wide; n; n--)
            crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static int pyjs_counts_crc(void) { return 1; }
    static uint32_t pyjs_crc(uint32_t crc, const uint8_t *p, size_t n) {
        uint64_t eight;
        for (; n >= 8; n -= 8, p += 8) {
            memcpy(&eight, p, 8);
            crc = __crc32cd(crc, eight);
        }
        for (; n; n--)
            crc = __crc32cb(crc, *p++);
        return crc;
    }
    #else
    static int pyjs_counts_crc(void) { return 0; }
    static uint32_t pyjs_crc(uint32_t crc, const uint8_t *p, size_t n) { return 0; }
    #endif
    """
    bint processor_has_crc "pyjs_counts_crc"() noexcept nogil
    uint32_t processor_crc "pyjs_crc"(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil

cdef uint32_t[256] CRC_TABLE
cdef bint HAS_CRC = processor_has_crc()


cdef void fill_table() noexcept:
    cdef uint32_t n, crc, bits
    for n in range(256):
        crc = n
        bits = 8
        while bits:
            crc = (crc >> 1) ^ 0x82F63B78u if crc & 1 else crc >> 1
            bits -= 1
        CRC_TABLE[n] = crc


fill_table()


cdef uint32_t table_crc(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        crc = CRC_TABLE[(crc ^ p[i]) & 0xFF] ^ (crc >> 8)
    return crc


def masked_crc(data not None, bint by_table=False) -> int:
    """Return the CRC-32C of `data`, masked as in frames; with `by_table`, compute it without the CRC instruction."""
    cdef uint32_t crc = 0xFFFFFFFFu
    cdef size_t n = 0
    cdef const uint8_t* p = <const uint8_t*> borrowed(data, &n)
    if HAS_CRC and not by_table:
        crc = ~processor_crc(crc, p, n)
    else:
        crc = ~table_crc(crc, p, n)
    crc = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u
    return crc


def decode_block(block not None, size_t size_max) -> bytes:
    """Return the decoded bytes of an S2 or Snappy block.

    Raises:
        ValueError: the block is damaged, or decodes to more than `size_max` bytes.
    """
    cdef size_t n = 0, at = 0, size = 0
    cdef const uint8_t* p = <const uint8_t*> borrowed(block, &n)
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t* to
    cdef bytes out
    cdef bint whole
    while True:
        if at == n or shift > 28:
            raise ValueError("an S2 block has no valid size")
        value |= <uint64_t> (p[at] & 0x7F) << shift
        at += 1
        if p[at - 1] < 0x80:
            break
        shift += 7
    if value > size_max:
        raise ValueError(f"an S2 block claims {value} bytes, {size_max} are the most")
    size = <size_t> value
    out = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t*> PyBytes_AS_STRING(out)
    with nogil:
        whole = fill(to, size, p + at, n - at)
    if not whole:
        raise ValueError("an S2 block is damaged")
    return out


cdef bint fill(uint8_t* out, size_t size, const uint8_t* p, size_t n) noexcept nogil:
    """Decode the elements at `p` into `out`; return whether they are valid and decode to exactly `size` bytes."""
    cdef size_t at = 0, made = 0, length = 0, offset = 0, extra, k
    cdef uint8_t tag
    while at < n:
        tag = p[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                if n - at < extra:
                    return False
                length = read_little(p + at, extra)
                at += extra
            length += 1
            if length > n - at or length > size - made:
                return False
            memcpy(out + made, p + at, length)
            at += length
            made += length
            continue
        extra = 1 if tag & 3 == 1 else (2 if tag & 3 == 2 else 4)
        if n - at < extra:
            return False
        if extra != 1:
            length = (tag >> 2) + 1
            offset = read_little(p + at, extra)
            at += extra
        else:
            length = (tag >> 2) & 7
            k = (<size_t> (tag & 0xE0) << 3) | p[at]
            at += 1
            if k:
                offset = k
            elif length >= 5:           # a repeat, followed by the bytes of its length
                extra = length - 4
                if n - at < extra:
                    return False
                length = read_little(p + at, extra) + (4 if extra == 1 else (256 if extra == 2 else 65536))
                at += extra
            length += 4
        if offset == 0 or offset > made or length > size - made:
            return False
        if offset >= length:
            memcpy(out + made, out + made - offset, length)
        else:
            for k in range(length):     # the source of the copy overlaps with its destination
                out[made + k] = out[made + k - offset]
        made += length
    return made == size


cdef size_t read_little(const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t value = 0, k
    for k in range(n):
        value |= <size_t> p[k] << (8 * k)
    return value


# -- encoding -------------------------------------------------------------------------------------------------------


def with_repeats(bytes block not None) -> bytes:
    """Return an S2 block with the data of a valid Snappy block of at most 64 KiB; the result is never longer."""
    cdef const uint8_t* p = block
    cdef size_t n = len(block), size
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n)
    cdef uint8_t* to = <uint8_t*> PyBytes_AS_STRING(out)
    with nogil:
        size = merge_copies(to, p, n)
    return out[:size]


cdef size_t merge_copies(uint8_t* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write the valid Snappy block at `p` to `out`; merge adjacent copies of equal offset. Return the new size."""
    cdef uint8_t* to = out
    cdef size_t at = 0, length = 0, offset = 0, written = 0, size, found, extra
    cdef uint8_t tag
    while p[at] >= 0x80:                # the decoded size does not change: copy it
        at += 1
    at += 1
    memcpy(to, p, at)
    to += at
    while at < n:
        tag = p[at]
        if tag & 3 == 0:
            to = write_copy(to, offset, length, &written)
            length = 0
            size = tag >> 2
            extra = 0 if size < 60 else size - 59
            size = 2 + extra + (size if extra == 0 else read_little(p + at + 1, extra))
            memcpy(to, p + at, size)
            to += size
            at += size
            continue
        if tag & 3 == 1:
            size, found = ((tag >> 2) & 7) + 4, (<size_t> (tag & 0xE0) << 3) | p[at + 1]
            at += 2
        else:                           # such a small block has no offsets of four bytes
            size, found = (tag >> 2) + 1, read_little(p + at + 1, 2)
            at += 3
        if found != offset:
            to = write_copy(to, offset, length, &written)
            offset, length = found, 0
        length += size
    return write_copy(to, offset, length, &written) - out


cdef uint8_t* write_copy(uint8_t* to, size_t offset, size_t length, size_t* written) noexcept nogil:
    """Write a copy of `length` bytes, or nothing if `length` is 0; return the position after it.

    `written` is the offset of the previous copy, and is set to that of this copy.
    """
    cdef size_t first = length
    if length > 64:
        first = 8 if offset < 2048 else 60
    if offset == written[0] and (length > 64 or (4 <= length <= 8)):
        first = 0
    elif 4 <= first <= 11 and offset < 2048:
        to[0], to[1] = <uint8_t> (offset >> 8 << 5 | (first - 4) << 2 | 1), <uint8_t> offset
        to += 2
    elif first:
        to[0], to[1], to[2] = <uint8_t> ((first - 1) << 2 | 2), <uint8_t> offset, <uint8_t> (offset >> 8)
        to += 3
    if length:
        written[0] = offset
    return write_repeat(to, length - first) if length != first else to


cdef uint8_t* write_repeat(uint8_t* to, size_t length) noexcept nogil:
    """Write a repeat, which is a copy of at least four bytes with the offset of the previous copy.

    Return the position after it.
    """
    cdef size_t extra = 0 if length <= 8 else (1 if length < 264 else (2 if length < 65796 else 3))
    cdef size_t rest = length - (4 if extra == 0 else (8 if extra == 1 else (260 if extra == 2 else 65540)))
    to[0], to[1] = <uint8_t> ((rest if extra == 0 else extra + 4) << 2 | 1), 0
    if extra > 0:
        to[2] = <uint8_t> rest
    if extra > 1:
        to[3] = <uint8_t> (rest >> 8)
    if extra > 2:
        to[4] = <uint8_t> (rest >> 16)
    return to + 2 + extra
