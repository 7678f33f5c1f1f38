"""The reader of the entries in an archive of version 2, from pieces of any size; entries.py describes the layout.

The reader checks every size against its limit before it waits for that many bytes.

Compiled, because a restore reads every message here (measured by benchmarks/archives.py).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint64_t

from pyjs.archive.entries import MAGIC, ArchiveEntry
from pyjs.archive.frames import BadArchive

cdef enum:
    NUMBERS = 5                 # name size, time, sequence, header size, payload size
    NAME_MAX = 65536


cdef class EntryReader:
    def __init__(self, uint64_t size_max) -> None:
        self._size_max = size_max
        self._held = bytearray()

    @property
    def is_between(self) -> bool:
        """Whether all bytes added so far have been read."""
        return self._at == <size_t> len(self._held)

    def add(self, bytes data not None) -> None:
        """Add bytes of the archive. Raises BadArchive if the archive does not begin with MAGIC."""
        del self._held[:self._at]
        self._at = 0
        self._held += data
        if self._seen_magic or len(self._held) < len(MAGIC):
            return
        if not self._held.startswith(MAGIC):
            raise BadArchive("no magic bytes of version 2")
        self._seen_magic, self._at = True, len(MAGIC)

    def next(self):
        """Return the next entry, or None if more bytes are needed.

        Raises:
            BadArchive: a number of the entry is invalid or too large.
        """
        cdef EntryView e
        if not self.peek(&e):
            return None
        self.pass_by(&e)
        return ArchiveEntry(
            e.name[:e.name_size], e.ts, e.seq, e.body[:e.header_size], e.body[e.header_size:e.size]
        )

    cdef int peek(self, EntryView* e) except -1:
        cdef uint64_t[NUMBERS] numbers
        cdef size_t head = self.read_head(numbers) if self._seen_magic else 0
        cdef size_t left = len(self._held) - self._at
        if head == 0:
            return 0
        if numbers[0] > NAME_MAX:
            raise BadArchive(f"an entry claims a name of {numbers[0]} bytes")
        if numbers[3] > self._size_max or numbers[4] > self._size_max - numbers[3]:
            size = int(numbers[3]) + int(numbers[4])    # the sum may have more than 64 bits
            raise BadArchive(f"an entry claims {size} bytes, {self._size_max} are the most")
        if numbers[2] >> 63:
            raise BadArchive(f"an entry claims the sequence {numbers[2]}")
        e.name_size, e.header_size, e.size = numbers[0], numbers[3], numbers[3] + numbers[4]
        if left - head < e.name_size + e.size:
            return 0
        e.ts = <int64_t> (numbers[1] >> 1) ^ -<int64_t> (numbers[1] & 1)
        e.seq = numbers[2]
        e.name = PyByteArray_AS_STRING(self._held) + self._at + head
        e.body = e.name + e.name_size
        return 1

    cdef void pass_by(self, EntryView* e) noexcept:
        self._at = e.body + e.size - PyByteArray_AS_STRING(self._held)

    cdef size_t read_head(self, uint64_t* numbers) except? 0:
        """Read the numbers of the next entry; return their size in bytes, or 0 if more bytes are needed.

        Raises:
            BadArchive: a number is too long.
        """
        cdef const uint8_t* p = <const uint8_t*> PyByteArray_AS_STRING(self._held) + self._at
        cdef size_t left = len(self._held) - self._at, at = 0, i
        cdef int shift
        for i in range(NUMBERS):
            numbers[i] = 0
            shift = 0
            while True:
                if at == left:
                    return 0
                if shift == 63 and p[at] & 0x7E:
                    raise BadArchive("an entry has a number of more than 64 bits")
                numbers[i] |= <uint64_t> (p[at] & 0x7F) << shift
                at += 1
                if p[at - 1] < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise BadArchive("an entry has a number of more than ten bytes")
        return at
