"""The sequences that a consumer delivers first: the last of each subject when it was made (`last_per_subject`).

Packed, since there may be a million of them for each of many consumers: the first, then the distance to each next
one, as LEB128 (store/index/last_seqs.pyx makes them). Handed out in ascending order, once. In a state that is kept
they are the same bytes as base64, and an empty list when there are none.

Compiled because each first delivery takes one (benchmarks/: pull 500).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from binascii import a2b_base64, b2a_base64

cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence


cdef int read_number(const uint8_t* data, size_t size, size_t* at, uint64_t* number) noexcept nogil:
    """Take the number at `at`; -1: it does not end, or is too large."""
    cdef uint64_t value = 0
    cdef int shift = 0
    while at[0] < size and shift < 64:
        if shift == 63 and data[at[0]] > 1:
            return -1
        value |= <uint64_t> (data[at[0]] & 0x7f) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            number[0] = value
            return 0
        shift += 7
    return -1


cdef bytes number_bytes(uint64_t number):
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


cdef class Skips:
    def __init__(self, bytes packed not None):
        """Stand at the first. Raises ValueError: these are not ascending sequences."""
        cdef uint64_t gap = 0, seq = 0
        cdef size_t at = 0
        self.data = packed
        self.raw = <const uint8_t*> PyBytes_AS_STRING(packed)
        self.size = PyBytes_GET_SIZE(packed)
        while at < self.size:
            if read_number(self.raw, self.size, &at, &gap) != 0 or gap == 0 or gap > SEQ_MAX - seq:
                raise ValueError("the sequences to deliver first are no ascending numbers")
            seq += gap
            self.left += 1
        if self.left:
            read_number(self.raw, self.size, &self.at, &self.seq)

    @staticmethod
    def from_state(kept) -> Skips:
        """Return what `state` gave. Raises ValueError, TypeError: it is nothing of the kind."""
        return Skips(b"" if kept == [] else a2b_base64(kept, strict_mode=True))

    def state(self) -> str | list:
        """Return what is left, for JSON."""
        return b2a_base64(self.packed(), newline=False).decode() if self.left else []

    def packed(self) -> bytes:
        """Return what is left."""
        return number_bytes(self.seq) + self.data[self.at :] if self.left else b""

    cdef void advance(self) noexcept nogil:
        """Go to the next one; only while one is left."""
        cdef uint64_t gap = 0
        self.left -= 1
        if self.left:
            read_number(self.raw, self.size, &self.at, &gap)
        self.seq += gap
