"""The store of file streams: its parts, and the order of their effects.

    catalogue   the index of the messages           files       the directory, its unsynced files and names
    writer      appends, seals                      reader      finds records
    maps        memory of segments that are read    syncs       sync jobs, and the last durable commit
    retired     files that wait to be removed       compactor   rewrites segments
    examiner    reads damaged segments whole        eraser      overwrites removed messages
    condition   the state: whether messages are accepted

Group commit: `begin_sync` returns a job that any thread may run, `finish_sync` handles its result. Upkeep works in
the same way: `begin_upkeep` returns a job that removes files or compacts a segment. A failed store refuses appends:
permanently or, after a full disk or a lack of descriptors, until `try_resume` succeeds.

Removing messages from the front changes `first_seq`, which one STATE record per commit records. One DELETES
record per commit lists the sequences that were removed elsewhere. A segment without live messages is removed
as soon as the records that make it superfluous are durable. docs/storage-format.md describes the layout, and
store/segment/recovery describes the rules of a recovery.

This module knows nothing of streams and threads. Compiled: benchmarks/, JetStream async publish.
Long because recovery, message path, syncs and close use the same parts.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.file.condition cimport STORE_CLOSED, STORE_FULL, STORE_RECOVERING, STORE_SYNC_LOST
from pyjs.store.index.sequences cimport (
    Entry, Found, index_at, index_find, index_free, index_last, index_place, index_remove, is_dead,
)
from pyjs.store.file.examiner cimport Losses
from pyjs.store.format.record cimport CHECKSUM_SIZE, STEPS_VERSION
from pyjs.store.index.dropped cimport Remains
from pyjs.store.segment.contents cimport ERASED_BIT
from pyjs.store.file.segment_reader cimport TRUST_ALL, TRUST_NONE, TRUST_NOTHING, TRUST_READER
from pyjs.store.file.segment_writer cimport ALL_MARKED, IN_ENTRY, NOT_REPLICATED, PARTS_ADDED, STAGED_MAX
from pyjs.store.segment.entry_mark cimport MARK_SIZE_MAX, EntryMark
from pyjs.store.segment.index_file cimport FullSegment
from pyjs.store.segment.rewrite cimport SegmentRewrite, missing_of, rewrite_of
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.store cimport Record, fill_record
from pyjs.wire.ops cimport Msg

from pyjs.base.bounds import INT64
from pyjs.base.disk import write_file
from pyjs.base.errors import NotNow, StoreFailed
from pyjs.store.file.start import StoreStart
from pyjs.store.format.layout import HEALING
from pyjs.store.segment.entry_mark import cut_steps
from pyjs.store.segment.recorded_ids import headers_steps
from pyjs.store.open_files import Release
from pyjs.store.segment.index_file import index_segments, small_index

cdef enum:
    CODEC_MASK = 0xff00    # bits of `encoding` for the compression
    LOST_MAX = 1048576     # maximum number of sequences that may have been lost between two segments
    # an open segment without live messages is left when at least 1 / EMPTY_TAIL_PART of it is used
    EMPTY_TAIL_PART = 2
cdef int64_t NEVER = INT64.high


def healed_index(files) -> int:
    """Return the index of the entry at which a copy of lost messages ended.

    Return 0 if there was no copy, or NEVER if the copy has not ended.
    """
    try:
        return int(files.disk.read_file(f"{files.directory}/{HEALING}") or NEVER)
    except FileNotFoundError:
        return 0
    except ValueError:
        return NEVER


cdef bint may_renumber(FileStore store, Segment* s) noexcept:
    """Return whether the entries of `s` may get other subject ids.

    They may not if the entries are in a map. They also may not if `s` was sealed before the running sync began, since
    the sync may read the entries.
    """
    cdef FullSegment full
    if s.locals != NULL:
        return False
    if not s.sealed or store.syncs.in_flight is None:
        return True
    for full in store.syncs.unindexed:
        if full.number == s.number:
            return True
    return False


cdef class FileStore(StreamStore):
    def __init__(self, disk, str directory, log, uint64_t segment_size=8388608, uint64_t incarnation=0,
                 key=None, bint recovered=True, files=None, stored_tail=None, views=None,
                 uint64_t replicated=0) -> None:
        self.catalogue = Catalogue(30, 4)
        self.files = SegmentFiles(disk, directory, log, incarnation, key, files)
        self.condition = StoreCondition()
        self.syncs = StoreSync(self.files)
        self.maps = SegmentMaps(self.catalogue, views)
        self.retired = RetiredFiles(self.files, self.syncs)
        damaged = {}
        self.compactor = Compactor(self.catalogue, self.files, self.condition, self.syncs, self.maps, self.retired,
                                   damaged)
        self.writer = SegmentWriter(self.catalogue, self.files, self.condition, self.syncs, self.compactor,
                                    segment_size, stored_tail)
        self.group = replicated
        self.writer.entries = ALL_MARKED if replicated else NOT_REPLICATED
        self.writer.mark = EntryMark(0, 0, 0, b"", replicated, 0)
        self.reader = SegmentReader(self.writer)
        self.examiner = Examiner(self.reader, damaged, bool(replicated))
        self.eraser = Eraser(self.writer)
        self.set_aside = []
        if recovered:
            for _ in self.recover_steps():
                pass

    def recover_steps(self):
        """Read the directory, one segment in each step; before the last step only `release` may be called.

        Damage is logged and counted.

        Raises, at any step:
            OSError, UnknownFormat, Locked, CorruptRecord, MemoryError: the files cannot be read.
        """
        mark, erased = None, set()
        if self.group:
            mark, changed, erased = yield from cut_steps(self.files, self.group)
            self.take_mark(mark)
            self.healing = self.applied_index < healed_index(self.files)
            if self.writer.stored_tail is not None and self.writer.stored_tail[0] in changed:
                self.writer.stored_tail = None      # it has messages that were cut off
        self.set_aside = yield from StoreStart(self, self.writer, self.examiner, self.eraser, erased).steps()
        if self.group and mark is None and self.catalogue.index.n:
            self.replicate(self.group)

    cdef int take_mark(self, EntryMark mark) except -1:
        """Continue after the entry of the last mark; `mark` is None if no entry was applied."""
        if mark is not None:
            StreamStore.end_entry(self, mark.index, mark.term, mark.ns, mark.last_id)
            self.ids_from = mark.ids_from
            self.steps.load(mark.steps, mark.ns)
            self.files.version = STEPS_VERSION if self.steps.count else 0
            self.writer.mark, self.writer.staged_index, self.writer.kept_index = mark, mark.index, mark.index
            self.files.ids_from = 0    # until the first entry sets the duplicate window, all headers are kept
        return 0

    def headers_steps(self, int64_t from_ns):
        """Yield between steps; return (sequence, time, headers) of each message since `from_ns`, even if removed."""
        return (yield from headers_steps(self.files, from_ns))

    def keep_headers(self) -> None:
        """Keep the headers of removed messages until an entry sets a limit; call this before a replica is copied."""
        self.files.ids_from = 0

    def replicate(self, uint64_t group) -> None:
        """Record the marks of applied entries of `group` from now on."""
        if group != self.group and self.files.disk.exists(f"{self.files.directory}/{HEALING}"):
            self.files.disk.unlink(f"{self.files.directory}/{HEALING}")         # left by an earlier group
        StreamStore.replicate(self, group)
        self.examiner.keeps = True
        self.synced_index = self.syncing_index = 0
        self.writer.entries, self.writer.mark = ALL_MARKED, EntryMark(0, 0, 0, b"", group, 0)
        self.writer.staged_index = self.writer.kept_index = 0
        self.writer.begin_segment()     # in this new segment, a mark precedes the first message

    # -- state -------------------------------------------------------------------------------------------------
    @property
    def failed(self) -> bool:
        """Whether appends are refused; `error` is then the reason."""
        return self.condition.refuses()

    @property
    def error(self):
        """The error that publishers get while appends are refused; None if the store has not failed."""
        return self.condition.error

    @property
    def closed(self) -> bool:
        """Whether the files are closed."""
        return self.condition.state == STORE_CLOSED

    @property
    def resumable(self) -> bool:
        """Whether the store failed for lack of space or descriptors, so that it may work again later."""
        return self.condition.state == STORE_FULL

    @property
    def sync_lost(self) -> bool:
        """Whether a sync failed; after that, a successful sync proves nothing."""
        return self.condition.state == STORE_SYNC_LOST

    def try_resume(self) -> bool:
        """Try to accept appends again after a lack of space or descriptors; return whether appends are accepted.

        This needs a successful probe write. The store of a replica does not resume here: it needs a recovery.
        """
        if self.condition.state != STORE_FULL:
            return not self.condition.refuses()
        if self.group:    # a replica lacks the effects that could not be written: only a recovery restores them
            return False
        probe, disk = f"{self.files.directory}/.probe", self.files.disk
        try:
            fd = disk.open_file(probe, create=True)
            try:
                disk.allocate(fd, 0, STAGED_MAX)
                disk.sync_file(fd)
            finally:
                disk.close_file(fd)
                disk.unlink(probe)
            self.writer.drop_rest()
        except OSError:
            return False
        self.condition.resume()
        self.files.log.info(f"Store of {self.files.directory} takes messages again")
        return True

    # -- message path ------------------------------------------------------------------------------------------
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil:
        return self.writer.append(m, ts)

    cdef int begin_batch(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        return self.writer.begin_batch(count, size, ts)

    cdef void end_batch(self) noexcept nogil:
        self.writer.end_batch()

    cdef void drop_batch(self) noexcept nogil:
        self.writer.drop_batch()

    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        return self.writer.begin_parts(count, size, ts)

    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil:
        return self.writer.put_part(m, seq, ts, last)

    cdef int flush_parts(self) noexcept nogil:
        return self.writer.flush_parts()

    cdef void add_parts(self) noexcept nogil:
        self.writer.parts = PARTS_ADDED

    cdef void end_parts(self) noexcept nogil:
        self.writer.end_parts()

    cdef void drop_parts(self) noexcept nogil:
        self.writer.drop_parts()

    def expect_step(self) -> None:
        """Continue in a segment whose marks may have clock steps. Call this before `begin_entry`."""
        self.writer.expect_step()

    cdef int begin_entry(self, uint64_t size) except -1:
        return self.writer.begin_entry(size)

    cdef int end_entry(self, uint64_t index, uint64_t term, int64_t ns, bytes last_id) except -1:
        self.writer.end_entry(EntryMark(index, term, ns, last_id, self.group, self.ids_from,
                                        self.steps.encode()))
        self.files.ids_from = self.ids_from if self.has_ids else NEVER
        return StreamStore.end_entry(self, index, term, ns, last_id)

    cdef Segment* tail(self) noexcept nogil:
        return self.writer.tail()

    cdef uint64_t skip(self) noexcept nogil:
        cdef uint64_t seq = StreamStore.skip(self)
        self.writer.state_due = True
        return seq

    cdef int jump_to(self, uint64_t seq) noexcept nogil:
        return self.writer.jump_to(seq)

    cdef int commit(self) noexcept nogil:
        if self.condition.refuses():
            return -1
        return -1 if self.leave_empty_tail() != 0 else self.writer.commit()

    cdef int leave_empty_tail(self) noexcept nogil:
        """Continue in a new segment if the open one has no live messages and a large part of it is used."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.live or s.end < self.writer.segment_size // EMPTY_TAIL_PART or self.writer.staged_from \
                or self.writer.entries == IN_ENTRY:
            return 0
        if self.catalogue.msgs == 0:
            self.clear_segments()
            return 0
        if self.writer.begin_segment() != 0:
            return -1
        self.retire(self.catalogue.index.n - 2)
        return 0

    cdef int load(self, uint64_t seq, Record* r) noexcept nogil:
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        cdef const char* p = NULL
        cdef Entry* e
        cdef uint32_t length = 0
        cdef int failed
        if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
            return -1
        failed = self.find(s, <uint32_t> (seq - s.base), &p, TRUST_NONE)
        if failed:
            return failed
        e = &s.entries[seq - s.base]
        memcpy(&length, p, sizeof(length))
        fill_record(r, e, seq, p + length - CHECKSUM_SIZE - e.size - e.subject_len)    # after the term and the index
        return 0

    def get_checked(self, uint64_t seq):
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        cdef const char* p = NULL
        cdef int failed
        if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
            return None
        failed = self.find(s, <uint32_t> (seq - s.base), &p, TRUST_NOTHING)
        if failed == -3:
            raise NotNow(f"message {seq} cannot be read now")
        return None if failed else self.copy_out(seq)

    def read_ahead(self, uint64_t seq, uint64_t size) -> None:
        self.reader.read_ahead(seq, size)

    cdef int find_stored(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        return self.find(s, i, p, TRUST_NONE)

    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        return self.find(s, i, p, TRUST_READER)

    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil:
        """Find a record; if it is damaged, examine its segment.

        Return 0 if the record was found, -2 if it is damaged or unreadable, or -3 if a later call may find it.
        """
        cdef int found = self.reader.find(s, i, p, trust)
        if found <= 0:
            return found
        found = self.examiner.examine(s.base + i)
        if found == 0:
            found = -2 if is_dead(s, i) else self.reader.find(s, i, p, TRUST_ALL)
        return -2 if found > 0 else found

    # -- damage ------------------------------------------------------------------------------------------------
    @property
    def lost(self):
        """The number of lost messages, the sequences of the first ones, and the number of damaged bytes.

        None means that no damage was found.
        """
        cdef Losses losses = self.examiner.losses
        return (losses.msgs, losses.seqs, losses.bytes) if losses.msgs or losses.bytes else None

    @property
    def mistaken(self) -> bool:
        """Whether an index file was wrong; messages that look damaged cannot be read until the store is reopened."""
        return self.examiner.mistaken

    def lost_seqs(self) -> list:
        """Return the sequences of all messages that may have been lost.

        If segments were set aside, these include the sequences between the other segments.
        """
        cdef size_t at
        cdef uint64_t begin, end
        if self.lost is None and not self.healing:
            return []
        found = list(self.examiner.losses.every)
        if self.set_aside:              # the contents of segments that were set aside are unknown
            for at in range(1, self.catalogue.index.n):
                begin = self.catalogue.index.segments[at - 1].base + self.catalogue.index.segments[at - 1].n
                end = self.catalogue.index.segments[at].base
                found.extend(range(begin, min(end, begin + LOST_MAX)))
        return found

    def ranges(self) -> list:
        """Return (number, first sequence, last sequence) of the segments, oldest first."""
        cdef size_t at
        cdef Segment* s
        found = []
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            found.append((s.number, s.base, s.base + s.n - 1))
        return found

    def damaged_numbers(self, uint64_t first_seq) -> list:
        """Return the numbers of the segments in which damage was found and messages were dropped.

        If `first_seq` is not 0, include the segments with a STATE record whose first_seq is higher than `first_seq`.
        """
        cdef Segment* s
        cdef size_t at
        numbers = set()
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            if s.examined or 0 < first_seq < s.floor:
                numbers.add(s.number)
        for seq in self.examiner.losses.every:
            s = index_find(&self.catalogue.index, seq)
            if s != NULL:
                numbers.add(s.number)
        return sorted(numbers)

    def begin_healing(self) -> None:
        """Record durably that this replica lacks messages; call this before any repair. Raises OSError."""
        if not self.healing:
            write_file(self.files.disk, f"{self.files.directory}/{HEALING}", [b""])
            self.files.disk.sync_dir(self.files.directory)
            self.healing = True

    def end_healing(self) -> None:
        """Record durably that all lost messages are restored as of the current entry. Raises OSError.

        If a later start has to continue after an earlier entry, it repairs the replica again. Index files without a
        segment are removed, since the losses that they would report are repaired.
        """
        disk, directory = self.files.disk, self.files.directory
        if not disk.exists(f"{directory}/{HEALING}"):
            return
        names = set(disk.list_dir(directory))
        for name in names:
            if name.endswith(".idx") and f"{name[:-4]}.seg" not in names:
                disk.unlink(f"{directory}/{name}")
        disk.sync_dir(directory)
        write_file(disk, f"{directory}/{HEALING}.new", [b"%d" % self.applied_index])
        disk.rename(f"{directory}/{HEALING}.new", f"{directory}/{HEALING}")
        disk.sync_dir(directory)
        self.healing = False

    def restoration(self, uint32_t number, dict records not None, uint64_t first_seq):
        """Return a job that adds lost messages to a segment, or writes a missing segment; run the job after `close`.

        Then rename the new file over the old one, and open the store again. `records` maps sequences to records. The
        first_seq in the new file is at most `first_seq`.
        """
        cdef SegmentRewrite job
        cdef size_t at = index_place(&self.catalogue.index, number)
        cdef char[MARK_SIZE_MAX] mark
        cdef Segment* s
        cdef SegmentFiles files = self.files
        path, codec = files.path_of(number), self.compactor.codec
        if at == self.catalogue.index.n:
            return missing_of(files.disk, path, number, min(records), max(records), files.incarnation, files.meta,
                              files.key, records, mark[:self.writer.mark.write(mark)])
        s = self.catalogue.index.segments[at]
        job = rewrite_of(files.disk, path, s, files.incarnation, 0, files.meta, files.key,
                         codec or s.encoding & CODEC_MASK, records)
        job.floor = min(job.floor, first_seq)
        return job

    def range_of(self, uint32_t number) -> tuple:
        """Return the first and the last sequence of a segment, or (1, 0) if there is no such segment."""
        cdef size_t at = index_place(&self.catalogue.index, number)
        cdef Segment* s
        if at == self.catalogue.index.n:
            return 1, 0
        s = self.catalogue.index.segments[at]
        return s.base, s.base + s.n - 1

    def seal_damaged(self, uint32_t number) -> bool:
        """Seal a damaged segment if it is open, by continuing in a new one; return whether it is sealed."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s == NULL or s.number != number:
            return True
        if self.condition.refuses() or self.writer.entries == IN_ENTRY or self.writer.part_at \
                or self.writer.batching or self.commit() != 0:
            return False
        s = index_last(&self.catalogue.index)
        if s == NULL or s.number != number:
            return True
        if self.writer.begin_segment() != 0:
            return False
        self.syncs.forget_index(number)         # it would be written from the damaged file
        return self.commit() == 0

    # -- removals ----------------------------------------------------------------------------------------------
    cdef void forget(self, Segment* s, uint32_t i, bint erase) noexcept nogil:
        cdef uint64_t seq = s.base + i
        if self.condition.state == STORE_RECOVERING:
            return
        if erase and self.writer.record_erasure(seq) == 0:
            with gil:
                self.eraser.overwrite(s, i)
        if self.catalogue.first_seq > seq:
            self.writer.state_due = True
        elif not erase:
            self.writer.note_removal(seq, False)
        self.compactor.note_sparse(s)

    cdef void forget_found(self, Segment* s, Found* found, Remains remains) noexcept nogil:
        cdef uint32_t k = 0
        while k < found.n and s.base + found.entries[k] < self.catalogue.first_seq:
            k += 1
        self.writer.state_due |= k > 0
        self.writer.note_removals(s.base, found, k)
        self.compactor.note_sparse(s)

    cdef void retire(self, size_t at) noexcept nogil:
        self.retired.free_segment(self.take_out(at))

    cdef void retire_to(self, size_t at, Remains remains) noexcept nogil:
        self.retired.hand_over(self.take_out(at), remains)

    cdef Segment* take_out(self, size_t at) noexcept nogil:
        """Retire the file of segment `at`, and remove the segment from the index."""
        cdef Segment* s = self.catalogue.index.segments[at]
        cdef uint32_t i
        cdef Segment* other
        if at > 0:                      # its file records removals in older segments: record them again
            for i in range(s.n_removed):
                other = index_find(&self.catalogue.index, s.removed[i] & ~ERASED_BIT)
                if other != NULL and other != s:
                    self.writer.note_removal(s.removed[i] & ~ERASED_BIT, s.removed[i] & ERASED_BIT != 0)
        with gil:
            self.give_up(s)
        index_remove(&self.catalogue.index, at)
        return s

    cdef void give_up(self, Segment* s) noexcept:
        """Retire the file of `s`: it is removed when the records that make it superfluous are durable."""
        self.compactor.give_up(s)
        self.writer.state_due = True

    cdef void clear_segments(self) noexcept nogil:
        cdef size_t i
        with gil:
            for i in range(self.catalogue.index.n):
                self.give_up(self.catalogue.index.segments[i])
        for i in range(self.catalogue.index.n):
            self.retired.free_segment(self.catalogue.index.segments[i])
        self.catalogue.index.n = 0
        index_free(&self.catalogue.index)
        self.writer.forget_removals()

    cdef bint keeps_few(self, uint64_t seq) noexcept nogil:
        cdef size_t at = index_at(&self.catalogue.index, seq)
        if not StreamStore.keeps_few(self, seq):
            return False
        with gil:
            while at < self.catalogue.index.n:
                if not may_renumber(self, self.catalogue.index.segments[at]):
                    return False
                at += 1
        return True

    cdef void keep_from(self, uint64_t seq) noexcept:
        cdef FullSegment full
        cdef size_t at
        StreamStore.keep_from(self, seq)
        for full in self.syncs.unindexed:   # dead entries have the old ids of subjects: read the segment instead
            full.entries = NULL
        for at in range(self.catalogue.index.n):
            self.compactor.note_sparse(self.catalogue.index.segments[at])

    cdef void part_from_first(self, size_t n, Remains remains) noexcept:
        cdef size_t i
        for i in range(n):
            self.give_up(self.catalogue.index.segments[i])
        if self.syncs.in_flight is not None:        # the running sync may still read the entries
            for i in range(n):
                self.retired.keep(self.catalogue.index.segments[i])
                self.catalogue.index.segments[i] = NULL
        self.writer.state_due = True
        StreamStore.part_from_first(self, n, remains)

    # -- segments ----------------------------------------------------------------------------------------------
    @property
    def last_checksum(self) -> int:
        """The checksum of the last record; by the chain, this checksum covers all earlier records too."""
        return self.writer.chain

    def segment_paths(self) -> list:
        """Return the paths of the segments in the index, oldest first."""
        cdef size_t at
        paths = []
        for at in range(self.catalogue.index.n):
            paths.append(self.files.path_of(self.catalogue.index.segments[at].number))
        return paths

    def sealed_numbers(self) -> list:
        """Return the numbers of the sealed segments without known damage, oldest first."""
        cdef size_t at
        cdef Segment* s
        numbers = []
        for at in range(self.catalogue.index.n):
            s = self.catalogue.index.segments[at]
            if s.sealed and not s.examined:
                numbers.append(s.number)
        return numbers

    # -- syncing -----------------------------------------------------------------------------------------------
    @property
    def dirty(self) -> bool:
        """Whether there are unsynced writes, a running sync, or files that wait to be removed."""
        return self.syncs.is_due() or bool(self.retired.paths) or self.syncs.in_flight is not None

    @property
    def durable(self) -> bool:
        """Whether everything written is durable."""
        return self.syncs.in_flight is None and not self.syncs.is_due()

    def begin_sync(self):
        """Return a SyncJob for all unsynced writes, or None if there are none or a job is running.

        The caller must pass the job's result to finish_sync, even if the store was closed in between.
        """
        job = self.syncs.begin()
        if job is not None:
            self.syncing_index = self.writer.kept_index
        elif self.durable and not self.sync_lost:
            self.synced_index = self.writer.kept_index
        return job

    def finish_sync(self, job, error) -> None:
        """Handle the result of the job that begin_sync returned; `error` is None if the sync succeeded."""
        self.syncs.end(self.writer.growing_path())
        self.retired.free_segments()
        if error is not None and self.closed and not self.files.disk.exists(self.files.directory):
            return                          # the stream and its files were deleted in the meantime
        if error is not None:
            self.files.found, self.files.names_above = job.found, job.above
            self.writer.sync_failed(error)
        elif not self.sync_lost:
            self.syncs.done(job)
            self.synced_index = self.syncing_index
            self.compactor.take_rewritten()

    def sync_now(self) -> None:
        """Sync all writes and remove retired files in this thread; only for closing a stream, and for tests."""
        if self.syncs.in_flight is not None:
            job, taken = self.syncs.again()
            error = job()
            self.files.handles.give_back(taken)
            if error is not None:
                self.writer.sync_failed(error)
            return
        error = None
        while error is None:
            job = self.begin_sync()
            if job is None:
                break
            error = job()
            self.finish_sync(job, error)
        while (removal := self.begin_removal()) is not None:
            self.finish_removal(removal())

    # -- upkeep ------------------------------------------------------------------------------------------------
    def begin_removal(self):
        """Return a job that removes some retired files, or None if no removal can begin."""
        return None if self.closed else self.retired.begin_removal()

    def finish_removal(self, error) -> None:
        """Handle the result of the removal job, an error or None; another removal may then begin."""
        self.retired.finish_removal(error, self.closed)

    @property
    def wants_upkeep(self) -> bool:
        """Whether begin_upkeep may have work."""
        if self.retired.removing is not None or self.compactor.is_busy() or self.freeing:
            return False
        return bool(self.files.replaced) or (not self.closed and self.retired.is_due()) or self.compactor.has_work()

    def begin_upkeep(self):
        """Return a job that any thread may run, or None if there is nothing to do now.

        The caller must pass the result of the job to finish_upkeep.
        """
        if not self.wants_upkeep:
            return None
        if self.files.replaced:
            self.freeing, replaced, self.files.replaced = True, self.files.replaced, []
            return Release(replaced)
        if not self.closed and self.retired.is_due():
            return self.begin_removal()
        if self.condition.refuses():
            return None
        return self.compactor.begin(self.syncs.written_mark + self.writer.has_news())

    def finish_upkeep(self, error) -> None:
        """Handle the result of the job from begin_upkeep."""
        if self.freeing:
            self.freeing = False
        elif self.retired.removing is not None:
            self.finish_removal(error)
        else:
            self.compactor.finish(error)

    # -- end ---------------------------------------------------------------------------------------------------
    def close(self, tails=None) -> None:
        """Write, sync and close everything; free the reserved space of the last segment.

        If the last segment is small and `tails` is a list, the segment's number and the bytes of its index file are
        appended to `tails`, and no index file is written.
        """
        if self.closed:
            return
        self.commit()
        if not self.failed:
            self.writer.give_room_back()
            # Nothing was written since the recovery, so the files are as durable as before: no sync is needed.
            if self.files.unsynced or self.syncs.in_flight is not None \
                    or self.syncs.written_mark != self.syncs.synced_mark:
                self.sync_now()
        if not self.failed:
            self.compactor.take_rewritten()
            self.write_indexes(tails)
        self.release()

    def write_indexes(self, tails=None) -> None:
        """Write the missing index files, in particular that of the open segment; for `tails`, see `close`."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s != NULL and (not s.sealed or self.writer.left) and self.writer.is_unindexed():
            full = self.writer.without_index(s, False)
            small = None if tails is None else small_index(full)
            if small is not None:
                tails.append((s.number, small))
            else:
                self.syncs.unindexed.append(full)
        for problem in index_segments(self.files.disk, self.syncs.unindexed):
            self.files.log.debug(problem)
        self.syncs.unindexed = []

    def release(self) -> None:
        """Close the files without writing."""
        self.files.handles.close(self.writer.growing_path())
        self.condition.worsen(STORE_CLOSED, self.error or StoreFailed(self.files.directory, "closed"))
        self.compactor.remove_unfinished()
        self.syncs.forget_all()
        self.maps.drop_maps()

    def destroy(self) -> None:
        """Close the store, and remove the directory of its segments if that was not renamed for removal before."""
        if not self.closed:
            self.release()
        self.retired.paths = []
        if self.syncs.in_flight is None:            # a running sync may still read the files
            self.catalogue.msgs = self.catalogue.bytes = 0
            self.catalogue.part_from_subjects()
            self.catalogue.part_from_segments()
        if self.files.disk.exists(self.files.directory):
            self.files.disk.remove_tree(self.files.directory)
