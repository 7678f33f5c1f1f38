"""Rewriting of one sealed segment: its live messages are written to a new file.

The job reads and checks a segment of which over half is dead, and writes a new file beside it: metadata, live
messages, removals that are still needed for other segments, first_seq and time. The new file is synced, and
renamed over the old one when the removals of the dead messages are durable. Invariant: one complete file
exists at any time. A compaction leaves a damaged segment unchanged.

A repair gets records that replace the damaged ones (`restored`), and fails if there is none for a live message. It
also copies removed messages, whose ids may still count, and keeps all removals.

This module does not use stores: store/file chooses segments and replaces the files. The job runs without the GIL, in
any thread. Compiled, because it copies and seals every live record (benchmarks/store_start.py reads the rewritten
files).
"""
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from pyjs.base.borrow cimport borrowed
from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport (
    ENTRY_ERASED, ENTRY_MSG, PRESENCE_WORDS, Entry, copy_sparse, is_dead, prev_of, segment_free, segment_mark,
    segment_new, segment_next_live, subject_of,
)
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, FORMAT_VERSION, KIND_DELETES, KIND_FOOTER, KIND_META, KIND_MSG, KIND_STATE,
    RECORD_HEADER_SIZE, RECORD_SIZE_MIN, REMOVALS_MAX, SEGMENT_HEADER_SIZE, STEPS_VERSION, RecordHeader,
    check_segment_header, seal_record, stored_checksum, write_segment_header,
)
from pyjs.store.segment.contents cimport ERASED_BIT
from pyjs.store.segment.entry_mark cimport MARK_SIZE_MAX, PLAIN_MARK_SIZE_MAX
from pyjs.store.segment.scan cimport SegmentScan
from pyjs.store.store cimport StoredMessage

from pyjs.base.disk import write_file
from pyjs.base.bad_pages import bad_page_count
from pyjs.base.errors import CorruptRecord
from pyjs.store.format.image import UNREADABLE, encode_file, read_image
from pyjs.store.segment.index_file import whole_image
from pyjs.store.segment.recovery import contents_of
from pyjs.store.open_files import ReplacedFile
from pyjs.store.format.recast import NEW


cdef SegmentRewrite rewrite_of(object disk, str path, Segment* s, uint64_t incarnation, uint64_t mark, bytes meta,
                               object key, uint32_t codec, dict restored):
    """Return the job that compacts `s`, which must have live messages, or repairs it with the records `restored`."""
    cdef SegmentRewrite job = SegmentRewrite()
    job.key, job.codec, job.restored = key, codec, restored
    cdef size_t words = (s.n + 63) >> 6, more = 0
    cdef uint32_t i, last = 0
    cdef uint64_t end = s.base + s.n
    if restored:
        end = max(end, <uint64_t> max(restored) + 1)    # the end of the segment may be lost
        more = ((end - s.base + 63) >> 6) - words
    job.disk, job.path, job.number, job.mark = disk, path, s.number, mark
    job.incarnation, job.base, job.floor, job.last_ts, job.meta = incarnation, s.base, s.floor, s.last_ts, meta
    job.dead = <uint64_t*> malloc((words + more) * 8 + 8)
    job.removed = <uint64_t*> malloc(<size_t> s.n_removed * 8 + 8)
    if job.dead == NULL or job.removed == NULL:
        raise MemoryError
    memcpy(job.dead, s.dead, words * 8)
    memset(job.dead + words, 0xff, more * 8)
    for i in range(s.n, min(<uint32_t> (words << 6), <uint32_t> (end - s.base))):
        job.dead[i >> 6] |= <uint64_t> 1 << (i & 63)
    for i in range(s.n_removed):
        if restored is not None or not s.base <= s.removed[i] & ~ERASED_BIT < s.base + s.n:
            job.removed[job.n_removed] = s.removed[i]
            job.n_removed += 1
    i = segment_next_live(s, 0)
    job.first = s.base + i
    while i < s.n:
        last = i
        i = segment_next_live(s, i + 1)
    job.last = s.base + last
    if restored is not None:
        job.first, job.last = s.base, end - 1
    job.first_ts = s.entries[job.first - s.base].ts if s.n else 0
    return job


