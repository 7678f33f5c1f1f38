"""Varints, seven bits per byte, lowest bits first, as in nats-server's indexes and consumer states.

Signed numbers alternate around zero (0, -1, 1, -2, ...). No read passes the end of the bytes.

Compiled, because the index of a stream has five numbers for each of its subjects (measured by
benchmarks/archives.py).
Source: encoding/binary of Go, Uvarint and Varint.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from pyjs.archive.frames import BadArchive


cdef class VarintReader:
    """A reader of the numbers in `data`, from offset `at` on."""
    cdef bytes _data
    cdef readonly size_t at             # offset of the next number; never beyond the end

    def __init__(self, bytes data not None, size_t at=0) -> None:
        self._data = data
        self.at = min(at, <size_t> len(data))

    @property
    def left(self) -> int:
        """The number of bytes from `at` to the end."""
        return len(self._data) - self.at

    def unsigned(self) -> int:
        """Return the next number. Raises BadArchive if it is incomplete, or has more than 64 bits."""
        return self.read()

    def signed(self) -> int:
        """Return the next number, which is signed. Raises BadArchive, as `unsigned` does."""
        cdef uint64_t value = self.read()
        return <int64_t> (value >> 1) ^ -<int64_t> (value & 1)

    def take(self, size_t size) -> bytes:
        """Return the next `size` bytes. Raises BadArchive if there are fewer."""
        cdef size_t begin = self.at
        self.pass_by(size)
        return self._data[begin:begin + size]

    def skip_subjects(self, size_t limit, bint with_last) -> None:
        """Skip `limit` subjects, each with its total, first block and last block.

        Without `with_last`, a subject has a last block only if its total is above 1. Raises BadArchive, as
        `take` does.
        """
        cdef uint64_t total
        while limit:
            limit -= 1
            total = self.read()         # the size of the subject; if it is 0, no subject follows
            if total == 0:
                continue
            self.pass_by(total)
            total = self.read()
            self.read()
            if with_last or total > 1:
                self.read()

    cdef uint64_t read(self) except? 0:
        cdef const uint8_t* p = <const uint8_t*> <const char*> self._data
        cdef size_t end = len(self._data)
        cdef uint64_t value = 0
        cdef int shift = 0
        while self.at < end and shift < 64:
            if shift == 63 and p[self.at] > 1:
                break
            value |= <uint64_t> (p[self.at] & 0x7F) << shift
            self.at += 1
            if p[self.at - 1] < 0x80:
                return value
            shift += 7
        raise BadArchive(f"the number before byte {self.at} is not valid")

    cdef int pass_by(self, uint64_t size) except -1:
        if size > len(self._data) - self.at:
            raise BadArchive(f"{size} bytes claimed at byte {self.at} of {len(self._data)}")
        self.at += size
        return 0
