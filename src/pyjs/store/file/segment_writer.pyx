"""The open segment of a stream, to which log records are appended: staging, the chain of checksums, sealing.

An append encodes its record into a staging buffer. `commit` writes the buffer with one call; if the buffer is
full, an append writes it. Removals are recorded in the same way: one STATE record per commit if first_seq has
changed, and DELETES records with the sequences that were removed elsewhere. docs/storage-format.md describes the
layout.

Invariants: written <= allocated; `chain` is the checksum of the last record, staged or written.

A failed write drops the staged messages (their sequences are not used again), and later appends are refused.
This module knows nothing of readers, syncs and the reasons for removals; store/file/store owns this object.

Compiled, because it runs for every message (measured in benchmarks/, JetStream async publish).
Long because staging and sealing change the same state.
"""
import errno

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyjs.base.grow cimport grow, grow_to
from pyjs.store.file.condition cimport STORE_CLOSED, STORE_FAILED, STORE_FULL, STORE_SYNC_LOST
from pyjs.store.index.sequences cimport Entry, index_last, index_push, is_dead, segment_new
from pyjs.store.segment.index_file cimport full_segment
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, FLAG_UNFINISHED, FORMAT_VERSION, KIND_DELETES, KIND_FOOTER, KIND_META, KIND_MSG,
    KIND_STATE, RECORD_HEADER_SIZE, RECORD_SIZE_MAX, RECORD_SIZE_MIN, REMOVALS_MAX, SEGMENT_HEADER_SIZE,
    STEPS_VERSION, RecordHeader, seal_record, stored_checksum, write_segment_header,
)
from pyjs.store.segment.contents cimport ERASED_BIT
from pyjs.store.segment.entry_mark cimport MARK_SIZE_MAX, EntryMark
from pyjs.store.segment.view cimport View

from pyjs.base.disk import UNOPENED
from pyjs.base.errors import StoreFailed
from pyjs.store.format.image import TailEncryption
from pyjs.store.format.lost_sync import note_lost_sync

cdef enum:
    BATCH_SIZE_MAX = 268435456  # bytes of all records of a batch; a batch must fit in one segment
    ROOMY = 4194304             # bytes; after a batch, a larger staging buffer is freed
    # bytes that are reserved first for a segment; each further reservation is twice the one before
    ALLOCATE_MIN = 4096
cdef size_t NO_RECORD = <size_t> -1
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # one more sequence would overflow to 0
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


cdef inline int sequences_add(Sequences* list, uint64_t seq) noexcept nogil:
    if grow(<void**> &list.seqs, &list.room, list.n + 1, sizeof(uint64_t)) != 0:
        return -1
    list.seqs[list.n] = seq
    list.n += 1
    return 0


