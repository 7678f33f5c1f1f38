"""Message blocks of nats-server's store: the records in `msgs/<number>.blk`.

    block  = { record }, numbers little-endian
    record = size u32, of the whole record; its highest bit: the record has headers | sequence u64 | time i64, ns
             | subject size u16 | subject | [ header size u32 | headers ] | payload | check u64
    check  = HighwayHash of sequence, time, subject, headers and payload, with the SHA-256 of "<stream>-<number>" as
             key

The highest bit of a sequence marks an erased message, of which only the sequence is used. The second highest bit
marks a tombstone: the message with this sequence was removed, or the sequence was the stream's last one when the
block began.

The check does not cover size fields, so each is compared with the record's size. A reader holds at most one
unfinished record of up to RECORD_MAX bytes.

Compiled, because a restore reads every record (measured by benchmarks/archives.py).
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
    RECORD_MAX = 33554432       # bytes; nats-server treats a larger record as damage
    MESSAGE_KIND = 0
    ERASED_KIND = 1
    TOMBSTONE_KIND = 2
cdef uint32_t HAS_HEADERS = 0x80000000u
cdef uint64_t ERASED_BIT = 1ULL << 63
cdef uint64_t TOMBSTONE_BIT = 1ULL << 62

MESSAGE, ERASED, TOMBSTONE = MESSAGE_KIND, ERASED_KIND, TOMBSTONE_KIND


class BadBlock(BadArchive):
    """Raised for a damaged message block; `offset` is the offset in bytes of the first unreadable record."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


cdef struct Head:
    size_t size                 # of the whole record
    size_t subject_size
    size_t begin                # offset of the headers, or of the payload
    size_t header_size          # set if the whole record is available


cdef bint read_head(Head* h, const uint8_t* p, size_t left) noexcept:
    """Fill `h` from the `left` bytes at `p`; return False if they are too few, or not the start of a record."""
    cdef uint32_t size = 0, header_size = 0
    cdef uint16_t subject_size = 0
    if left < HEAD_SIZE:
        return False
    memcpy(&size, p, 4)
    memcpy(&subject_size, p + 20, 2)
    h.size, h.subject_size, h.header_size = size & ~HAS_HEADERS, subject_size, 0
    h.begin = HEAD_SIZE + h.subject_size + (4 if size & HAS_HEADERS else 0)
    if h.size > RECORD_MAX or h.begin + CHECK_SIZE > h.size:
        return False
    if size & HAS_HEADERS and left >= h.size:
        memcpy(&header_size, p + h.begin - 4, 4)
        h.header_size = header_size
    return True


cdef class BlockRecord:
    """One record of a block."""
    cdef readonly int kind              # MESSAGE, ERASED or TOMBSTONE
    cdef readonly uint64_t seq
    cdef readonly int64_t ts            # ns since the epoch
    cdef readonly bytes name            # the subject
    cdef readonly bytes headers
    cdef readonly bytes payload


