"""C helpers of the message path, see fast.h."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "fast.h" nogil:
    uint64_t hash_bytes "pyjs_hash"(const char* p, size_t n, uint64_t s0, uint64_t s1)
    int write_digits "pyjs_digits"(char* out, uint64_t value)  # writes up to 20 decimal digits; returns their number
    # writes 8 digits, with leading zeros; `value` must be below 10^8
    void write_eight_digits "pyjs_eight_digits"(char* out, uint32_t value)
    # offset of the first byte below "!", or n
    size_t below_graphic "pyjs_below_graphic"(const char* p, size_t n, size_t i)
