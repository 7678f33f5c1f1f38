"""Segment files of one directory: records are appended, read and removed here.

An append encodes its record into a staging buffer; `commit` writes the buffer with one call, or an append does when
it is full. segment_reader.pyx reads them back. Removing messages from the front moves `first_seq`, which one STATE
record per commit notes; removals elsewhere are noted together in one DELETES record. A segment without live messages
is removed after what makes it superfluous is on the medium. docs/storage-format.md has the layout, store/recovery how
a directory is read back.

A failed write drops what was staged (its sequences are not used again), and appends are refused from then on. When
bytes reach the medium, and what becomes of a failed store, is filestore.pyx's business. Knows nothing of streams.

Compiled: benchmarks/, JetStream async publish.
Long because staging, segments and removals change one state.
"""
import errno

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.base.grow cimport grow, grow_to
from pyjs.store.index cimport (
    Entry, Segment, index_find, index_free, index_last, index_push, index_remove, is_dead, segment_free, segment_new,
)
from pyjs.store.index_file cimport FullSegment, full_segment
from pyjs.store.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, KIND_DELETES, KIND_FOOTER, KIND_META, KIND_MSG, KIND_STATE, RECORD_HEADER_SIZE,
    RECORD_SIZE_MAX, RECORD_SIZE_MIN, REMOVALS_MAX, SEGMENT_HEADER_SIZE, RecordHeader, seal_record,
    stored_checksum, write_segment_header,
)
from pyjs.store.remains cimport Remains
from pyjs.store.segment cimport ERASED_BIT
from pyjs.store.segment_reader cimport SegmentReader
from pyjs.store.store cimport StreamStore
from pyjs.store.view cimport View
from pyjs.wire.ops cimport Msg

from pyjs.base.errors import CorruptRecord, StoreFailed
from pyjs.store.form import TailVeil, open_image
from pyjs.store.recast import restore_plain
from pyjs.store.segment_reader import UNOPENED
from pyjs.store.vault import Locked

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    ALLOCATE_MIN = 4096         # first reservation of a segment; doubled from there
    EMPTY_TAIL_PART = 2         # of the segment size: an empty last segment is left when it is so large
    REWRITE_MIN = 32768         # bytes of a segment that is worth to be written anew
    CODEC_MASK = 0xff00         # of a form: it is compressed
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # sequences behind it would begin again at 0
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


