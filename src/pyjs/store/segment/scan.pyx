"""Scan, which reads the records of one segment file to find the contents and the damage of the file.

If the checksum of a record is wrong, there are three cases:

- Only the stored checksum is damaged: the next record continues from the computed checksum, and nothing is lost.
- A later record is right: the bytes in between are damaged; the scan continues with that record.
- No later record is right: the last write was torn, and never acknowledged. But if the bad record is complete, it
  counts as damage, not as a torn write.

If the last batch has no last message, its write was torn too, and the whole batch is ignored. The same applies
to a batch with a hole: sectors of zeros where a power failure prevented the write of a page, while other pages
were written.

A DELETES or STATE record may be the only evidence of removals. If one byte of a short record of these kinds is
damaged, it is corrected.

The scan uses the record format (store/format/record), but no files and no store. It works on bytes, without the GIL,
in any thread.
Compiled, because a server that starts after a kill reads every record of the open segment (measured by
benchmarks/store_start.py).
"""
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.bad_pages cimport bad_pages
from pyjs.base.table cimport table_free, table_get, table_init, table_put
from pyjs.store.format.mending cimport MEND_SIZE_MAX, mend_record
from pyjs.store.format.record cimport (
    CHECK_SIZE, CHECKSUM_SIZE, FLAG_ERASED, FLAG_EXTENDED, FLAG_UNFINISHED, KIND_DELETES, KIND_FOOTER, KIND_META,
    KIND_MSG, KIND_STATE, RECORD_HEADER_SIZE, RECORD_SIZE_MIN, SEGMENT_HEADER_SIZE, check_segment_header,
    computed_checksum, intact, intact_alone, make_segment_header, plausible, stored_checksum,
)
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_EXTENDED, ENTRY_MSG, Entry
from pyjs.store.segment.contents cimport ERASED_BIT, NO_PLACE, SubjectRow

cdef extern from "string.h" nogil:
    const void* memmem(const void* text, size_t n, const void* part, size_t part_n)

cdef enum:
    GAP_MAX = 2097152           # maximum number of sequences without a message in one segment; more are damage
    EFFORT_PART = 64  # maximum bytes hashed in the search for records after damage, in multiples of the file's size
    EFFORT_EACH = 512           # bytes; when that limit is reached, longer records are not searched
    # maximum number of scans of a file with holes in batches; usually the second scan finds no further hole
    SCANS_MAX = 8
    MARK_SIZE_MIN = 56          # minimum bytes of the body of a STATE record with a mark
    MENDS_MAX = 16              # maximum number of records in a file in which a damaged byte is searched
    PAGE_SIZE = 4096
    SECTOR_SIZE = 512           # a power failure tears writes at sectors, a kill at pages
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no record has a higher sequence


cdef inline bint are_zeros(const char* p, size_t n) noexcept nogil:
    """Return whether all of the `n` bytes at `p` are zero; `n` is at least 1."""
    return p[0] == 0 and memcmp(p, p + 1, n - 1) == 0


cdef inline size_t end_of_bytes(const char* p, size_t at, size_t size) noexcept nogil:
    """Return the offset from which zeros fill the rest of the file."""
    while size > at and p[size - 1] == 0:
        size -= 1
    return size


def scan_segment(bytes data) -> SegmentContents:
    """Return the contents of a segment file whose bytes are `data`. For tests and tools.

    Raises:
        ValueError: `data` does not begin with an intact segment header of this version.
    """
    if check_segment_header(data, len(data)) != 0:
        raise ValueError("no header of a segment that this version reads")
    return SegmentScan().whole(data, len(data))