cdef class BlockReader:
    """A reader of the records of one block whose bytes arrive in pieces of any size."""
    cdef bytes _key
    cdef bytearray _held
    cdef size_t _at             # offset of the next record in `_held`
    cdef readonly uint64_t offset       # offset of the next record in the block
    cdef uint64_t _unfit        # 1 + the offset of the last record whose check is wrong; 0: none
    cdef readonly bytes check   # of the last record; eight zero bytes if no record was read yet
    cdef readonly list passed_by        # offsets of the damaged records that the last call of `next` skipped

    def __init__(self, str stream not None, uint32_t number) -> None:
        self._key = hashlib.sha256(f"{stream}-{number}".encode()).digest()
        self._held = bytearray()
        self.check = bytes(CHECK_SIZE)
        self.passed_by = []

    @property
    def left(self) -> int:
        """The number of added bytes that have not been read yet."""
        return len(self._held) - self._at

    def add(self, data) -> None:
        """Add bytes of the block; `next` returns their records."""
        del self._held[:self._at]
        self._at = 0
        self._held += data

    def next(self, size_t limit) -> list:
        """Return up to `limit` records, or [] if more bytes are needed.

        A record whose check is wrong is skipped if the check of the record after it is right.

        Raises:
            BadBlock: a record is damaged and cannot be skipped.
        """
        cdef list found = []
        cdef BlockRecord record
        self.passed_by = []
        while <size_t> len(found) < limit:
            record = self.read_one()
            if record is None:
                if not found and self.pass_by():
                    continue
                break
            found.append(record)
        return found

    cdef bint pass_by(self) except -1:
        """Skip the next record, whose check is wrong, if the check of the record after it is right.

        Return False if more bytes are needed, or no record begins here. Raises BadBlock if the record after it is not
        valid either.
        """
        cdef const uint8_t* p = <const uint8_t*> PyByteArray_AS_STRING(self._held) + self._at
        cdef size_t left = len(self._held) - self._at
        cdef Head first, second
        if not read_head(&first, p, left) or left < first.size + HEAD_SIZE:
            return False
        p, left = p + first.size, left - first.size
        # If the head is impossible, do not wait for more bytes: the bytes so far would stay in memory forever.
        if read_head(&second, p, left):
            if left < second.size:
                return False
            if second.begin + second.header_size + CHECK_SIZE > second.size or not self.fits(p, &second):
                second.size = 0
        else:
            second.size = 0
        if second.size == 0:
            raise BadBlock(f"the record at {self.offset} does not fit its checksum", self.offset)
        self.passed_by.append(self.offset)
        self._at += first.size
        self.offset += first.size
        return True

    cdef BlockRecord read_one(self):
        """Return the next record, or None if more bytes are needed or the check of the record is wrong.

        Raises:
            BadBlock: the sizes in the record are impossible.
        """
        cdef const uint8_t* p = <const uint8_t*> PyByteArray_AS_STRING(self._held) + self._at
        cdef size_t left = len(self._held) - self._at, body
        cdef Head h
        cdef BlockRecord record
        if left < HEAD_SIZE:
            return None
        if not read_head(&h, p, left):
            raise BadBlock(f"the record at {self.offset} claims {h.size} bytes", self.offset)
        if left < h.size:
            return None
        if h.begin + h.header_size + CHECK_SIZE > h.size:
            raise BadBlock(f"the record at {self.offset} claims {h.header_size} bytes of headers", self.offset)
        if self._unfit == self.offset + 1:
            return None                     # an earlier call found that the check is wrong
        if not self.fits(p, &h):
            self._unfit = self.offset + 1
            return None
        record = BlockRecord.__new__(BlockRecord)
        self.fill(record, p)
        body = h.begin + h.header_size
        record.name = p[HEAD_SIZE:HEAD_SIZE + h.subject_size]
        record.headers = p[h.begin:body]
        record.payload = p[body:h.size - CHECK_SIZE]
        self.check = p[h.size - CHECK_SIZE:h.size]
        self._at += h.size
        self.offset += h.size
        return record

    cdef void fill(self, BlockRecord record, const uint8_t* p) noexcept:
        """Set the sequence, time and kind of `record` from the head at `p`."""
        cdef uint64_t seq = 0
        memcpy(&seq, p + 4, 8)
        memcpy(&record.ts, p + 12, 8)
        record.kind = MESSAGE_KIND
        if seq & TOMBSTONE_BIT:
            record.kind = TOMBSTONE_KIND
        elif seq & ERASED_BIT or seq == 0:
            record.kind = ERASED_KIND
        record.seq = seq & ~(ERASED_BIT | TOMBSTONE_BIT)

    cdef bint fits(self, const uint8_t* p, Head* head) noexcept:
        """Return whether the check of the record at `p` is right."""
        cdef Highway h
        cdef uint64_t value
        highway_begin(&h, self._key)
        highway_add(&h, p + 4, 16)
        highway_add(&h, p + HEAD_SIZE, head.subject_size)
        highway_add(&h, p + head.begin, head.size - CHECK_SIZE - head.begin)
        value = highway_end(&h)
        return memcmp(&value, p + head.size - CHECK_SIZE, CHECK_SIZE) == 0