cdef class SegmentWriter:
    def __init__(self, Catalogue catalogue not None, SegmentFiles files not None, StoreCondition condition not None,
                 StoreSync syncs not None, Compactor compactor not None, uint64_t segment_size, stored_tail) -> None:
        self.catalogue = catalogue
        self.files = files
        self.condition = condition
        self.syncs = syncs
        self.compactor = compactor
        self.maps = compactor.maps
        self.retired = compactor.retired
        self.segment_size = segment_size
        self.stored_tail = stored_tail
        self.next_number = 1
        self.mark = EntryMark(0, 0, 0, b"", 0, 0)

    def __dealloc__(self):
        free(self.staging)
        free(self.removals.seqs)
        free(self.erasures.seqs)

    # -- message path ------------------------------------------------------------------------------------------
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil:
        cdef size_t length = RECORD_SIZE_MIN + m.subject_len + m.size
        cdef Segment* s = self.tail()
        cdef Entry* e
        cdef char* p
        # A recovery would reject a longer record, or a higher sequence.
        if s == NULL or length > RECORD_SIZE_MAX or self.catalogue.last_seq >= SEQ_MAX \
                or self.parts == PARTS_COME:
            return 0
        if s.n and not (self.batching or self.part_at or self.entries == IN_ENTRY) and self.outgrown(s, length, ts):
            if self.begin_segment() != 0:
                return 0
            s = index_last(&self.catalogue.index)
        p = NULL if self.part_at else self.stage(length)     # NULL: parts were written to the file already
        if p == NULL and not self.part_at:
            return 0
        e = self.catalogue.add_entry(s, m.subject, m.subject_len, m.header_len, m.size, ts)
        if e == NULL:
            return 0
        e.offset = <uint32_t> s.end
        s.end += length
        if self.part_at:
            return self.catalogue.last_seq
        if self.batching:
            self.last_at, self.chain_before_last = self.staged, self.chain
        self.encode(p, m, length, self.catalogue.last_seq, ts, FLAG_UNFINISHED if self.batching else 0)
        if self.staged_from == 0:
            self.staged_from = self.catalogue.last_seq
        return self.catalogue.last_seq

    cdef void encode(self, char* p, Msg* m, size_t length, uint64_t seq, int64_t ts, int flags) noexcept nogil:
        """Write the record of message `m` to `p`, the end of the staging buffer."""
        cdef RecordHeader* h = <RecordHeader*> p
        h.length = <uint32_t> length
        h.kind = KIND_MSG
        h.flags = flags
        h.subject_len = m.subject_len
        h.seq = seq
        h.ts = ts
        h.header_len = m.header_len
        memcpy(p + RECORD_HEADER_SIZE, m.subject, m.subject_len)
        memcpy(p + RECORD_HEADER_SIZE + m.subject_len, m.body, m.size)
        self.chain = seal_record(p, length, self.chain)
        self.staged += length

    cdef int begin_batch(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        cdef uint64_t length = size + count * RECORD_SIZE_MIN
        cdef Segment* s = self.tail()
        if s == NULL or length > BATCH_SIZE_MAX or count >= SEQ_MAX - self.catalogue.last_seq:
            return -1
        if s.n and self.entries != IN_ENTRY and self.outgrown(s, length, ts) and self.begin_segment() != 0:
            return -1
        self.batching = True
        self.batch_at, self.batch_chain, self.batch_from = self.staged, self.chain, self.catalogue.last_seq + 1
        self.last_at = NO_RECORD
        return 0

    cdef void end_batch(self) noexcept nogil:
        cdef RecordHeader* h
        self.batching = False
        if self.catalogue.last_seq > self.batch_from:
            self.state_due = True  # the STATE record shows later that damage of the last message is not a torn write
        if self.last_at != NO_RECORD and self.staged > self.last_at:
            h = <RecordHeader*> (self.staging + self.last_at)
            h.flags = 0                 # the cleared flag completes the batch
            self.chain = seal_record(<char*> h, h.length, self.chain_before_last)

    cdef void drop_batch(self) noexcept nogil:
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t seq = self.batch_from
        self.batching = False
        while seq <= self.catalogue.last_seq:
            if seq >= s.base and seq < s.base + s.n and not is_dead(s, <uint32_t> (seq - s.base)):
                self.catalogue.unlink(s, <uint32_t> (seq - s.base))
            seq += 1
        s.end -= self.staged - self.batch_at
        self.staged, self.chain = self.batch_at, self.batch_chain
        if self.staged_from >= self.batch_from:
            self.staged_from = 0
        self.state_due = True           # record that its sequences are used up

    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        if self.begin_batch(count, size, ts) != 0:
            return -1
        self.batching = False
        if self.staged and self.write_staged() != 0:
            return -1
        self.part_at, self.part_chain, self.parts = self.written, self.chain, PARTS_COME
        return 0

    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil:
        cdef size_t length = RECORD_SIZE_MIN + m.subject_len + m.size
        cdef char* p = NULL
        if self.part_at and length <= RECORD_SIZE_MAX and not self.condition.refuses():
            p = self.stage(length)
        if p == NULL:
            return -1
        self.encode(p, m, length, seq, ts, 0 if last else FLAG_UNFINISHED)
        return 0

    cdef int flush_parts(self) noexcept nogil:
        if not self.part_at or self.condition.refuses():
            return -1
        return self.write_staged() if self.staged else 0

    cdef void end_parts(self) noexcept nogil:
        self.part_at, self.parts = 0, NO_PARTS
        self.state_due = True           # as in end_batch

    cdef void drop_parts(self) noexcept nogil:
        if self.part_at:
            with gil:
                self.take_back_parts()

    cdef void take_back_parts(self) noexcept:
        """Remove the records of an incomplete batch from the file."""
        self.staged = 0
        self.written, self.chain, self.chain_written = self.part_at, self.part_chain, self.part_chain
        self.part_at, self.parts = 0, NO_PARTS
        if self.encryption is None:
            try:
                self.cut()
                self.allocated = self.written
                return
            except OSError as error:        # the next start drops them
                self.files.log.warn(f"{self.growing_path()} keeps a part of a batch: {error}")
        self.leave_tail()

    cdef bint outgrown(self, Segment* s, size_t length, int64_t ts) noexcept nogil:
        """Return whether a record of `length` bytes needs a new segment.

        It does if the segment has no room or is too old, or if the record's time is before that of the last entry.
        """
        return (s.end + length > self.segment_size or 0 < self.seal_age_ns < ts - s.first_ts
                or ts < s.entries[s.n - 1].ts)      # times within a segment ascend

    cdef Segment* tail(self) noexcept nogil:
        cdef Segment* s = index_last(&self.catalogue.index)
        if self.condition.refuses():
            return NULL
        if s == NULL or s.sealed or s.base + s.n != self.catalogue.last_seq + 1:
            if self.begin_segment() != 0:
                return NULL
            s = index_last(&self.catalogue.index)
        return s

    cdef int jump_to(self, uint64_t seq) noexcept nogil:
        if self.condition.refuses() or self.seal() != 0:
            return -1
        self.catalogue.last_seq = seq - 1
        self.state_due = True
        return 0

    cdef int commit(self) noexcept nogil:
        if self.condition.refuses():
            return -1
        if self.stage_sequences(&self.removals, 0) != 0 or self.stage_sequences(&self.erasures, FLAG_ERASED) != 0:
            return -1
        if (self.state_due or self.entries == MARK_DUE) and self.stage_state() != 0:
            return -1
        if self.meta_due and self.catalogue.index.n and self.stage_meta() != 0:
            return -1
        if self.staged and self.write_staged() != 0:
            return -1
        if self.keep_recorded(&self.removals, 0) != 0 or self.keep_recorded(&self.erasures, ERASED_BIT) != 0:
            return -1
        self.state_due = False
        if self.retired.undated and self.entries != IN_ENTRY:    # a recovery drops entries that no mark follows
            with gil:
                self.retired.date()
        return 0

    # -- entries of a replicated stream --------------------------------------------------------------------------
    cdef int begin_entry(self, uint64_t size) except -1:
        """Make sure that the next `size` bytes go into one segment, in which a mark precedes them."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if self.entries != IN_ENTRY and not self.condition.refuses():
            if s == NULL or s.sealed or s.base + s.n != self.catalogue.last_seq + 1 \
                    or (s.n and self.outgrown(s, size, self.catalogue.last_ts)):
                self.begin_segment()
        self.entries = IN_ENTRY
        return 0

    cdef void end_entry(self, EntryMark mark):
        """Queue `mark` for the next commit. Call this after all effects of the entry."""
        self.mark = mark
        self.entries = MARK_DUE

    cdef int expect_step(self) noexcept nogil:
        """Continue in a segment in which marks may have clock steps. Call this between two entries."""
        if self.files.version == STEPS_VERSION:
            return 0
        self.mark.precedes_step = True
        return self.begin_segment()

    cdef int stage_mark(self) noexcept nogil:
        """Stage the mark of the last complete entry now, after the queued removals."""
        if self.stage_sequences(&self.removals, 0) != 0 or self.stage_sequences(&self.erasures, FLAG_ERASED) != 0:
            return -1
        if self.keep_recorded(&self.removals, 0) != 0 or self.keep_recorded(&self.erasures, ERASED_BIT) != 0:
            return -1
        return self.stage_state()

    # -- recovery ----------------------------------------------------------------------------------------------
    cdef void go_on_behind(self, RecoveredSegment found) noexcept:
        """Continue after the last record of a recovered segment."""
        self.allocated = found.size
        self.written = found.contents.end
        self.chain = self.chain_written = found.contents.chain
        self.indexed = found.indexed

    cdef void take_over(self, uint32_t next_number, object stored_tail, bint state_due) noexcept:
        """Set the state found by the recovery."""
        self.next_number = next_number
        self.stored_tail = stored_tail
        self.state_due |= state_due

    # -- staging -----------------------------------------------------------------------------------------------
    cdef char* stage(self, size_t length) noexcept nogil:
        """Return room for a record of `length` bytes at the end of the staging buffer, or NULL if there is none."""
        # A batch is written with one call: otherwise a full disk could leave only a part of it in the file.
        if self.staged and not self.batching and self.staged + length > STAGED_MAX and self.write_staged() != 0:
            return NULL
        if self.staged + length > self.staging_room \
                and grow_to(<void**> &self.staging, &self.staging_room, self.staged + length + STAGED_MAX, 1) != 0:
            return NULL
        return self.staging + self.staged

    cdef int stage_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil:
        """Stage a record of a kind other than MSG."""
        cdef size_t length = RECORD_SIZE_MIN + n
        cdef Segment* s = self.tail()
        cdef RecordHeader* h
        cdef char* p
        if s == NULL:
            return -1
        p = self.stage(length)
        if p == NULL:
            return -1
        h = <RecordHeader*> p
        memset(h, 0, RECORD_HEADER_SIZE)
        h.length = <uint32_t> length
        h.kind = kind
        h.flags = flags
        h.seq = seq
        memcpy(p + RECORD_HEADER_SIZE, body, n)
        self.chain = seal_record(p, length, self.chain)
        s.end += length
        self.staged += length
        return 0

    cdef int stage_state(self) noexcept nogil:
        cdef char[MARK_SIZE_MAX] body
        cdef uint64_t[2] state
        cdef size_t size = 16
        cdef Segment* s
        state[0] = self.catalogue.first_seq
        state[1] = <uint64_t> self.catalogue.last_ts
        memcpy(body, state, 16)
        if self.entries == ALL_MARKED or self.entries == MARK_DUE:
            size += self.mark.write(body + 16)
        if self.stage_plain(KIND_STATE, 0, self.catalogue.last_seq, body, size) != 0:
            return -1
        if self.entries == MARK_DUE:
            self.entries = ALL_MARKED
        if size > 16:
            self.staged_index = self.mark.index
        s = index_last(&self.catalogue.index)
        s.floor = max(s.floor, self.catalogue.first_seq)
        return 0

    cdef int stage_meta(self) noexcept nogil:
        cdef const char* meta
        cdef size_t size
        with gil:
            meta, size = <const char*> self.files.meta, len(self.files.meta)
        self.meta_due = False
        return self.stage_plain(KIND_META, 0, self.catalogue.last_seq, meta, size) if size else 0

    cdef int stage_sequences(self, Sequences* list, int flags) noexcept nogil:
        cdef size_t at = 0, some
        while at < list.n:
            some = min(list.n - at, <size_t> REMOVALS_MAX)
            if self.stage_plain(KIND_DELETES, flags, self.catalogue.last_seq, <char*> (list.seqs + at),
                                some * 8) != 0:
                return -1
            at += some
        return 0

    cdef int write_staged(self) noexcept nogil:
        with gil:
            try:
                self.write_out()
                return 0
            except BaseException as error:
                self.fail(error)
        return -1

    cdef void write_out(self) except *:
        """Write the staged records to the end of the open segment, after reserving the space."""
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t end = self.written + self.staged, step
        path = self.files.path_of(s.number)
        fd = self.files.handles.open(path)
        if end > self.allocated:
            step = self.allocated if self.allocated > ALLOCATE_MIN else ALLOCATE_MIN
            if self.allocated + step > self.segment_size and self.allocated < self.segment_size:
                step = self.segment_size - self.allocated
            if self.allocated + step < end:
                step = end - self.allocated
            try:
                if self.encryption is None:
                    self.files.disk.allocate(fd, self.allocated, step)
                else:
                    self.files.disk.allocate(fd, 0, self.encryption.file_size(self.allocated + step))
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
            self.allocated += step
        if self.encryption is None:
            self.files.disk.write_at(fd, PyMemoryView_FromMemory(self.staging, self.staged, PyBUF_READ), self.written)
        else:
            self.write_encrypted(s, fd)
        self.written = end
        self.staged = 0
        self.staged_from = 0
        if self.staging_room > ROOMY:
            free(self.staging)
            self.staging, self.staging_room = NULL, 0
        self.chain_written = self.chain
        self.kept_index = self.staged_index
        self.syncs.written_mark += 1
        self.files.wrote(path)

    cdef void write_encrypted(self, Segment* s, int fd) except *:
        """Write the staged records encrypted; copy the plain bytes to a view of the end of the segment."""
        cdef View view = self.maps.views.get(s.number)
        plain = PyMemoryView_FromMemory(self.staging, self.staged, PyBUF_READ)
        data, at = self.encryption.written(plain, self.written)
        self.files.disk.write_at(fd, data, at)
        if view is not None:
            view.put(self.staging, self.written, self.staged)

    def cut(self, mark=False, unsynced=True) -> None:
        """Truncate the file after the last record; with `mark`, write the end mark of an encrypted file.

        With `unsynced`, the next sync includes the file.

        Raises:
            OSError: the file cannot be truncated.
        """
        path = self.files.path_of(index_last(&self.catalogue.index).number)
        fd = self.files.handles.open(path)
        if unsynced:
            self.files.wrote(path)
        if self.encryption is None:
            self.files.disk.truncate(fd, self.written)
            return
        size = self.encryption.file_size(self.written)
        if mark:
            self.files.disk.truncate(fd, size - 1)
            self.files.disk.write_at(fd, self.encryption.mark, size - 1)
        else:
            self.files.disk.truncate(fd, size)

    cdef void fail(self, object error) noexcept:
        """Refuse all later appends, and drop the staged records."""
        if isinstance(error, MemoryError):
            error = OSError(errno.ENOMEM, "out of memory")
        elif not isinstance(error, OSError):
            error = OSError(0, repr(error))
        resumable = error.errno in NO_SPACE or error.errno in UNOPENED
        reason = StoreFailed(self.files.directory, error.strerror or str(error))
        self.condition.worsen(STORE_FULL if resumable else STORE_FAILED, reason)
        self.mended = True
        self.drop_parts()
        self.forget_staged()
        self.files.log.error(f"Store of {self.files.directory} refuses messages: {error}; "
                             + ("it goes on when there is room again" if resumable else "restart to recover it"))

    def sync_failed(self, error) -> None:
        """Refuse appends permanently, unless the sync failed only because a directory could not be opened."""
        directory = self.files.directory
        if getattr(error, "errno", 0) in UNOPENED:
            self.files.names_unsynced = True
            self.fail(error)
            return
        reason = StoreFailed(directory, f"sync failed: {error}; what it held may be lost")
        self.condition.worsen(STORE_SYNC_LOST, reason)
        self.drop_parts()
        self.forget_staged()
        note_lost_sync(self.files.disk, directory, self.files.log)
        self.files.log.error(f"Store of {directory} refuses messages: sync failed: {error}; restart to recover it")

    cdef void forget_staged(self) noexcept nogil:
        """Drop the staged messages; their sequences are not used again."""
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t seq = self.staged_from
        self.staged = 0
        self.staged_from = 0
        self.staged_index = self.kept_index
        self.state_due = self.meta_due = True
        if s == NULL:
            return
        while seq and seq <= self.catalogue.last_seq:
            if seq >= s.base and seq < s.base + s.n and not is_dead(s, <uint32_t> (seq - s.base)):
                self.catalogue.unlink(s, <uint32_t> (seq - s.base))
            seq += 1
        s.end = self.written
        self.chain = self.chain_written
        if self.written == 0:           # not even the segment's header is in the file
            with gil:
                self.compactor.give_up(s)
            self.catalogue.index.n -= 1
            self.retired.keep(s)        # the caller may still use the segment
            # The last segment is now the previous one, which is sealed and completely written.
            self.written = self.allocated = index_last(&self.catalogue.index).end if self.catalogue.index.n else 0

    # -- segments ----------------------------------------------------------------------------------------------
    cdef int begin_segment(self) noexcept nogil:
        if self.condition.refuses() or self.seal() != 0:
            return -1
        with gil:
            try:
                self.new_segment()
                return 0
            except BaseException as error:
                self.fail(error)
        return -1

    cdef void new_segment(self) except *:
        cdef Segment* s = segment_new(self.catalogue.last_seq + 1, self.next_number)
        cdef SegmentFiles files = self.files
        cdef char* header
        if self.left and self.catalogue.index.n and self.is_unindexed():
            self.syncs.unindexed.append(self.without_index(index_last(&self.catalogue.index), False))
        if s == NULL or index_push(&self.catalogue.index, s) != 0:
            raise MemoryError
        self.written = self.allocated = self.staged = self.indexed = 0
        self.stored_tail = None
        self.next_number += 1
        files.handles.open(files.path_of(s.number), create=True)
        s.last_ts = self.catalogue.last_ts
        files.names_unsynced = True
        self.left = False
        self.encryption, s.encoding = None, 0
        if files.key is not None:
            self.encryption = TailEncryption(files.key, s.base, s.number, files.incarnation, files.meta)
            s.encoding = self.encryption.flags
        header = self.stage(SEGMENT_HEADER_SIZE)
        if header == NULL:
            raise MemoryError
        files.version = STEPS_VERSION if self.mark.precedes_step or self.mark.steps else FORMAT_VERSION
        write_segment_header(header, s.base, s.number, files.incarnation, files.version)
        self.chain = self.chain_written = stored_checksum(self.staging, SEGMENT_HEADER_SIZE)
        self.staged = s.end = SEGMENT_HEADER_SIZE
        self.stage_meta()
        if self.entries == ALL_MARKED or self.entries == MARK_DUE:
            self.stage_state()

    cdef int seal(self) noexcept nogil:
        """Seal the open segment, so that it never grows again; return 0, or -1 if a write fails.

        The segment gets a FOOTER if its last sequence is that of the stream.
        """
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t[6] body
        cdef bint footer
        if s == NULL or s.sealed:
            return 0
        if self.entries == MARK_DUE and self.stage_mark() != 0:
            return -1
        body[0] = s.base
        body[1] = s.base + s.n - 1
        body[2] = s.n
        body[3] = <uint64_t> (s.entries[0].ts if s.n else 0)
        body[4] = <uint64_t> s.last_ts
        body[5] = s.end
        footer = s.base + s.n == self.catalogue.last_seq + 1
        if footer:
            self.stage_plain(KIND_FOOTER, 0, self.catalogue.last_seq, <char*> body, 48)
            if self.condition.refuses():
                return -1
        if self.staged and self.write_staged() != 0:
            return -1
        s.sealed = True
        with gil:
            try:
                self.cut()
            except OSError as error:
                self.files.log.warn(f"{self.files.path_of(s.number)} keeps its reserved space: {error}")
            self.syncs.unindexed.append(self.without_index(s, footer))
        self.compactor.note_encoding(s)
        return 0

    cdef FullSegment without_index(self, Segment* s, bint footer):
        """Return the data for the index file of the last segment."""
        cdef bint whole = not self.mended and not s.examined
        return full_segment(self.catalogue, self.files, self.retired, s, footer, self.chain, whole)

    def leave_tail(self) -> None:
        """Leave the last segment without a FOOTER, so that the next records go into a new segment.

        No offset of an encrypted file is written twice: two versions would reveal the XOR of their plain
        bytes.
        """
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.sealed:
            return
        s.sealed = self.left = True
        try:
            self.cut(mark=True)
        except OSError as error:
            self.files.log.warn(f"{self.files.path_of(s.number)} keeps what could not be written: {error}")
        self.compactor.note_encoding(s)

    def drop_rest(self) -> None:
        """Remove what a failed write has left after the last record; between records, it would count as damage.

        Raises:
            OSError: it cannot be removed.
        """
        if self.encryption is not None:
            self.leave_tail()
        elif self.growing_path():
            self.cut()
            self.allocated = self.written

    def start_over(self) -> None:
        """Continue in a new segment, into which the current metadata is written at once."""
        self.leave_tail()
        self.meta_due = True
        if self.begin_segment() == 0:
            self.commit()

    def give_room_back(self) -> None:
        """Truncate the last segment after its records. No sync is needed: a recovery would truncate it again."""
        if not self.growing_path() or self.allocated == self.written:
            return
        try:
            self.cut(unsynced=False)
        except OSError as error:
            self.files.log.warn(f"{self.files.directory}: reserved space stays: {error}")

    def set_meta(self, bytes meta) -> None:
        """Write the stream's metadata to every new segment, and to the open segment with the next commit."""
        self.meta_due |= self.files.meta != b"" and meta != self.files.meta
        self.files.meta = meta

    def mend_tail(self) -> None:
        """Rewrite the checksum of the last record of a truncated segment, since the chain continues from it."""
        cdef Segment* s = index_last(&self.catalogue.index)
        try:
            at, shift = self.written - CHECKSUM_SIZE, 0
            checksum = self.chain_written.to_bytes(CHECKSUM_SIZE, "little")
            if s.encoding:                  # the bytes are the same as before, so the key stream is not revealed
                checksum, shift = self.encryption.stream.apply(checksum, at), self.encryption.shift
            path = self.files.path_of(s.number)
            self.files.disk.write_at(self.files.handles.open(path), checksum, at + shift)
            self.files.wrote(path)
        except OSError as error:
            self.files.log.error(f"{self.files.path_of(s.number)}: what comes next may be taken for damage: {error}")
        self.state_due = True           # to record that the lost sequences are used up

    # -- removals ----------------------------------------------------------------------------------------------
    cdef int note_removal(self, uint64_t seq, bint erased) noexcept nogil:
        """Queue the removal of a message for the next commit; `erased` means that its bytes will be overwritten."""
        return sequences_add(&self.erasures if erased else &self.removals, seq)

    cdef void note_removals(self, uint64_t base, Found* found, uint32_t begin) noexcept nogil:
        """Queue the removals of the entries in `found` from the index `begin` on; their segment begins at `base`.

        If out of memory, the removals are not recorded.
        """
        cdef Sequences* list = &self.removals
        cdef uint32_t k
        if grow(<void**> &list.seqs, &list.room, list.n + found.n - begin, sizeof(uint64_t)) != 0:
            return
        for k in range(begin, found.n):
            list.seqs[list.n] = base + found.entries[k]
            list.n += 1

    cdef int keep_recorded(self, Sequences* list, uint64_t bit) noexcept nogil:
        """Move the queued removals to the removals of the last segment, in which their records now are.

        Each of them gets `bit`. Return 0, or -1 if out of memory.
        """
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef size_t i
        if list.n == 0:
            return 0
        if s.removed == NULL and bit == 0:      # a million removals are not copied
            s.removed, s.n_removed, s.removed_room = list.seqs, <uint32_t> list.n, list.room
            list.seqs, list.n, list.room = NULL, 0, 0
            return 0
        if grow(<void**> &s.removed, &s.removed_room, s.n_removed + list.n, 8) != 0:
            return -1
        for i in range(list.n):
            s.removed[s.n_removed + i] = list.seqs[i] | bit
        s.n_removed += <uint32_t> list.n
        list.n = 0
        return 0

    cdef int record_erasure(self, uint64_t seq) noexcept nogil:
        """Write the removal of message `seq` to the file; return -1 if that fails. Call this before an erasure."""
        if self.note_removal(seq, True) != 0:
            return -1
        if self.stage_sequences(&self.erasures, FLAG_ERASED) != 0 \
                or (self.entries == MARK_DUE and self.stage_state() != 0) or self.write_staged() != 0:
            return -1
        return self.keep_recorded(&self.erasures, ERASED_BIT)

    def growing_path(self) -> str:
        """Return the path of the open segment, or "" if there is none."""
        cdef Segment* s = index_last(&self.catalogue.index)
        return "" if s == NULL or s.sealed or self.condition.state == STORE_CLOSED else self.files.path_of(s.number)

    cdef bint has_news(self) noexcept nogil:
        """Return whether the next commit must write anything besides metadata."""
        return self.staged or self.removals.n or self.erasures.n or self.state_due

    cdef void forget_removals(self) noexcept nogil:
        """Drop all staged records and queued removals, since their segments no longer exist."""
        self.staged = self.written = self.allocated = 0
        self.staged_from = 0
        self.staged_index = self.kept_index
        self.removals.n = self.erasures.n = 0
        self.state_due = True

    cdef bint is_unindexed(self):
        """Return whether the last segment lacks an index file that covers all of it."""
        return self.indexed != self.written or self.stored_tail is not None