def last_meta(bytes data) -> bytes:
    """Return the body of the last META record of a segment file, or b""; the file's header may be damaged."""
    cdef SegmentContents c
    cdef SegmentHeader header
    cdef RecordHeader first
    memset(&header, 0, sizeof(header))
    if len(data) < SEGMENT_HEADER_SIZE + RECORD_SIZE_MIN:
        return b""
    memcpy(&first, <const char*> data + SEGMENT_HEADER_SIZE, RECORD_HEADER_SIZE)
    header.base_seq = first.seq         # so that there is no gap before this record
    c = SegmentScan().without_header(&header, data, len(data))
    return data[c.meta_at:c.meta_at + c.meta_size]


cdef int told_header(SegmentHeader* header, const char* p, size_t size, uint32_t number, uint64_t incarnation,
                     uint64_t next_seq) except -2:
    cdef SegmentScan scan = SegmentScan()
    cdef size_t at = SEGMENT_HEADER_SIZE
    cdef RecordHeader first
    cdef uint64_t base
    if size < SEGMENT_HEADER_SIZE + RECORD_SIZE_MIN:
        return -1
    scan.p, scan.size, scan.effort = p, size, size * EFFORT_PART
    memcpy(&first, p + at, RECORD_HEADER_SIZE)
    if not (plausible(p + at, size - at) and first.kind == KIND_MSG and first.flags & FLAG_ERASED
            and scan.goes_on(at, &first)):
        at = scan.resync(at)
        memcpy(&first, p + at, RECORD_HEADER_SIZE)
    base = first.seq + (first.kind != KIND_MSG)
    if at == 0 or base < next_seq:
        return -1
    if at > SEGMENT_HEADER_SIZE and base - next_seq <= size // RECORD_SIZE_MIN:    # otherwise it is a gap, not a loss
        base = next_seq
    make_segment_header(header, base, number, incarnation)
    return 0


cdef bint sendable(const char* subject, size_t n) noexcept nogil:
    """Return whether a protocol line can contain a subject, which must not be empty or have white space.

    wire/parser applies the same rule, so every subject that a client can publish to can be read again.
    """
    cdef size_t i
    for i in range(n):
        if subject[i] == c' ' or subject[i] == c'\t' or subject[i] == c'\r' or subject[i] == c'\n':
            return False
    return n > 0


cdef bint begins_batch(const char* headers, size_t n) noexcept nogil:
    """Return whether `headers` are those of the first message of a batch."""
    cdef const char* end = headers + n
    cdef const char* p = <const char*> memmem(headers, n, b"\nNats-Batch-Sequence:", 21)
    if p == NULL:
        return False
    p += 21
    while p < end and (p[0] == c' ' or p[0] == c'0'):
        p += 1
    return end - p >= 2 and p[0] == c'1' and (p[1] == c'\r' or p[1] == c'\n')