cdef class SegmentStore(SegmentReader):
    def __dealloc__(self):
        free(self.staging)
        free(self.removals)
        free(self.erasures)
        self.unearth()

    # -- message path ------------------------------------------------------------------------------------------
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil:
        cdef size_t length = RECORD_SIZE_MIN + m.subject_len + m.size
        cdef Segment* s = self.tail()
        cdef RecordHeader* h
        cdef Entry* e
        cdef char* p
        # A start would not believe a longer one, nor a higher sequence.
        if s == NULL or length > RECORD_SIZE_MAX or self.catalogue.last_seq >= SEQ_MAX:
            return 0
        if s.n and self.outgrown(s, length, ts):
            if self.begin_segment() != 0:
                return 0
            s = index_last(&self.catalogue.index)
        p = self.stage(length)
        if p == NULL:
            return 0
        e = self.catalogue.add_entry(s, m.subject, m.subject_len, m.header_len, m.size, ts)
        if e == NULL:
            return 0
        h = <RecordHeader*> p
        h.length = <uint32_t> length
        h.kind = KIND_MSG
        h.flags = 0
        h.subject_len = m.subject_len
        h.seq = self.catalogue.last_seq
        h.ts = ts
        h.header_len = m.header_len
        memcpy(p + RECORD_HEADER_SIZE, m.subject, m.subject_len)
        memcpy(p + RECORD_HEADER_SIZE + m.subject_len, m.body, m.size)
        self.chain = seal_record(p, length, self.chain)
        e.offset = <uint32_t> s.end
        s.end += length
        self.staged += length
        if self.staged_from == 0:
            self.staged_from = self.catalogue.last_seq
        return self.catalogue.last_seq

    cdef bint outgrown(self, Segment* s, size_t length, int64_t ts) noexcept nogil:
        """Whether a record of `length` bytes goes to the next segment: this one has no room, is old, or is newer."""
        return (s.end + length > self.segment_size or 0 < self.seal_age_ns < ts - s.first_ts
                or ts < s.entries[s.n - 1].ts)      # times inside a segment are in order

    cdef uint64_t skip(self) noexcept nogil:
        cdef uint64_t seq = StreamStore.skip(self)
        self.state_due = True
        return seq

    cdef int jump_to(self, uint64_t seq) noexcept nogil:
        if self.failed or self.seal() != 0:
            return -1
        self.catalogue.last_seq = seq - 1
        self.state_due = True
        return 0

    cdef int commit(self) noexcept nogil:
        if self.failed:
            return -1
        if self.leave_empty_tail() != 0:
            return -1
        if (self.n_removals or self.n_erasures) and self.stage_removals() != 0:
            return -1
        if self.state_due and self.stage_state() != 0:
            return -1
        if self.meta_due and self.catalogue.index.n and self.stage_meta() != 0:
            return -1
        if self.staged and self.write_staged() != 0:
            return -1
        self.n_removals = self.n_erasures = 0
        self.state_due = False
        if self.doomed_since:
            with gil:
                self.date_doomed()
        return 0

    cdef void date_doomed(self) noexcept:
        """Have the files that were doomed since the last commit go when this one is on the medium."""
        self.doomed_since = False
        self.doomed = [(mark or self.written_mark, path) for mark, path in self.doomed]

    # -- staging -----------------------------------------------------------------------------------------------
    cdef Segment* tail(self) noexcept nogil:
        cdef Segment* s = index_last(&self.catalogue.index)
        if self.failed:
            return NULL
        if s == NULL or s.sealed or s.base + s.n != self.catalogue.last_seq + 1:
            if self.begin_segment() != 0:
                return NULL
            s = index_last(&self.catalogue.index)
        return s

    cdef char* stage(self, size_t length) noexcept nogil:
        """Return room for a record of `length` bytes behind what is staged."""
        if self.staged and self.staged + length > STAGED_MAX and self.write_staged() != 0:
            return NULL
        if self.staged + length > self.staging_room \
                and grow_to(<void**> &self.staging, &self.staging_room, self.staged + length + STAGED_MAX, 1) != 0:
            return NULL
        return self.staging + self.staged

    cdef int stage_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil:
        """Stage a record that is no message."""
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
        cdef uint64_t[2] body
        cdef Segment* s
        body[0] = self.catalogue.first_seq
        body[1] = <uint64_t> self.catalogue.last_ts
        if self.stage_plain(KIND_STATE, 0, self.catalogue.last_seq, <char*> body, 16) != 0:
            return -1
        s = index_last(&self.catalogue.index)
        s.floor = max(s.floor, self.catalogue.first_seq)
        return 0

    cdef int stage_meta(self) noexcept nogil:
        cdef const char* meta
        cdef size_t size
        with gil:
            meta, size = <const char*> self.meta, len(self.meta)
        self.meta_due = False
        return self.stage_plain(KIND_META, 0, self.catalogue.last_seq, meta, size) if size else 0

    cdef int leave_empty_tail(self) noexcept nogil:
        """Go on in a new segment when the last one has become large and no message in it is left."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.live or s.end < self.segment_size // EMPTY_TAIL_PART or self.staged_from:
            return 0
        if self.catalogue.msgs == 0:
            self.clear_segments()
            return 0
        if self.begin_segment() != 0:
            return -1
        self.retire(self.catalogue.index.n - 2)
        return 0

    cdef int stage_removals(self) noexcept nogil:
        if self.stage_sequences(self.removals, self.n_removals, 0) != 0:
            return -1
        return self.stage_sequences(self.erasures, self.n_erasures, FLAG_ERASED)

    cdef int stage_sequences(self, uint64_t* seqs, size_t n, int flags) noexcept nogil:
        cdef size_t at = 0, some, i
        cdef Segment* s
        while at < n:
            some = n - at if n - at < REMOVALS_MAX else REMOVALS_MAX
            if self.stage_plain(KIND_DELETES, flags, self.catalogue.last_seq, <char*> (seqs + at), some * 8) != 0:
                return -1
            s = index_last(&self.catalogue.index)
            for i in range(at, at + some):
                if self.keep_removed(s, seqs[i] | (ERASED_BIT if flags else 0)) != 0:
                    return -1
            at += some
        return 0

    cdef int write_staged(self) noexcept nogil:
        cdef int failed = -1
        with gil:
            try:
                self.write_out()
                failed = 0
            except OSError as error:
                self.fail(error)
            except MemoryError:
                self.fail(OSError(errno.ENOMEM, "out of memory"))
            except BaseException as error:
                self.fail(OSError(0, repr(error)))
        return failed

    cdef int write_out(self) except -1:
        """Write what is staged behind the last segment's records, reserving the space first."""
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t end = self.written + self.staged, step
        path = self.path_of(s.number)
        fd = self.files.open(path)
        if end > self.allocated:
            step = self.allocated if self.allocated > ALLOCATE_MIN else ALLOCATE_MIN
            if self.allocated + step > self.segment_size and self.allocated < self.segment_size:
                step = self.segment_size - self.allocated
            if self.allocated + step < end:
                step = end - self.allocated
            try:
                if self.veil is None:
                    self.disk.allocate(fd, self.allocated, step)
                else:
                    self.disk.allocate(fd, 0, self.veil.file_size(self.allocated + step))
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
            self.allocated += step
        if self.veil is None:
            self.disk.write_at(fd, memoryview(<char[:self.staged]> self.staging), self.written)
        else:
            self.write_veiled(s, fd)
        self.written = end
        self.staged = 0
        self.staged_from = 0
        self.chain_written = self.chain
        self.written_mark += 1
        self.wrote(path)
        return 0

    cdef int wrote(self, str path) except -1:
        """Note that an open file has bytes that the next sync has to cover."""
        self.files.wrote(path)
        if path not in self.unsynced:
            self.unsynced.append(path)
        return 0

    cdef bint is_growing(self, Segment* s) noexcept nogil:
        """Whether records are appended to `s`."""
        return not s.sealed and s == index_last(&self.catalogue.index)

    cdef int write_veiled(self, Segment* s, int fd) except -1:
        """Write what is staged, encrypted; a view that has the end of what was written takes it as it is."""
        cdef View view = self.views.get(s.number)
        data, at = self.veil.written(memoryview(<char[:self.staged]> self.staging), self.written)
        self.disk.write_at(fd, data, at)
        if view is not None:
            view.put(self.staging, self.written, self.staged)
        return 0

    def cut(self, mark=False, unsynced=True) -> None:
        """Cut the file of the last segment behind its records; `mark`: what stands there may be no whole write.

        Raises:
            OSError: it keeps the space behind them.
        """
        path = self.path_of(index_last(&self.catalogue.index).number)
        fd = self.files.open(path)
        if unsynced:
            self.wrote(path)
        if self.veil is None:
            self.disk.truncate(fd, self.written)
            return
        size = self.veil.file_size(self.written)
        if mark:
            self.disk.truncate(fd, size - 1)
            self.disk.write_at(fd, self.veil.mark, size - 1)
        else:
            self.disk.truncate(fd, size)

    cdef void fail(self, object error) noexcept:
        """Refuse appends from now on, and forget what did not get into the file."""
        self.error = StoreFailed(self.directory, error.strerror or str(error))
        self.resumable = error.errno in NO_SPACE or error.errno in UNOPENED
        self.failed = True
        self.mended = True
        self.forget_staged()
        self.log.error(f"Store of {self.directory} refuses messages: {error}; "
                       + ("it goes on when there is room again" if self.resumable else "restart to recover it"))

    cdef void forget_staged(self) noexcept nogil:
        """Take back the messages that were staged; their sequences stay used."""
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t seq = self.staged_from
        self.staged = 0
        self.staged_from = 0
        self.state_due = self.meta_due = True
        if s == NULL:
            return
        while seq and seq <= self.catalogue.last_seq:
            if seq >= s.base and seq < s.base + s.n and not is_dead(s, <uint32_t> (seq - s.base)):
                self.catalogue.unlink(s, <uint32_t> (seq - s.base))
            seq += 1
        s.end = self.written
        self.chain = self.chain_written
        if self.written == 0:           # not even its header is in the file
            with gil:
                self.doom(s)
            self.catalogue.index.n -= 1
            self.keep_buried(s)         # who asked for the write may hold it
            # The last segment is the sealed one before, all of which is in its file.
            self.written = self.allocated = index_last(&self.catalogue.index).end if self.catalogue.index.n else 0

    # -- segments ----------------------------------------------------------------------------------------------
    cdef int begin_segment(self) noexcept nogil:
        cdef int failed = -1
        if self.failed or self.seal() != 0:
            return -1
        with gil:
            try:
                self.new_segment()
                failed = 0
            except OSError as error:
                self.fail(error)
            except MemoryError:
                self.fail(OSError(errno.ENOMEM, "out of memory"))
            except BaseException as error:
                self.fail(OSError(0, repr(error)))
        return failed

    cdef int new_segment(self) except -1:
        cdef Segment* s = segment_new(self.catalogue.last_seq + 1, self.next_number)
        if self.left and self.catalogue.index.n and (self.indexed != self.written or self.stored_tail is not None):
            self.unindexed.append(self.without_index(index_last(&self.catalogue.index), False))
        if s == NULL or index_push(&self.catalogue.index, s) != 0:
            raise MemoryError
        self.written = self.allocated = self.staged = self.indexed = 0
        self.stored_tail = None
        self.next_number += 1
        self.files.open(self.path_of(s.number), create=True)
        s.last_ts = self.catalogue.last_ts
        self.names_unsynced = True
        self.left = False
        self.veil = None if self.key is None else TailVeil(self.key, s.base, s.number, self.incarnation, self.meta)
        s.form = 0 if self.key is None else self.veil.flags
        write_segment_header(self.stage(SEGMENT_HEADER_SIZE), s.base, s.number, self.incarnation)
        self.chain = self.chain_written = stored_checksum(self.staging, SEGMENT_HEADER_SIZE)
        self.staged = s.end = SEGMENT_HEADER_SIZE
        self.stage_meta()
        return 0

    cdef int seal(self) noexcept nogil:
        """Close the last segment: a footer, and nothing is ever appended again."""
        cdef Segment* s = index_last(&self.catalogue.index)
        cdef uint64_t[6] body
        cdef bint footer
        if s == NULL or s.sealed:
            return 0
        body[0] = s.base
        body[1] = s.base + s.n - 1
        body[2] = s.n
        body[3] = <uint64_t> (s.entries[0].ts if s.n else 0)
        body[4] = <uint64_t> s.last_ts
        body[5] = s.end
        footer = s.base + s.n == self.catalogue.last_seq + 1
        if footer:
            self.stage_plain(KIND_FOOTER, 0, self.catalogue.last_seq, <char*> body, 48)
            if self.failed:
                return -1
        if self.staged and self.write_staged() != 0:
            return -1
        s.sealed = True
        with gil:
            try:
                self.cut()
            except OSError as error:
                self.log.warn(f"{self.path_of(s.number)} keeps its reserved space: {error}")
            self.unindexed.append(self.without_index(s, footer))
        self.note_form(s)
        return 0

    def set_meta(self, bytes meta) -> None:
        """Keep the stream's metadata in every segment from now on, and in the last one with the next commit."""
        self.meta_due = self.meta != b"" and meta != self.meta
        self.meta = meta

    @property
    def last_checksum(self) -> int:
        """The checksum of the last record, to which all before it are chained."""
        return self.chain

    def segment_paths(self) -> list:
        """Return the files of the live segments, oldest first."""
        cdef size_t at
        paths = []
        for at in range(self.catalogue.index.n):
            paths.append(self.path_of(self.catalogue.index.segments[at].number))
        return paths

    def sealed_numbers(self) -> list:
        """Return the numbers of the segments that grow no more and in which no damage is known, oldest first."""
        cdef size_t at
        cdef Segment* s
        numbers = []
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            if s.sealed and not s.examined:
                numbers.append(s.number)
        return numbers

    cdef FullSegment without_index(self, Segment* s, bint footer):
        """Take down what the index file of the last segment needs."""
        cdef bint whole = not self.mended and not s.examined
        return full_segment(self.catalogue, self.key, self.path_of(s.number), s, footer, self.incarnation, self.chain,
                            whole)

    cdef void note_form(self, Segment* s) noexcept nogil:
        """Have a sealed segment written in the form that the stream wants, unless it is."""
        with gil:
            wanted = self.codec | (self.key.algorithm if self.key is not None else 0)
            if s.sealed and s.form != wanted and wanted & ~s.form and s.number not in self.formless:
                self.formless.append(s.number)

    def mend_tail(self) -> None:
        """Put the checksum in front of the next record again: the last segment was cut, and what follows needs it."""
        cdef Segment* s = index_last(&self.catalogue.index)
        try:
            at, shift = self.written - CHECKSUM_SIZE, 0
            checksum = self.chain_written.to_bytes(CHECKSUM_SIZE, "little")
            if s.form:                  # what stood there was the same, so the key stream tells nothing
                checksum, shift = self.veil.stream.apply(checksum, at), self.veil.shift
            path = self.path_of(s.number)
            self.disk.write_at(self.files.open(path), checksum, at + shift)
            self.wrote(path)
        except OSError as error:
            self.log.error(f"{self.path_of(s.number)}: what comes next may be taken for damage: {error}")
        self.state_due = True           # the lost sequences stay used

    # -- removals ----------------------------------------------------------------------------------------------
    cdef void forget(self, Segment* s, uint32_t i, bint erase) noexcept nogil:
        cdef uint64_t seq = s.base + i
        if self.recovering:
            return
        if erase and self.record_erasure(seq) == 0:
            with gil:
                self.overwrite(s, i)
        if self.catalogue.first_seq > seq:
            self.state_due = True
        elif not erase:
            self.note_removal(seq, False)
        self.note_sparse(s)

    cdef int record_erasure(self, uint64_t seq) noexcept nogil:
        """Have a file say that a message is removed, before it is overwritten: a kill may come between."""
        if self.note_removal(seq, True) != 0:
            return -1
        if self.stage_sequences(self.erasures, self.n_erasures, FLAG_ERASED) != 0 or self.write_staged() != 0:
            return -1
        self.n_erasures = 0
        return 0

    cdef void note_sparse(self, Segment* s) noexcept nogil:
        """Have a segment written anew of which less than half is left."""
        cdef uint64_t left = s.live_bytes + s.live * (RECORD_SIZE_MIN - self.catalogue.overhead)
        if s.sealed and s.live and not s.sparse and not s.examined and s.end > REWRITE_MIN and left * 2 < s.end:
            s.sparse = True
            with gil:
                self.sparse.append(s.number)

    cdef int note_removal(self, uint64_t seq, bint erased) noexcept nogil:
        if erased:
            if grow(<void**> &self.erasures, &self.erasures_room, self.n_erasures + 1, 8) != 0:
                return -1
            self.erasures[self.n_erasures] = seq
            self.n_erasures += 1
            return 0
        if grow(<void**> &self.removals, &self.removals_room, self.n_removals + 1, 8) != 0:
            return -1
        self.removals[self.n_removals] = seq
        self.n_removals += 1
        return 0

    cdef int keep_removed(self, Segment* s, uint64_t seq) noexcept nogil:
        """Remember that the removal of `seq` is recorded in the file of `s`."""
        if grow(<void**> &s.removed, &s.removed_room, s.n_removed + 1, 8) != 0:
            return -1
        s.removed[s.n_removed] = seq
        s.n_removed += 1
        return 0

    cdef void overwrite(self, Segment* s, uint32_t i) noexcept:
        """Replace headers and payload of entry i by zeros in the file; its checksum stays, for the chain."""
        cdef Entry* e = &s.entries[i]
        cdef uint64_t at
        at = <uint64_t> e.offset + RECORD_HEADER_SIZE + e.subject_len
        self.outdate_rewrite(s.number)
        try:
            if s.form & CODEC_MASK:
                self.unpack(s)
            path = self.path_of(s.number)
            fd = self.files.open(path)
            self.wrote(path)
            if s.form:
                self.overwrite_veiled(fd, s, e, at)
            else:
                self.disk.write_at(fd, bytes([FLAG_ERASED]), <uint64_t> e.offset + 5)
                self.disk.write_at(fd, bytes(e.size), at)
            self.written_mark += 1
        except (OSError, CorruptRecord, Locked) as error:
            self.log.error(f"{self.path_of(s.number)}: message {s.base + i} is removed but its bytes "
                           f"could not be overwritten: {error}")

    cdef int unpack(self, Segment* s) except -1:
        """Keep a compressed segment as its image again, so that a message in it can be overwritten."""
        s.form = restore_plain(self.disk, self.path_of(s.number), self.key, self.meta)
        self.files.close(self.path_of(s.number))        # it is of the file before
        self.forget_map(s)
        self.names_unsynced = True
        self.note_form(s)
        return 0

    cdef int overwrite_veiled(self, int fd, Segment* s, Entry* e, uint64_t at) except -1:
        """Overwrite a message of an encrypted segment, whose file is open as `fd`.

        Zeros are written as they are: the key stream must not be seen, so what they decrypt to is noise.
        """
        form = self.veil if self.is_growing(s) else None
        if form is None:                # also of the last one during a start
            form = open_image(self.disk, self.path_of(s.number), fd, self.key)
        flag = form.stream.apply(bytes([FLAG_ERASED]), <uint64_t> e.offset + 5)
        self.disk.write_at(fd, flag, <uint64_t> e.offset + 5 + form.shift)
        self.disk.write_at(fd, bytes(e.size), form.shift + at)
        if s.data != NULL and s.filled != NULL and at + e.size <= s.map_size:
            memset(<char*> s.data + at, 0, e.size)
            (<char*> s.data)[e.offset + 5] = FLAG_ERASED
        return 0

    cdef void retire(self, size_t at) noexcept nogil:
        cdef Segment* s = self.catalogue.index.segments[at]
        cdef uint32_t i
        cdef Segment* other
        if at > 0:                      # removals in older segments are recorded here: record them anew
            for i in range(s.n_removed):
                other = index_find(&self.catalogue.index, s.removed[i] & ~ERASED_BIT)
                if other != NULL and other != s:
                    self.note_removal(s.removed[i] & ~ERASED_BIT, s.removed[i] & ERASED_BIT != 0)
        with gil:
            self.doom(s)
        index_remove(&self.catalogue.index, at)
        self.bury(s)

    cdef void bury(self, Segment* s) noexcept nogil:
        """Free a segment: now, or when the sync that is on its way has ended."""
        cdef bint busy
        with gil:
            busy = self.in_flight is not None
        if not busy:
            segment_free(s, 0)
        else:
            self.keep_buried(s)

    cdef void keep_buried(self, Segment* s) noexcept nogil:
        """Free a segment when the sync that is on its way, or the next one, has ended."""
        if grow(<void**> &self.buried, &self.buried_room, self.n_buried + 1, sizeof(Segment*)) != 0:
            return                      # out of memory: rather lost than read when it is not ours
        self.buried[self.n_buried] = s
        self.n_buried += 1

    cdef void unearth(self) noexcept nogil:
        cdef size_t i
        for i in range(self.n_buried):
            segment_free(self.buried[i], 0)
        free(self.buried)
        self.buried = NULL
        self.n_buried = self.buried_room = 0

    cdef void clear_segments(self) noexcept nogil:
        cdef size_t i
        with gil:
            for i in range(self.catalogue.index.n):
                self.doom(self.catalogue.index.segments[i])
        for i in range(self.catalogue.index.n):
            self.bury(self.catalogue.index.segments[i])
        self.catalogue.index.n = 0
        index_free(&self.catalogue.index, 0)
        self.staged = self.written = self.allocated = 0
        self.staged_from = 0
        self.n_removals = self.n_erasures = 0
        self.state_due = True

    cdef bint keeps_few(self, uint64_t seq) noexcept nogil:
        return not self.recovering and StreamStore.keeps_few(self, seq)

    cdef void part_from_first(self, size_t n, Remains remains) noexcept:
        cdef size_t i
        for i in range(n):
            self.doom(self.catalogue.index.segments[i])
        if self.in_flight is not None:          # who syncs may read them
            for i in range(n):
                self.keep_buried(self.catalogue.index.segments[i])
                self.catalogue.index.segments[i] = NULL
        self.state_due = True
        StreamStore.part_from_first(self, n, remains)

    cdef void doom(self, Segment* s) noexcept:
        """Have the file of `s` removed once the next commit is on the medium.

        Not the next write: what is staged may be written before, without the records that make the file superfluous.
        """
        self.doomed.append((0, self.path_of(s.number)))
        self.doomed_since = True
        self.outdate_rewrite(s.number)
        self.unindexed = [full for full in self.unindexed if full.number != s.number]
        self.forget_map(s)
        if s.locals != NULL:
            self.index_maps.pop(s.number, None)
        if self.path_of(s.number) not in self.unsynced:
            self.files.close(self.path_of(s.number))
        self.state_due = True

    def outdate_rewrite(self, uint32_t number) -> None:
        """Note that a segment changed in a way that its new file, if one is being written, does not know of."""
        for job in (self.rewriting, self.rewritten, self.recasting):
            if job is not None and job.number == number:
                job.stale = True
