"""HighwayHash with 64 bits of result; see highway.pyx."""
from libc.stdint cimport uint8_t, uint64_t

cdef struct Highway:
    uint64_t[4] v0
    uint64_t[4] v1
    uint64_t[4] mul0
    uint64_t[4] mul1
    uint8_t[32] held            # bytes of an unfinished packet
    size_t n                    # number of these bytes, below 32

cdef void highway_begin(Highway* h, const uint8_t* key) noexcept nogil             # key: 32 bytes
cdef void highway_add(Highway* h, const uint8_t* data, size_t size) noexcept nogil
cdef uint64_t highway_end(Highway* h) noexcept nogil                                # after this, `h` must not be used