cdef class SegmentScan:
    def __cinit__(self):
        self.c = SegmentContents()
        self.parts = {}

    def __dealloc__(self):
        table_free(&self.by_name)

    cdef SegmentContents whole(self, const char* p, size_t size):
        """Scan a file with an undamaged header; return its contents."""
        cdef SegmentHeader header
        memcpy(&header, p, SEGMENT_HEADER_SIZE)
        return self.behind(&header, p, size)

    cdef SegmentContents without_header(self, SegmentHeader* header, const char* p, size_t size):
        """Scan a file with a damaged header, for which `header` was rebuilt; return its contents."""
        memcpy(&header.checksum, p + SEGMENT_HEADER_SIZE - CHECKSUM_SIZE, CHECKSUM_SIZE)
        self.adrift = True              # the checksum in the header may be the damaged part
        return self.behind(header, p, size)

    cdef SegmentContents behind(self, SegmentHeader* header, const char* p, size_t size):
        """Scan the records after a header; return the contents of the file."""
        cdef SegmentContents c = self.c
        cdef int failed
        c.base_seq, c.incarnation, c.number = header.base_seq, header.incarnation, header.number
        c.chain = header.checksum
        self.p, self.size, self.begun_adrift = p, size, self.adrift
        self.bad_before, self.has_parts = bad_pages(), bool(self.parts)
        table_init(&self.by_name, 8)
        with nogil:
            failed = self.records()
        if failed < 0:
            raise MemoryError
        if failed and self.scans < SCANS_MAX:
            return self.without_parts(header)
        return self.without_batch(header) if self.batch_at and not c.sealed else c

    cdef SegmentContents without_batch(self, SegmentHeader* header):
        """Scan again without the last batch, whose last message is missing; return the contents.

        If the end of the file is damaged, the messages of the batch count as lost.
        """
        cdef SegmentScan scan = SegmentScan()
        cdef size_t end = end_of_bytes(self.p, self.batch_at, self.size)
        scan.shift, scan.unread, scan.adrift = self.shift, self.unread, self.begun_adrift
        scan.parts = self.parts
        scan.c.problems += [each for each in self.c.problems if each[0] < SEGMENT_HEADER_SIZE]
        scan.behind(header, self.p, self.batch_at)
        if self.c.end_damaged:  # the batch may have been acknowledged, so its last sequence must not be used again
            scan.c.end_damaged = True
            scan.c.lost.append((scan.c.base_seq + scan.c.n, self.c.base_seq + self.c.n - 1))
            scan.c.lost_bytes += end - self.batch_at
            if scan.c.add_gap(self.c.base_seq + self.c.n) != 0:
                raise MemoryError
            scan.report(self.batch_at, end - self.batch_at, b"the last batch is damaged")
            return scan.c
        scan.report(self.batch_at, end - self.batch_at, b"the last batch was cut short; it was never acknowledged")
        return scan.c

    cdef SegmentContents without_parts(self, SegmentHeader* header):
        """Scan again, and count the part of a batch that precedes a hole as damage too; return the contents."""
        cdef SegmentScan scan = SegmentScan()
        scan.shift, scan.unread, scan.adrift = self.shift, self.unread, self.begun_adrift
        scan.c.problems += [each for each in self.c.problems if each[0] < SEGMENT_HEADER_SIZE]
        scan.parts, scan.scans = self.parts, self.scans + 1
        return scan.behind(header, self.p, self.size)

    # -- records -----------------------------------------------------------------------------------------------
    cdef int records(self) noexcept nogil:
        """Read all records.

        Return 1 if batches have holes (listed in `parts`), -1 if out of memory, otherwise 0.
        """
        cdef size_t at = SEGMENT_HEADER_SIZE, next_at, used, end = 0
        cdef uint32_t length = 0
        cdef int taken, found = 0
        cdef bint has_hole
        self.effort = self.size * EFFORT_PART
        while at < self.size and not self.c.sealed:
            next_at = self.end_of_part(at)
            has_hole = next_at != 0
            if next_at == 0 and self.accept(at):
                if self.take(at, self.p + at) != 0:
                    return -1
                memcpy(&length, self.p + at, 4)
                at += length
                continue
            if end == 0:
                end = end_of_bytes(self.p, at, self.size)
            used = max(at, end)
            if used == at:
                break
            if next_at == 0:
                next_at = self.resync(at + 1)
            taken = self.put_right(at, next_at - at if next_at else used - at)
            if taken < 0:
                return -1
            if taken:
                at = next_at if next_at else used
                continue
            if next_at == 0:
                self.judge_end(at, used)
                break
            if has_hole or self.is_hole(at, next_at):
                self.hole_at = at
                if self.batch_at:
                    found = 1
                    self.note_part(next_at)
                if not self.torn:       # if it is set, this is a further hole in the same batch
                    self.torn, self.part_end = True, at
            self.report(at, next_at - at, b"damaged bytes between records")
            self.c.lost_bytes += next_at - at
            self.after_damage = max(<size_t> 1, (next_at - at) // (RECORD_SIZE_MIN + 1))
            memcpy(&self.c.chain, self.p + next_at - CHECKSUM_SIZE, CHECKSUM_SIZE)
            self.adrift = True
            at = next_at
        if self.torn:                   # the rest of a batch has no end: the next records replace it
            at = self.part_end
            memcpy(&self.c.chain, self.p + at - CHECKSUM_SIZE, CHECKSUM_SIZE)
        self.c.end = at
        if found:
            return found
        return self.fill_gap(self.torn_seq + 1) if self.torn_seq >= self.c.base_seq + self.c.n else 0

    cdef void note_part(self, size_t end) noexcept nogil:
        """Record that the open batch has a hole up to `end`."""
        with gil:
            self.parts[self.batch_at] = end
        self.batch_at = 0

    cdef size_t end_of_part(self, size_t at) noexcept nogil:
        """Return the end of the damage that begins with the batch at `at`, or 0 if that batch has no hole."""
        if not self.has_parts:
            return 0
        with gil:
            return self.parts.get(at, 0)

    cdef bint is_hole(self, size_t at, size_t end) noexcept nogil:
        """Return whether the bytes from `at` to `end` have a hole, a range of zeros where a write is missing.

        The hole is all of these bytes, a sector of them, or the rest of the page of `at`. The rest of a page is zeros
        if the kernel wrote the page back before the last write to it; the next page may have bytes of that write.
        """
        cdef size_t first = (at + self.shift + SECTOR_SIZE - 1) // SECTOR_SIZE * SECTOR_SIZE - self.shift
        cdef size_t page_end = ((at + self.shift) // PAGE_SIZE + 1) * PAGE_SIZE - self.shift
        if are_zeros(self.p + at, min(page_end, end) - at):
            return True
        while first + SECTOR_SIZE <= end:
            if are_zeros(self.p + first, SECTOR_SIZE):
                return True
            first += SECTOR_SIZE
        return False

    cdef bint is_rest(self, const char* record, RecordHeader* h) noexcept nogil:
        """Return whether the message continues a batch whose start is in the hole before the message."""
        cdef size_t fixed = RECORD_HEADER_SIZE + (16 if h.flags & FLAG_EXTENDED else 0)
        cdef const char* headers = record + fixed + h.subject_len
        if begins_batch(headers, h.header_len):         # then the hole is damage to other messages
            return False
        return h.flags & FLAG_UNFINISHED or memmem(headers, h.header_len, b"\nNats-Batch-Id:", 15) != NULL

    cdef bint accept(self, size_t at) noexcept nogil:
        """Return whether the record at `at` is valid; if so, its checksum continues the chain."""
        cdef const char* p = self.p + at
        cdef size_t left = self.size - at
        cdef RecordHeader h
        cdef uint64_t computed, stored
        cdef bint sound = True
        if not plausible(p, left):
            return False
        memcpy(&h, p, RECORD_HEADER_SIZE)
        computed = computed_checksum(p, h.length, self.c.chain, &sound)
        stored = stored_checksum(p, h.length)
        if computed == stored and not sound:
            self.report(at + RECORD_HEADER_SIZE - CHECK_SIZE, CHECK_SIZE, b"a damaged check; its record is whole")
        if computed == stored or (h.kind == KIND_MSG and h.flags & FLAG_ERASED and self.goes_on(at, &h)) \
                or (self.adrift and sound):
            self.c.chain = stored
            self.adrift = False
            return True
        # The next record continues from the computed checksum, so only the stored one is damaged.
        if plausible(p + h.length, left - h.length) and intact(p + h.length, computed):
            self.report(at + h.length - CHECKSUM_SIZE, CHECKSUM_SIZE, b"a damaged checksum; its record is whole")
            self.c.chain = computed
            return True
        return False

    cdef int put_right(self, size_t at, size_t length) noexcept nogil:
        """Correct and accept a DELETES or STATE record with one damaged byte.

        Return 1 if the record was accepted, 0 if it is of another kind or was not corrected, or -1 if out of
        memory. The correction is proven by 96 bits of checksums.
        """
        cdef char[MEND_SIZE_MAX] record
        cdef RecordHeader h
        if self.adrift or self.mends == MENDS_MAX or not RECORD_SIZE_MIN <= length <= MEND_SIZE_MAX:
            return 0
        self.mends += 1
        memcpy(record, self.p + at, length)
        if mend_record(record, length, self.c.chain) != 0:
            return 0
        memcpy(&h, record, RECORD_HEADER_SIZE)
        if h.kind != KIND_DELETES and h.kind != KIND_STATE:
            return 0
        self.report(at, length, b"a damaged byte in a record of removals; its checksums tell what it was")
        with gil:
            self.c.mended[at] = record[:length]
        self.c.chain = stored_checksum(record, length)
        return 1 if self.take(at, record) == 0 else -1

    cdef bint goes_on(self, size_t at, RecordHeader* h) noexcept nogil:
        """Return whether the bytes after an erased message confirm its length and sequence.

        This is needed if the checksum of the message is wrong.
        """
        cdef size_t behind = at + h.length, end
        cdef RecordHeader after
        if not plausible(self.p + behind, self.size - behind):
            end = end_of_bytes(self.p, at, self.size)
            return behind - CHECKSUM_SIZE < end <= behind
        memcpy(&after, self.p + behind, RECORD_HEADER_SIZE)
        return after.seq >= h.seq + (after.kind == KIND_MSG) and after.seq - h.seq < GAP_MAX

    cdef void judge_end(self, size_t at, size_t used) noexcept nogil:
        """Report the bytes from `at` to `used` as a torn write or as damage; no valid record follows them."""
        cdef RecordHeader h
        cdef size_t end = self.cut_at(used)
        cdef bint whole = plausible(self.p + at, self.size - at)
        if whole:
            memcpy(&h, self.p + at, RECORD_HEADER_SIZE)
            whole = at + h.length - CHECKSUM_SIZE < used and not self.is_cut_in_checksum(at, h.length, end)
        if not whole and used - at < RECORD_SIZE_MIN:
            self.report(at, used - at, b"the last write was cut short; it was never acknowledged")
            return
        if end and not whole and not self.unread and bad_pages() == self.bad_before \
                and used - at >= RECORD_HEADER_SIZE:
            memcpy(&h, self.p + at, RECORD_HEADER_SIZE)
            # A message has the next sequence, any other record the last one.
            if RECORD_SIZE_MIN <= h.length and h.length > end - at \
                    and h.seq + (h.kind != KIND_MSG) == self.c.base_seq + self.c.n:
                self.report(at, used - at, b"the last write was cut short; it was never acknowledged")
                return
        self.report(at, used - at, b"the last record is damaged")
        self.c.lost_bytes += used - at
        self.c.end_damaged = True         # the damaged part may be its sequence

    cdef bint is_cut_in_checksum(self, size_t at, size_t length, size_t end) noexcept nogil:
        """Return whether a write was torn at `end`, inside the checksum of a record that is valid up to there."""
        cdef size_t begin = at + length - CHECKSUM_SIZE
        cdef uint64_t computed
        cdef bint sound = True
        if not begin < end < at + length or not intact_alone(self.p + at):
            return False
        computed = computed_checksum(self.p + at, length, self.c.chain, &sound)
        return memcmp(&computed, self.p + begin, end - begin) == 0

    cdef size_t cut_at(self, size_t used) noexcept nogil:
        """Return the offset at which the last write was torn, or 0 if it was not; only zeros follow from `used` on.

        A power failure tears a write at a sector, a kill at a page. The written bytes may themselves end with
        zeros: these then reach to the end of the page, and the zeros of reserved space follow.
        """
        cdef size_t page = (used + self.shift + PAGE_SIZE - 1) // PAGE_SIZE * PAGE_SIZE - self.shift
        if (used + self.shift) % SECTOR_SIZE == 0:
            return used
        return page if page < self.size else 0

    cdef void report(self, size_t at, size_t size, const char* what) noexcept nogil:
        with gil:
            self.c.problems.append((at, size, what.decode()))

    cdef size_t resync(self, size_t at) noexcept nogil:
        """Return the offset of the next record with a valid checksum or check, or 0 if there is none.

        The work is limited: a client may have sent bytes that look like the starts of long records everywhere.
        """
        cdef uint64_t before = 0
        cdef uint32_t length = 0
        while at + RECORD_SIZE_MIN <= self.size:
            if plausible(self.p + at, self.size - at):
                memcpy(&before, self.p + at - CHECKSUM_SIZE, CHECKSUM_SIZE)
                memcpy(&length, self.p + at, 4)
                if length > self.effort and length > EFFORT_EACH:
                    at += 1
                    continue
                self.effort -= min(length, self.effort)
                if intact(self.p + at, before) or intact_alone(self.p + at):
                    return at
            at += 1
        return 0

    # -- contents of records -----------------------------------------------------------------------------------
    cdef int take(self, size_t at, const char* record) noexcept nogil:
        """Add the record at `at` to the contents; return -1 if out of memory.

        `record` points to the record in the image, or to a corrected copy.
        """
        cdef RecordHeader h
        cdef uint64_t[2] state
        cdef int failed = 0
        memcpy(&h, record, RECORD_HEADER_SIZE)
        if self.torn and h.kind == KIND_MSG and self.is_rest(record, &h):
            self.torn, self.torn_seq = h.flags & FLAG_UNFINISHED != 0, h.seq
            self.after_damage += 1
            self.report(at, h.length, b"of a batch whose begin was never written: not taken")
            return 0
        self.torn = False
        if h.kind != KIND_MSG or not h.flags & FLAG_UNFINISHED:
            self.batch_at = 0
        elif self.batch_at == 0:
            self.batch_at = at
        if h.kind == KIND_MSG:
            if self.c.run.first_seq == 0 or self.c.run.ended:
                self.c.run.joins = self.c.messages == 0 and not self.c.run.ended
                self.c.run.first_seq, self.c.run.ended, self.c.run.changed = h.seq, False, False
            return self.take_message(at, record, &h)
        if h.seq <= SEQ_MAX and self.follows(min(h.seq + 1, SEQ_MAX)):
            failed = self.fill_gap(h.seq + 1)
        else:
            self.report(at, h.length, b"a sequence that does not follow: not believed")
        if h.kind == KIND_STATE and h.length >= RECORD_SIZE_MIN + 16:
            memcpy(state, record + RECORD_HEADER_SIZE, 16)
            if state[0] > h.seq + 1:
                self.report(at, h.length, b"a first sequence after the last one: not believed")
            else:
                self.c.floor = max(self.c.floor, state[0])
            self.c.last_ts = max(self.c.last_ts, <int64_t> state[1])
            self.note_mark(at, &h)
        elif h.kind == KIND_DELETES and failed == 0:
            self.c.run.ended = True
            failed = self.take_removals(at, record, &h)
        elif h.kind == KIND_FOOTER:
            self.c.sealed = True
        elif h.kind == KIND_META:
            self.c.run.first_seq, self.c.run.joins = 0, False
            self.c.run.ended = self.c.run.changed = self.c.meta_at != 0
            self.c.meta_at = at + RECORD_HEADER_SIZE
            self.c.meta_size = h.length - RECORD_SIZE_MIN
        if at == self.c.mark_end and (h.kind == KIND_FOOTER or h.kind == KIND_META):
            self.c.mark_end += h.length         # this record is not an effect of an entry, so the mark covers it too
        self.after_damage = 0
        return failed

    cdef void note_mark(self, size_t at, RecordHeader* h) noexcept nogil:
        """Store the place of the mark if a STATE record has one. Marks after a hole are ignored."""
        if h.length >= RECORD_SIZE_MIN + MARK_SIZE_MIN and self.hole_at == 0:
            self.c.mark_at, self.c.mark_size = at + RECORD_HEADER_SIZE, h.length - RECORD_SIZE_MIN
            self.c.mark_end = at + h.length

    cdef int take_removals(self, size_t at, const char* record, RecordHeader* h) noexcept nogil:
        cdef uint32_t i, n = <uint32_t> (h.length - RECORD_SIZE_MIN) // 8
        cdef uint64_t seq = 0
        if self.c.reserve(0, 0, self.c.n_removals + n) != 0:
            return -1
        for i in range(n):
            memcpy(&seq, record + RECORD_HEADER_SIZE + i * 8, 8)
            if seq > h.seq:             # the removal of a message that comes later
                self.report(at, h.length, b"the removal of a later sequence: not believed")
                return 0
            self.c.removals[self.c.n_removals + i] = seq | ERASED_BIT if h.flags & FLAG_ERASED else seq
        self.c.n_removals += n
        return 0

    cdef int take_message(self, size_t at, const char* record, RecordHeader* h) noexcept nogil:
        cdef size_t fixed = RECORD_HEADER_SIZE + (16 if h.flags & FLAG_EXTENDED else 0)
        cdef uint64_t expected = self.c.base_seq + self.c.n
        cdef uint32_t place
        cdef Entry* e
        if h.seq < expected or not self.follows(h.seq):
            self.report(at, h.length, b"a sequence that does not follow: not taken")
            return 0
        if self.fill_gap(h.seq) != 0:
            return -1
        if not sendable(record + fixed, h.subject_len):
            self.report(at, h.length, b"a subject that no client can send: not taken")
            self.after_damage = 1
            return 0
        place = self.subject_place(record + fixed, h.subject_len)
        e = self.c.add_entry()
        if place == NO_PLACE or e == NULL:
            return -1
        e.seq = h.seq
        e.ts = h.ts
        e.offset = <uint32_t> at
        e.size = h.length - <uint32_t> (fixed + CHECKSUM_SIZE) - h.subject_len
        e.header_len = h.header_len
        e.subject_len = h.subject_len
        e.flags = ENTRY_MSG
        if h.flags & FLAG_EXTENDED:
            e.flags |= ENTRY_EXTENDED
        if h.flags & FLAG_ERASED:
            e.flags |= ENTRY_ERASED
        self.c.count_message(e, place)
        return 0

    cdef bint follows(self, uint64_t before) noexcept nogil:
        """Return whether the next entry can have the sequence `before`; a segment's gaps have a limited total."""
        cdef uint64_t expected = self.c.base_seq + self.c.n
        if before > SEQ_MAX:
            return False
        return before <= expected or before - expected + (self.c.n - self.c.messages) < GAP_MAX

    cdef int fill_gap(self, uint64_t before) noexcept nogil:
        """Add dead entries, for gaps or losses, up to the sequence `before`, exclusive."""
        cdef uint64_t first = self.c.base_seq + self.c.n
        if self.after_damage and first < before:
            with gil:
                self.c.lost.append((first, min(before, first + self.after_damage) - 1))
        self.after_damage = 0
        return self.c.add_gap(before)

    cdef uint32_t subject_place(self, const char* name, uint32_t size) noexcept nogil:
        """Return the position of the subject's row, and add the row if it is missing; NO_PLACE if out of memory."""
        cdef SubjectRow* row
        cdef uint32_t place
        if self.c.n_subjects:
            row = &self.c.subjects[self.latest]
            if row.name_size == size and memcmp(self.c.names + row.name_at, name, size) == 0:
                return self.latest
        place = <uint32_t> <uintptr_t> table_get(&self.by_name, name, size)
        if place:
            self.latest = place - 1
            return self.latest
        place = self.c.add_subject(name, size)
        if place != NO_PLACE:
            self.latest = place
            table_put(&self.by_name, name, size, <void*> <uintptr_t> self.c.n_subjects)
        return place
