"""Message blocks of nats-server's store: the records in `msgs/<number>.blk`.

    block  = { record }, numbers little-endian
    record = size u32, of the whole record; its highest bit: the record has headers | sequence u64 | time i64, ns
             | subject size u16 | subject | [ header size u32 | headers ] | payload | check u64
    check  = HighwayHash of sequence, time, subject, headers and payload, with the SHA-256 of "<stream>-<number>" as
             key

The highest bit of a sequence marks an erased message: only its sequence is used. The bit below it marks a tombstone:
the message with this sequence was removed, or this was the last sequence when the block began.

The numbers of sizes are not in the check, so each is compared with the record's size. A reader holds one unfinished
record: at most RECORD_MAX bytes.

Compiled: a restore reads every record (benchmarks/archives.py).
Source: nats-server's source, server/filestore.go of 2.2 to 2.15; tests/unit/jetstream/transfer/test_old_reading.py.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.archive.highway cimport Highway, highway_add, highway_begin, highway_end

import hashlib

from pyjs.archive.frames import BadArchive

cdef enum:
    HEAD_SIZE = 22              # bytes before the subject
    CHECK_SIZE = 8
    RECORD_MAX = 33554432       # bytes; nats-server takes a larger record for damage
    MESSAGE_KIND = 0
    ERASED_KIND = 1
    TOMBSTONE_KIND = 2
cdef uint32_t HAS_HEADERS = 0x80000000u
cdef uint64_t ERASED_BIT = 1ULL << 63
cdef uint64_t TOMBSTONE_BIT = 1ULL << 62

MESSAGE, ERASED, TOMBSTONE = MESSAGE_KIND, ERASED_KIND, TOMBSTONE_KIND


class BadBlock(BadArchive):
    """A message block is damaged; `offset` is the place of the first unreadable record."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


cdef class BlockRecord:
    """One record of a block."""
    cdef readonly int kind              # MESSAGE, ERASED or TOMBSTONE
    cdef readonly uint64_t seq
    cdef readonly int64_t ts            # ns since the epoch
    cdef readonly bytes name            # the subject
    cdef readonly bytes headers
    cdef readonly bytes payload


cdef class BlockReader:
    """Reads the records of one block from bytes that come in any pieces."""
    cdef bytes _key
    cdef bytearray _held
    cdef size_t _at             # place in `_held` of the next record
    cdef readonly uint64_t offset       # place of the next record in the block
    cdef readonly bytes check   # of the last record; eight zero bytes before the first one

    def __init__(self, str stream not None, uint32_t number) -> None:
        self._key = hashlib.sha256(f"{stream}-{number}".encode()).digest()
        self._held = bytearray()
        self.check = bytes(CHECK_SIZE)

    @property
    def left(self) -> int:
        """The bytes that are not read yet."""
        return len(self._held) - self._at

    def add(self, data) -> None:
        """Take more bytes of the block; `next` returns their records."""
        del self._held[:self._at]
        self._at = 0
        self._held += data

    def next(self, size_t limit) -> list:
        """Return up to `limit` records; [] if more bytes are needed.

        Raises:
            BadBlock: a record is damaged.
        """
        cdef list found = []
        cdef BlockRecord record
        while <size_t> len(found) < limit:
            record = self.read_one()
            if record is None:
                break
            found.append(record)
        return found

    cdef BlockRecord read_one(self):
        cdef const uint8_t* p = <const uint8_t*> PyByteArray_AS_STRING(self._held) + self._at
        cdef size_t left = len(self._held) - self._at, header_size = 0, begin
        cdef uint32_t size = 0
        cdef uint16_t subject_size = 0
        cdef bint has_headers
        cdef BlockRecord record
        if left < HEAD_SIZE:
            return None
        memcpy(&size, p, 4)
        memcpy(&subject_size, p + 20, 2)
        has_headers = size & HAS_HEADERS != 0
        size &= ~HAS_HEADERS
        begin = HEAD_SIZE + subject_size + (4 if has_headers else 0)
        if size > RECORD_MAX or begin + CHECK_SIZE > size:
            raise BadBlock(f"the record at {self.offset} claims {size} bytes", self.offset)
        if left < size:
            return None
        if has_headers:
            memcpy(&header_size, p + begin - 4, 4)
            if header_size > size - CHECK_SIZE - begin:
                raise BadBlock(f"the record at {self.offset} claims {header_size} bytes of headers", self.offset)
        if not self.fits(p, size, subject_size, begin):
            raise BadBlock(f"the record at {self.offset} does not fit its checksum", self.offset)
        record = BlockRecord.__new__(BlockRecord)
        self.fill(record, p)
        record.name = p[HEAD_SIZE:HEAD_SIZE + subject_size]
        record.headers = p[begin:begin + header_size]
        record.payload = p[begin + header_size:size - CHECK_SIZE]
        self.check = p[size - CHECK_SIZE:size]
        self._at += size
        self.offset += size
        return record

    cdef void fill(self, BlockRecord record, const uint8_t* p) noexcept:
        """Set sequence, time and kind from the head of a record."""
        cdef uint64_t seq = 0
        memcpy(&seq, p + 4, 8)
        memcpy(&record.ts, p + 12, 8)
        record.kind = MESSAGE_KIND
        if seq & TOMBSTONE_BIT:
            record.kind = TOMBSTONE_KIND
        elif seq & ERASED_BIT or seq == 0:
            record.kind = ERASED_KIND
        record.seq = seq & ~(ERASED_BIT | TOMBSTONE_BIT)

    cdef bint fits(self, const uint8_t* p, size_t size, size_t subject_size, size_t begin) noexcept:
        """Return whether a record has the right check."""
        cdef Highway h
        cdef uint64_t value
        highway_begin(&h, self._key)
        highway_add(&h, p + 4, 16)
        highway_add(&h, p + HEAD_SIZE, subject_size)
        highway_add(&h, p + begin, size - CHECK_SIZE - begin)
        value = highway_end(&h)
        return memcmp(&value, p + size - CHECK_SIZE, CHECK_SIZE) == 0
