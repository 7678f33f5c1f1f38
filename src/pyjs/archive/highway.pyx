"""HighwayHash with 64 bits of result: the checksum of nats-server's message blocks, indexes and metadata.

Packets of 32 bytes are mixed into four lanes of 64 bits. Numbers are little-endian. Bytes can be added in pieces of
any size.

Compiled, because the hash of every message of a block is computed (measured by benchmarks/archives.py).
Source: google/highwayhash, the portable description; test vectors from files that nats-server wrote.
"""
from libc.string cimport memcpy, memset

from pyjs.base.borrow cimport borrowed

import hashlib

cdef uint64_t[4] FIRST = [0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL, 0x13198a2e03707344ULL, 0x243f6a8885a308d3ULL]
cdef uint64_t[4] SECOND = [0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL, 0xbe5466cf34e90c6cULL, 0x452821e638d01377ULL]


cdef inline uint64_t swapped(uint64_t value) noexcept nogil:
    """Return `value` with its 32-bit halves swapped."""
    return (value >> 32) | (value << 32)


cdef void highway_begin(Highway* h, const uint8_t* key) noexcept nogil:
    cdef uint64_t[4] lanes
    cdef int i
    memcpy(lanes, key, 32)
    for i in range(4):
        h.mul0[i], h.mul1[i] = FIRST[i], SECOND[i]
        h.v0[i] = FIRST[i] ^ lanes[i]
        h.v1[i] = SECOND[i] ^ swapped(lanes[i])
    h.n = 0


cdef inline void zipper(uint64_t b, uint64_t a, uint64_t* to_b, uint64_t* to_a) noexcept nogil:
    """Add the interleaved bytes of the lanes `a` and `b` to the lanes `to_a` and `to_b`."""
    to_a[0] += (((a & 0xff000000ULL) | (b & 0xff00000000ULL)) >> 24) \
        | (((a & 0xff0000000000ULL) | (b & 0xff000000000000ULL)) >> 16) | (a & 0xff0000ULL) \
        | ((a & 0xff00ULL) << 32) | ((b & 0xff00000000000000ULL) >> 8) | (a << 56)
    to_b[0] += (((b & 0xff000000ULL) | (a & 0xff00000000ULL)) >> 24) | (b & 0xff0000ULL) \
        | ((b & 0xff0000000000ULL) >> 16) | ((b & 0xff00ULL) << 24) | ((a & 0xff000000000000ULL) >> 8) \
        | ((b & 0xffULL) << 48) | (a & 0xff00000000000000ULL)


cdef void mix(Highway* h, const uint64_t* lanes) noexcept nogil:
    """Mix one packet of 32 bytes into the state."""
    cdef int i
    for i in range(4):
        h.v1[i] += h.mul0[i] + lanes[i]
        h.mul0[i] ^= (h.v1[i] & 0xffffffffULL) * (h.v0[i] >> 32)
        h.v0[i] += h.mul1[i]
        h.mul1[i] ^= (h.v0[i] & 0xffffffffULL) * (h.v1[i] >> 32)
    zipper(h.v1[1], h.v1[0], &h.v0[1], &h.v0[0])
    zipper(h.v1[3], h.v1[2], &h.v0[3], &h.v0[2])
    zipper(h.v0[1], h.v0[0], &h.v1[1], &h.v1[0])
    zipper(h.v0[3], h.v0[2], &h.v1[3], &h.v1[2])


cdef void highway_add(Highway* h, const uint8_t* data, size_t size) noexcept nogil:
    cdef uint64_t[4] lanes
    cdef size_t part
    if h.n:
        part = min(32 - h.n, size)
        memcpy(h.held + h.n, data, part)
        h.n += part
        data += part
        size -= part
        if h.n < 32:
            return
        memcpy(lanes, h.held, 32)
        mix(h, lanes)
        h.n = 0
    while size >= 32:
        memcpy(lanes, data, 32)
        mix(h, lanes)
        data += 32
        size -= 32
    if size:
        memcpy(h.held, data, size)
        h.n = size


cdef void mix_rest(Highway* h) noexcept nogil:
    """Mix the last packet, which is incomplete, into the state."""
    cdef uint8_t[32] packet
    cdef uint64_t[4] lanes
    cdef size_t n = h.n, whole = h.n & ~<size_t> 3, rest = h.n & 3
    cdef const uint8_t* tail = h.held + whole
    cdef uint64_t low, high
    cdef size_t i
    for i in range(4):
        h.v0[i] += (<uint64_t> n << 32) + n
        low, high = h.v1[i] & 0xffffffffULL, h.v1[i] >> 32
        low = ((low << n) | (low >> (32 - n))) & 0xffffffffULL
        high = ((high << n) | (high >> (32 - n))) & 0xffffffffULL
        h.v1[i] = low | (high << 32)
    memset(packet, 0, 32)
    memcpy(packet, h.held, whole)
    if n & 16:
        memcpy(packet + 28, h.held + n - 4, 4)
    elif rest:
        packet[16] = tail[0]
        packet[17] = tail[rest >> 1]
        packet[18] = tail[rest - 1]
    memcpy(lanes, packet, 32)
    mix(h, lanes)


cdef uint64_t highway_end(Highway* h) noexcept nogil:
    cdef uint64_t[4] lanes
    cdef int turns = 4
    if h.n:
        mix_rest(h)
    while turns:
        turns -= 1
        lanes[0], lanes[1] = swapped(h.v0[2]), swapped(h.v0[3])
        lanes[2], lanes[3] = swapped(h.v0[0]), swapped(h.v0[1])
        mix(h, lanes)
    return h.v0[0] + h.v1[0] + h.mul0[0] + h.mul1[0]


def highway_hash(bytes name not None, data not None) -> bytes:
    """Return the HighwayHash of `data` as eight little-endian bytes; its key is the SHA-256 of `name`."""
    cdef Highway h
    cdef bytes key = hashlib.sha256(name).digest()
    cdef uint64_t value
    cdef size_t size = 0
    cdef const uint8_t* p = <const uint8_t*> borrowed(data, &size)
    highway_begin(&h, key)
    if size:
        highway_add(&h, p, size)
    value = highway_end(&h)
    return (<uint8_t*> &value)[:8]
