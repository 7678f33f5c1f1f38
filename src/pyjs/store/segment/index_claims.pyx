"""Verification of an index file by the records between the messages of its segment (STATE, DELETES, META, FOOTER).

An index file that another program or a fault has written may have a valid checksum and still differ from its
segment. So a recovery verifies everything in it that could remove messages: sequences without a message,
removals, and first_seq. The entries have the offset of each message, so only the records between messages are
read here, a small part of a segment. Places, sizes and subjects of messages are verified when a message is
read, and by the background check.

This module knows nothing of stores. Compiled: a server that starts after a clean stop does this for each entry
(benchmarks/store_start.py).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.store.index.sequences cimport ENTRY_EXTENDED, ENTRY_MSG, Entry
from pyjs.store.format.record cimport (
    FLAG_ERASED, KIND_DELETES, KIND_META, KIND_MSG, KIND_STATE, RECORD_HEADER_SIZE, RECORD_SIZE_MIN,
    SEGMENT_HEADER_SIZE, RecordHeader, plausible,
)
from pyjs.store.segment.contents cimport ERASED_BIT, SegmentContents

cdef enum:
    READ_SIZE = 4096            # bytes read at once; raised after several reads that were too short
    READS_MAX = 32
    READ_MORE = 262144
    STATE_SIZE_MIN = 56         # bytes of a STATE record without a mark


def confirmed(SegmentContents c not None, image) -> bool:
    """Return whether the records between the messages of a segment agree with its index file.

    `c` has the contents of the index file, `image` is the segment's image.

    Raises:
        OSError: the segment cannot be read.
    """
    cdef Between between = Between(c, image)
    cdef uint64_t at = SEGMENT_HEADER_SIZE
    cdef int64_t first_ts = 0
    cdef uint32_t i
    cdef bint begun = False
    cdef Entry* e
    for i in range(c.n):
        e = &c.entries[i]
        if not e.flags & ENTRY_MSG:
            continue
        if e.offset != at and (e.offset < at or not between.take(at, e.offset)):
            return False
        at = <uint64_t> e.offset + RECORD_SIZE_MIN + (16 if e.flags & ENTRY_EXTENDED else 0) + e.subject_len + e.size
        if not begun:
            begun, first_ts = True, e.ts
        between.next_seq, between.last_ts = e.seq + 1, e.ts
    if at > c.end or not between.take(at, c.end):
        return False
    return (between.next_seq == c.base_seq + c.n and between.n_removals == c.n_removals
            and between.floor == c.floor and between.last_ts == c.last_ts and first_ts == c.first_ts)


cdef class Between:
    """A reader of the records of one segment that are not messages."""
    cdef SegmentContents c
    cdef object image
    cdef bytes data             # a piece of the image
    cdef uint64_t data_at       # offset of its first byte in the image
    cdef int reads
    cdef uint64_t next_seq      # the last sequence in a record, plus one
    cdef uint64_t floor
    cdef int64_t last_ts
    cdef uint32_t n_removals

    def __cinit__(self, SegmentContents c, image):
        self.c, self.image = c, image
        self.data = b""
        self.next_seq = c.base_seq

    cdef bint take(self, uint64_t at, uint64_t end) except *:
        """Read the records from `at` to `end`; return whether all of them agree with the index file."""
        cdef RecordHeader h
        cdef const char* p
        while at < end:
            if end - at < RECORD_SIZE_MIN:
                return False
            p = self.bytes_at(at, RECORD_SIZE_MIN)
            if p == NULL:
                return False
            memcpy(&h, p, RECORD_HEADER_SIZE)
            if h.length > end - at or h.kind <= KIND_MSG or h.kind > KIND_META or h.length < RECORD_SIZE_MIN:
                return False
            if h.kind == KIND_STATE or h.kind == KIND_DELETES:
                p = self.bytes_at(at, h.length)
                if p == NULL or not plausible(p, h.length):
                    return False
                if not (self.take_state(p, &h) if h.kind == KIND_STATE else self.take_removals(p, &h)):
                    return False
            self.next_seq = max(self.next_seq, h.seq + 1)
            at += h.length
        return True

    cdef bint take_state(self, const char* p, RecordHeader* h) noexcept:
        cdef uint64_t[2] state
        if h.length < RECORD_SIZE_MIN + 16:
            return True
        memcpy(state, p + RECORD_HEADER_SIZE, 16)
        self.floor = max(self.floor, state[0])
        self.last_ts = max(self.last_ts, <int64_t> state[1])
        return state[0] <= h.seq + 1

    cdef bint take_removals(self, const char* p, RecordHeader* h) noexcept:
        cdef uint32_t i, n = <uint32_t> (h.length - RECORD_SIZE_MIN) // 8
        cdef uint64_t seq = 0
        if n > self.c.n_removals - self.n_removals:
            return False
        for i in range(n):
            memcpy(&seq, p + RECORD_HEADER_SIZE + i * 8, 8)
            if self.c.removals[self.n_removals + i] != (seq | ERASED_BIT if h.flags & FLAG_ERASED else seq):
                return False
        self.n_removals += n
        return True

    cdef const char* bytes_at(self, uint64_t at, size_t size) except? NULL:
        """Return `size` bytes of the image from offset `at`, or NULL if the image is shorter."""
        cdef size_t wanted
        if at < self.data_at or at + size > self.data_at + <uint64_t> len(self.data):
            self.reads += 1
            wanted = max(size, <size_t> (READ_SIZE if self.reads < READS_MAX else READ_MORE))
            self.data, self.data_at = bytes(self.image.read(at, min(wanted, self.image.size - at))), at
            if <size_t> len(self.data) < size:
                return NULL
        return <const char*> self.data + (at - self.data_at)


def begins_alike(SegmentContents known not None, SegmentContents c not None) -> bool:
    """Return whether the index file `known` has the messages of `c`, the existing part of its segment.

    If so, the index file shows which messages were in the missing end. Damaged parts of the segment are not
    compared.
    """
    return alike(known, c, c.n)


cdef bint alike(SegmentContents known, SegmentContents c, uint32_t n) noexcept:
    """Return whether the index file `known` has the messages among the first `n` entries of its segment `c`."""
    cdef uint32_t i
    cdef Entry* e
    cdef Entry* found
    for i in range(n):
        found = &c.entries[i]
        if not found.flags & ENTRY_MSG:
            continue
        e = &known.entries[i]
        if i >= known.n or not e.flags & ENTRY_MSG or e.ts != found.ts or e.offset != found.offset \
                or e.size != found.size or e.header_len != found.header_len or e.subject_len != found.subject_len:
            return False
    return True


def lost_removals(SegmentContents known not None, SegmentContents c not None) -> list | None:
    """Return the removals (with ERASED_BIT) that the index file `known` has and its damaged segment `c` lacks.

    The list is empty if the index file has only a higher first_seq. Return None if the index file has nothing more
    than the segment. Return None too if the index file belongs to another segment: it has other messages, or more
    removals than the damaged bytes can have recorded. The segment may have grown since the index file was written.
    """
    cdef uint64_t size
    if c.lost_bytes == 0 or c.base_seq != known.base_seq or not alike(known, c, min(c.n, known.n)):
        return None
    lost = c.lacks(known.removals, known.n_removals)
    size = RECORD_SIZE_MIN + 8 * <uint64_t> len(lost) if lost else 0
    if known.floor > c.floor:
        size += STATE_SIZE_MIN
    return lost if 0 < size <= c.lost_bytes else None