cdef SegmentRewrite missing_of(object disk, str path, uint32_t number, uint64_t base, uint64_t last,
                               uint64_t incarnation, bytes meta, object key, dict records, bytes mark):
    cdef SegmentRewrite job = SegmentRewrite()
    cdef size_t words = (last - base + 64) >> 6
    job.key, job.restored, job.new_mark = key, records, mark
    job.disk, job.path, job.number = disk, path, number
    job.incarnation, job.base, job.first, job.last, job.meta = incarnation, base, base, last, meta
    job.dead = <uint64_t*> malloc(words * 8 + 8)
    if job.dead == NULL:
        raise MemoryError
    memset(job.dead, 0xff, words * 8 + 8)
    return job


def record_of(StoredMessage message not None) -> bytes:
    """Return the record for a message; its check and its checksum are not set."""
    cdef RecordHeader h
    memset(&h, 0, sizeof(h))
    body = message.subject + message.headers + message.payload
    h.length = <uint32_t> (RECORD_SIZE_MIN + len(body))
    h.kind, h.subject_len, h.seq, h.ts = KIND_MSG, len(message.subject), message.seq, message.ts
    h.header_len = len(message.headers)
    return (<char*> &h)[:RECORD_HEADER_SIZE] + body + bytes(CHECKSUM_SIZE)


