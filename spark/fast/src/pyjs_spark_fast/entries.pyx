"""Decodes records of a stream and their entries to columns; compiled. entries.py is the same in plain Python.

There are two passes over the entries of a piece. The first pass counts the entries that fit in the batch, are in
order, lie within the data and, if requested, pass their checks. The second pass makes room for all these entries in
the columns, and copies them. Compiled, the cost is little more than that of copying the bytes
(benchmarks/spark_bulk.py).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs_spark_fast.wire cimport NO_HEADERS, Block, Columns, View

cdef extern from "xxh64.h" nogil:
    uint64_t xxh64_of "pyjs_xxh64"(const void* data, size_t n, uint64_t seed)

cdef enum State:
    TAKEN = 0
    FULL = 2
    WRONG = 5
    DAMAGED = 7

cdef enum:  # kinds of checks by a decoder
    CHAINED = 1
    ALONE = 2

cdef enum:
    MESSAGE = 1
    EXTENDED = 2
    ERASED = 4
    KIND_MESSAGE = 1
    HEAD_SIZE = 32
    CHECK_AT = 28
    CHECKSUM_SIZE = 8
    RECORD_SIZE_MIN = 40
    NO_SUBJECT = 0xffffffff

cdef struct Entry:
    uint64_t seq
    int64_t ts
    uint32_t offset
    uint32_t size
    uint32_t header_len
    uint16_t subject_len
    uint16_t flags
    uint32_t subject_id
    uint32_t prev

cdef struct Head:
    uint32_t length
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint64_t seq
    int64_t ts
    uint32_t header_len
    uint32_t check


def xxh64(data, uint64_t seed):
    """Return XXH64 of `data`."""
    cdef View view = View(data)
    return xxh64_of(<const uint8_t*>view.data(), view.buffer.len, seed)


def walk(data, Py_ssize_t at, uint64_t chain, uint64_t next_seq, uint64_t gaps_max):
    """Read messages from offset `at` on, up to the first record that is not an ordinary message.

    Return the offset of this record, the checksum of the message before it, and the entries of the messages.
    `next_seq` is the lowest permitted sequence; at most `gaps_max` sequences may be skipped in total.
    """
    cdef View view = View(data)
    cdef const char* p = view.data()
    cdef Block out = Block(4096)
    cdef Head head
    cdef Entry entry
    cdef uint64_t stored = 0
    cdef Py_ssize_t size = view.buffer.len, fixed
    with nogil:
        while size - at >= RECORD_SIZE_MIN:
            memcpy(&head, p + at, HEAD_SIZE)
            fixed = RECORD_SIZE_MIN + (16 if head.flags & EXTENDED_FLAG else 0)
            if head.kind != KIND_MESSAGE or head.flags > EXTENDED_FLAG or head.length > size - at:
                break
            if fixed + head.subject_len + <Py_ssize_t>head.header_len > head.length:
                break
            if head.seq < next_seq or head.seq - next_seq > gaps_max or not is_whole(p + at, head.length, chain):
                break
            if not is_sendable(p + at + fixed - CHECKSUM_SIZE, head.subject_len):
                break
            gaps_max -= head.seq - next_seq
            next_seq = head.seq + 1
            entry.seq, entry.ts, entry.offset = head.seq, head.ts, <uint32_t>at
            entry.size = head.length - <uint32_t>fixed - head.subject_len
            entry.header_len, entry.subject_len = head.header_len, head.subject_len
            entry.flags = MESSAGE | (EXTENDED if head.flags else 0)
            entry.subject_id, entry.prev = <uint32_t>NO_SUBJECT, 0
            out.add(<char*>&entry, sizeof(Entry))
            at += head.length
            memcpy(&stored, p + at - CHECKSUM_SIZE, CHECKSUM_SIZE)
            chain = stored
    return at, chain, bytes(out)


cdef enum:
    EXTENDED_FLAG = 1  # flag of a record: it has a term and an index
    UNFINISHED_FLAG = 4  # the next record belongs to the same atomic batch


cdef bint is_whole(const char* p, Py_ssize_t length, uint64_t before) noexcept nogil:
    """Whether the record at `p` is undamaged, and follows a record with the checksum `before`."""
    cdef uint64_t own, stored = 0
    cdef uint32_t check = 0, half
    memcpy(&check, p + CHECK_AT, 4)
    memcpy(&stored, p + length - CHECKSUM_SIZE, CHECKSUM_SIZE)
    own = xxh64_of(p + HEAD_SIZE, length - RECORD_SIZE_MIN, xxh64_of(p, CHECK_AT, 0))
    half = <uint32_t>own
    return check == (half if half else 1) and xxh64_of(&own, 8, before) == stored


cdef bint is_sendable(const char* subject, Py_ssize_t size) noexcept nogil:
    """Whether a subject fits in a line of the protocol; any other subject means that the record is damaged."""
    cdef Py_ssize_t at
    for at in range(size):
        if subject[at] == c' ' or subject[at] == c'\t' or subject[at] == c'\r' or subject[at] == c'\n':
            return False
    return size > 0


cdef bint fits_check(const char* p, Py_ssize_t length) noexcept nogil:
    """Whether the record at `p` matches its `check` field."""
    cdef uint32_t check = 0, half
    memcpy(&check, p + CHECK_AT, 4)
    half = <uint32_t>xxh64_of(p + HEAD_SIZE, length - RECORD_SIZE_MIN, xxh64_of(p, CHECK_AT, 0))
    return check == (half if half else 1)


cdef bint is_of(const char* p, Entry* entry, Py_ssize_t length, int check) noexcept nogil:
    """Whether the record at `p` belongs to the entry and, if `check`, is undamaged."""
    cdef Head head
    cdef uint64_t before = 0
    memcpy(&head, p, HEAD_SIZE)
    if head.length != length or head.kind != KIND_MESSAGE or head.seq != entry.seq or head.ts != entry.ts:
        return False
    if head.flags & ~UNFINISHED_FLAG != (EXTENDED_FLAG if entry.flags & EXTENDED else 0):
        return False
    if head.subject_len != entry.subject_len or head.header_len != entry.header_len:
        return False
    if check == ALONE:
        return fits_check(p, length)
    memcpy(&before, p - CHECKSUM_SIZE, CHECKSUM_SIZE)
    return is_whole(p, length, before)


cdef class Decoder(Columns):
    """Decodes one piece after another into the rows of several batches."""
    cdef readonly int state
    cdef readonly int64_t last_seq
    cdef int64_t _high

    def listen(self, int64_t low, int64_t high):
        """Accept only sequences in [low, high)."""
        self.last_seq = low - 1
        self._high = high

    def add(self, entries, Py_ssize_t start, data, int64_t base, int check):
        """Add rows for the entries from index `start` on, and set `state`.

        Return the index of the first entry without a row.
        """
        cdef View table = View(entries)
        cdef View view = View(data if data is not None else b"")
        cdef const char* first = NULL
        cdef const char* records = NULL
        cdef Py_ssize_t count = table.buffer.len // sizeof(Entry) - start
        cdef Py_ssize_t size = view.buffer.len
        assert start >= 0 and table.buffer.len % sizeof(Entry) == 0
        if count <= 0:
            self.state = TAKEN
            return start
        first = table.data() + start * sizeof(Entry)
        if data is not None and size:
            records = view.data()
        with nogil:
            count = self._fitting(first, count, records, size, base, check, data is not None)
            self._copy(first, count, records, base)
        return start + count

    cdef Py_ssize_t _fitting(self, const char* first, Py_ssize_t count, const char* records, Py_ssize_t size,
                             int64_t base, int check, bint has_data) noexcept nogil:
        """Return how many of `count` entries become rows; set `state` to the reason why no more entries do."""
        cdef Entry entry
        cdef Py_ssize_t at, total = self.size, length
        cdef int64_t last_seq = self.last_seq, place, behind = base + (CHECKSUM_SIZE if check == CHAINED else 0)
        for at in range(count):
            memcpy(&entry, first + at * sizeof(Entry), sizeof(Entry))
            if <int64_t>entry.seq <= last_seq or <int64_t>entry.seq >= self._high \
                    or entry.flags & (MESSAGE | ERASED) != MESSAGE:
                self.state = WRONG
                return at
            total += <Py_ssize_t>entry.size + entry.subject_len
            if self.rows + at >= self._rows_max or (total > self._size_max and self.rows + at):
                self.state = FULL
                return at
            last_seq = <int64_t>entry.seq
            if not has_data:
                continue
            length = RECORD_SIZE_MIN + (16 if entry.flags & EXTENDED else 0) + entry.subject_len \
                + <Py_ssize_t>entry.size
            place = <int64_t>entry.offset
            if place < behind or place + length - base > size or entry.header_len > entry.size \
                    or (check and not is_of(records + place - base, &entry, length, check)):
                self.state = DAMAGED
                return at
            behind = place + length
        self.state = TAKEN
        return count

    cdef int _copy(self, const char* first, Py_ssize_t count, const char* records, int64_t base) except -1 nogil:
        """Add the rows of `count` entries."""
        cdef Entry entry
        cdef Py_ssize_t at, subjects = 0, payloads = 0, total = 0
        for at in range(count):
            memcpy(&entry, first + at * sizeof(Entry), sizeof(Entry))
            subjects += entry.subject_len
            payloads += <Py_ssize_t>entry.size - entry.header_len
            total += <Py_ssize_t>entry.size + entry.subject_len
        self._make_room(count, subjects if records != NULL else 0, payloads if records != NULL else 0)
        for at in range(count):
            memcpy(&entry, first + at * sizeof(Entry), sizeof(Entry))
            if self._wants_seq:
                (<uint64_t*>(self._seqs.data + self._seqs.size))[at] = entry.seq
            if self._wants_ts:
                (<int64_t*>(self._times.data + self._times.size))[at] = entry.ts
            if self._wants_size:
                (<uint32_t*>(self._sizes.data + self._sizes.size))[at] = entry.size - entry.header_len
            if records != NULL:
                self._cells(&entry, records + <int64_t>entry.offset - base)
            self.rows += 1
        if count:
            self.last_seq = <int64_t>entry.seq
        self._seqs.size += 8 * count if self._wants_seq else 0
        self._times.size += 8 * count if self._wants_ts else 0
        self._sizes.size += 4 * count if self._wants_size else 0
        self.size += total
        return 0

    cdef int _make_room(self, Py_ssize_t count, Py_ssize_t subjects, Py_ssize_t payloads) except -1 nogil:
        self._seqs.need(8 * count if self._wants_seq else 0)
        self._times.need(8 * count if self._wants_ts else 0)
        self._sizes.need(4 * count if self._wants_size else 0)
        if self._wants_subject:
            self._subjects.need(subjects)
            self._subject_at.need(4 * count)
        if self._wants_data:
            self._data.need(payloads)
            self._data_at.need(4 * count)
        return 0

    cdef inline int _cells(self, Entry* entry, const char* record) except -1 nogil:
        """Add the cells of a record; there must be room for them."""
        cdef const char* subject = record + HEAD_SIZE + (16 if entry.flags & EXTENDED else 0)
        cdef const char* body = subject + entry.subject_len
        if self._wants_subject:
            put(self._subjects, self._subject_at, subject, entry.subject_len)
        if self._kind != NO_HEADERS:
            self._headers(body, entry.header_len)
        if self._wants_data:
            put(self._data, self._data_at, body + entry.header_len, <Py_ssize_t>entry.size - entry.header_len)
        return 0


cdef inline void put(Block values, Block ends, const char* data, Py_ssize_t size) noexcept nogil:
    """Append a value; its block must have room for it."""
    memcpy(values.data + values.size, data, size)
    values.size += size
    (<int32_t*>(ends.data + ends.size))[0] = <int32_t>values.size
    ends.size += 4