cdef class SegmentRewrite:
    def __cinit__(self):
        self.new_mark, self.version = b"", FORMAT_VERSION

    def __dealloc__(self):
        free(self.dead)
        free(self.removed)
        free(self.out)

    @property
    def new_path(self) -> str:
        """The path of the new file until it replaces the old one."""
        return f"{self.path}{NEW}"

    def __call__(self):
        """Write and sync the new file; return the error, or None if it is durable."""
        cdef SegmentContents old
        cdef const char* file
        cdef size_t size = 0
        cdef int failed
        try:
            view = self.read()
            file = borrowed(view, &size)
            old = self.contents_in(view) if self.restored is None else self.damaged_contents(view)
            unreadable = bad_page_count()
            self.has_mark = not old.mended
            if max(old.mark_size if self.has_mark else 0, len(self.new_mark) + 16) > PLAIN_MARK_SIZE_MAX:
                self.version = STEPS_VERSION
            self.begin(old.end)
            if self.restored is not None:
                self.restore_all(old, file)
            with nogil:
                failed = self.rewrite_contents(old, file)
            if bad_page_count() != unreadable:
                raise ValueError("a page of it cannot be read any more")
            if failed:
                raise MemoryError
            self.contents = SegmentScan().whole(self.out, self.size)
            if self.contents.problems:
                raise ValueError(f"what was written of it is damaged: {self.contents.problems}")
            self.save()
            self.old = None if self.new_mark else ReplacedFile(self.disk, self.path)
        except UNREADABLE as error:
            return error
        return None

    cdef bint is_repair(self) noexcept:
        return self.restored is not None

    cdef object read(self):
        """Return the plain image of the old file, or one zero byte if a repair finds it missing or unreadable."""
        if self.restored is None:
            return whole_image(self.disk, self.path, self.key)
        try:
            return bytes(read_image(self.disk, self.path, self.key, True)) or bytes(1)
        except (FileNotFoundError, CorruptRecord):
            return bytes(1)

    cdef SegmentContents contents_in(self, object view):
        """Return the contents of the old file. Raises ValueError if the file is damaged."""
        cdef size_t size = 0
        cdef const char* file = borrowed(view, &size)
        cdef SegmentContents c
        if check_segment_header(file, size) != 0:
            raise ValueError("its header is damaged")
        c = SegmentScan().whole(file, size)
        if c.problems or c.base_seq != self.base or c.incarnation != self.incarnation:
            raise ValueError(f"it is damaged: {c.problems}")
        return c

    cdef SegmentContents damaged_contents(self, object view):
        """Return the intact contents of the old file; they are empty if it is not of this stream."""
        cdef SegmentContents c = contents_of(self.path, view, self.number, self.incarnation, self.base, True)
        if c is None or c.incarnation != self.incarnation:
            c = SegmentContents()
            c.base_seq = self.base
        return c

    def save(self) -> None:
        """Write and sync the new file."""
        image = PyMemoryView_FromMemory(self.out, self.size, PyBUF_READ)
        self.encoding, parts = encode_file(image, self.codec, self.key, self.meta)
        write_file(self.disk, self.new_path, parts)
        self.written = True

    def begin(self, uint64_t old_size) -> None:
        """Begin the new image with its header and metadata."""
        self.out = <char*> malloc(old_size + SEGMENT_HEADER_SIZE)
        if self.out == NULL:
            raise MemoryError
        self.room = old_size + SEGMENT_HEADER_SIZE
        write_segment_header(self.out, self.first, self.number, self.incarnation, self.version)
        self.chain = stored_checksum(self.out, SEGMENT_HEADER_SIZE)
        self.size = SEGMENT_HEADER_SIZE
        if self.put_meta() != 0:
            raise MemoryError

    cdef int restore_all(self, SegmentContents old, const char* file) except -1:
        """Add the intact records, and a restored record in place of each damaged one.

        Raises:
            ValueError: there is no restored record for a live message.
        """
        cdef uint32_t i
        cdef uint64_t at
        cdef RecordHeader h
        cdef bint is_intact
        cdef bytes record
        for i in range(<uint32_t> (self.last - self.base) + 1):
            at = self.base + i - old.base_seq  # if the header was rebuilt, its base_seq may differ from the real one
            is_intact = at < old.n and old.entries[at].flags & (ENTRY_MSG | ENTRY_ERASED) == ENTRY_MSG
            record = None if is_intact else self.restored.get(self.base + i)
            if is_intact:
                memcpy(&h, file + old.entries[at].offset, RECORD_HEADER_SIZE)
                if self.put_copy(file + old.entries[at].offset, h.length) != 0:
                    raise MemoryError
            elif record is not None:
                if self.put_copy(record, len(record)) != 0:
                    raise MemoryError
            elif not self.dead[i >> 6] >> (i & 63) & 1:
                raise ValueError(f"message {self.base + i} is damaged")
        return 0

    cdef int copy_live(self, SegmentContents old, const char* file) noexcept nogil:
        """Add the records of live messages; return -1 if out of memory."""
        cdef Entry* e
        cdef RecordHeader h
        cdef uint32_t i
        for i in range(<uint32_t> (self.first - self.base), <uint32_t> (self.last - self.base) + 1):
            e = &old.entries[i]
            if i >= old.n or self.dead[i >> 6] >> (i & 63) & 1 or not e.flags & ENTRY_MSG:
                continue
            memcpy(&h, file + e.offset, RECORD_HEADER_SIZE)
            if self.put_copy(file + e.offset, h.length) != 0:
                return -1
        return 0

    cdef int rewrite_contents(self, SegmentContents old, const char* file) noexcept nogil:
        cdef char[MARK_SIZE_MAX] state
        cdef size_t state_size = 16
        cdef uint64_t[6] summary
        cdef bint is_compaction
        with gil:
            is_compaction = not self.is_repair()
            if self.new_mark:
                state_size += len(self.new_mark)
                memcpy(state + 16, <const char*> self.new_mark, len(self.new_mark))
        if is_compaction and self.copy_live(old, file) != 0:
            return -1
        if self.put_removals(0) != 0 or self.put_removals(FLAG_ERASED) != 0:
            return -1
        if 0 < old.mark_size <= MARK_SIZE_MAX and self.has_mark:      # copy the mark too
            state_size = old.mark_size
            memcpy(state, file + old.mark_at, state_size)
        memcpy(state, &self.floor, 8)
        memcpy(state + 8, &self.last_ts, 8)
        if self.put_plain(KIND_STATE, 0, self.last, state, state_size) != 0:
            return -1
        summary[0], summary[1], summary[2] = self.first, self.last, self.last - self.first + 1
        summary[3], summary[4] = <uint64_t> self.first_ts, <uint64_t> self.last_ts
        summary[5] = self.size
        return self.put_plain(KIND_FOOTER, 0, self.last, <char*> summary, 48)

    cdef int put_meta(self) noexcept nogil:
        cdef const char* meta
        cdef size_t size
        with gil:
            meta, size = <const char*> self.meta, len(self.meta)
        return self.put_plain(KIND_META, 0, self.first - 1, meta, size) if size else 0

    cdef int put_removals(self, int flags) noexcept nogil:
        """Add records of removals: those with erasure if `flags` has FLAG_ERASED, otherwise those without."""
        cdef uint64_t* seqs = <uint64_t*> malloc(<size_t> self.n_removed * 8 + 8)
        cdef uint32_t i
        cdef size_t n = 0, at = 0, some
        cdef int failed = 0
        if seqs == NULL:
            return -1
        for i in range(self.n_removed):
            if (self.removed[i] & ERASED_BIT != 0) == (flags != 0):
                seqs[n] = self.removed[i] & ~ERASED_BIT
                n += 1
        while at < n and failed == 0:
            some = min(n - at, <size_t> REMOVALS_MAX)
            failed = self.put_plain(KIND_DELETES, flags, self.last, <char*> (seqs + at), some * 8)
            at += some
        free(seqs)
        return failed

    cdef int put_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil:
        """Add a record of a kind other than MSG."""
        cdef RecordHeader h
        memset(&h, 0, sizeof(h))
        h.length = <uint32_t> (RECORD_SIZE_MIN + n)
        h.kind, h.flags, h.seq = kind, flags, seq
        if self.make_room(h.length) != 0:
            return -1
        memcpy(self.out + self.size, &h, RECORD_HEADER_SIZE)
        memcpy(self.out + self.size + RECORD_HEADER_SIZE, body, n)
        self.seal(h.length)
        return 0

    cdef int put_copy(self, const char* record, size_t length) noexcept nogil:
        """Add a copy of a record with a new checksum."""
        if self.make_room(length) != 0:
            return -1
        memcpy(self.out + self.size, record, length - CHECKSUM_SIZE)
        self.seal(length)
        return 0

    cdef void seal(self, size_t length) noexcept nogil:
        self.chain = seal_record(self.out + self.size, length, self.chain)
        self.size += length

    cdef int make_room(self, size_t length) noexcept nogil:
        return grow(<void**> &self.out, &self.room, self.size + length, 1)


cdef inline bint is_copy(Entry* e, Entry* found) noexcept nogil:
    """Return whether entry `found` has the sequence, time and sizes of entry `e`."""
    return (found.flags & ENTRY_MSG and found.seq == e.seq and found.ts == e.ts and found.size == e.size
            and found.header_len == e.header_len and found.subject_len == e.subject_len)


cdef Segment* rewritten_segment(SegmentRewrite job, Segment* old) noexcept nogil:
    cdef Segment* s = segment_new(job.first, job.number)
    cdef uint32_t i, at = <uint32_t> (job.first - old.base)
    if s == NULL:
        return NULL
    s.n = <uint32_t> (job.last - job.first) + 1
    s.cap = (s.n + 63) & ~<uint32_t> 63
    s.roomy = old.roomy
    s.entries = <Entry*> calloc(s.cap, sizeof(Entry))
    s.dead = <uint64_t*> calloc((s.cap >> 6) + 1, 8)
    if s.entries == NULL or s.dead == NULL or job.contents.n < s.n:
        segment_free(s)
        return NULL
    copy_sparse(s.entries, old.entries + at, s.n)
    for i in range(s.n):
        if is_dead(old, at + i):
            segment_mark(s, i)
        elif is_copy(&s.entries[i], &job.contents.entries[i]):
            s.entries[i].offset = job.contents.entries[i].offset
            s.entries[i].prev = prev_of(old, at + i)
            s.entries[i].subject_id = subject_of(old, at + i)
        else:
            segment_free(s)
            return NULL
    s.live, s.live_bytes, s.first_ts, s.last_ts = old.live, old.live_bytes, old.first_ts, old.last_ts
    memcpy(s.presence, old.presence, PRESENCE_WORDS * 8)
    s.end, s.floor, s.sealed, s.encoding = job.contents.end, job.floor, True, job.encoding
    s.removed, s.n_removed, s.removed_room = job.removed, job.n_removed, job.n_removed
    job.removed = NULL
    return s
