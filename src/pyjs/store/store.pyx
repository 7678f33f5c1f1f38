"""The interface of a store: appends, drops and purges. The searches are in store/index/catalogue.pyx.

This module knows nothing of consumers, the protocol, the limits of streams, or the storage of bodies: store/memory
and store/file implement hooks for storage, and rebuild the state when a store is opened. Long because all appends and
drops change the same state.

Invariant: first_seq <= last_seq + 1.

Compiled, because it runs for every published message (measured in benchmarks/: JetStream rows).
Source: state and purge rules of nats-server, compared in tests/conformance.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize

from pyjs.store.index.sequences cimport (
    FOUND_MAX, index_at, index_find, index_free, index_last, index_next_live, index_remove, is_dead, may_hold,
    segment_clear_front, segment_count_from, segment_find, segment_free, segment_place, subject_of,
)
from pyjs.store.index.subjects cimport subject_by_id, subjects_find
from pyjs.store.index.sweep cimport is_dense, subtract, unlink_found
from pyjs.subjects.tokens cimport has_wildcard
from pyjs.wire.compose cimport compose

from pyjs.base.disk import closing
from pyjs.base.errors import NotNow

cdef enum:
    GAP_ENTRIES_MAX = 4096      # maximum number of entries for one gap; a wider gap is between two segments
    SEGMENT_ENTRIES_MAX = 1048576  # a segment with more entries gets no entries for gaps: these are between segments
    SEGMENTS_AT_ONCE = 4        # maximum number of segments freed at once; the memory of more is passed to `remains`
    KEPT_MAX = 65536            # if at most this many messages are left (indexing them again takes 10 ms),
    MANY = 4096                 # and more than this many are dropped before them, these are dropped together


cdef class StoredMessage:
    def __init__(self, uint64_t seq, int64_t ts, bytes subject, bytes headers, bytes payload) -> None:
        self.seq = seq
        self.ts = ts
        self.subject = subject
        self.headers = headers
        self.payload = payload

    def __repr__(self) -> str:
        return f"StoredMessage({self.seq}, {self.ts}, {self.subject!r}, {self.headers!r}, {self.payload!r})"


def sync_path(disk, str path, syncing=None) -> None:
    """Open, sync and close the file at `path`; `syncing` may do the sync together with others. Raises OSError."""
    with closing(disk, disk.open_file(path)) as fd:
        (syncing or disk).sync_file(fd)


class SyncJob:
    """A job that syncs files and names of a store. It does not use the store itself, so any thread may run it."""

    def __init__(self, disk, files, directory, mark) -> None:
        self.disk = disk
        self.files = files              # open_files.OpenFile objects from OpenFiles.take
        self.found = []                 # paths of further files, which an earlier process may have written
        self.failure = None             # the error of an earlier sync; None: none
        self.together = None            # together.Together; None: this job syncs each file by itself
        self.directory = directory      # the directory in which names have changed; None: none have
        self.mark = mark
        self.above = ()                 # further directories to sync

    def __call__(self):
        """Sync the files, then the names; return the first error, or None if everything is durable.

        If an earlier sync failed, return its error and sync nothing.
        """
        if self.failure is not None:
            return self.failure
        try:
            syncing = self.disk if self.together is None else self.together
            for file in self.files:
                syncing.sync_file(file.fd)
            for path in self.found:
                sync_path(self.disk, path, syncing)
            if self.directory is not None:
                syncing.sync_dir(self.directory)
            for directory in self.above:
                syncing.sync_dir(directory)
        except OSError as error:
            return error
        return None


cdef class StreamStore:
    def __cinit__(self, *arguments, **named):
        self.many = MANY
        self.applied_id = b""
        self.steps = ClockSteps()
        self.last_matches = LastMatches()

    @property
    def first_seq(self) -> int:
        """The sequence of the first message; last_seq + 1 if all were removed, or 0 if none was ever stored."""
        return self.catalogue.first_seq

    @property
    def last_seq(self) -> int:
        """The highest sequence that was used."""
        return self.catalogue.last_seq

    @property
    def msgs(self) -> int:
        """The number of messages."""
        return self.catalogue.msgs

    @property
    def bytes(self) -> int:
        """The size of all messages in bytes, counted as nats-server counts it."""
        return self.catalogue.bytes

    @property
    def first_ts(self) -> int:
        """The time of the first message in ns since the epoch, or 0 if there is none."""
        return self.catalogue.first_ts

    @property
    def last_ts(self) -> int:
        """The time of the last stored message in ns since the epoch, even if it was removed; 0 if there was none."""
        return self.catalogue.last_ts

    # -- message path ------------------------------------------------------------------------------------------
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil:
        return 0

    cdef int begin_batch(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        return 0

    cdef void end_batch(self) noexcept nogil:
        pass

    cdef void drop_batch(self) noexcept nogil:
        pass

    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        return 0

    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil:
        return 0

    cdef int flush_parts(self) noexcept nogil:
        return 0

    cdef void add_parts(self) noexcept nogil:
        pass

    cdef void end_parts(self) noexcept nogil:
        pass

    cdef void drop_parts(self) noexcept nogil:
        pass

    cdef int commit(self) noexcept nogil:
        return 0

    cdef int load(self, uint64_t seq, Record* r) noexcept nogil:
        return -1

    cdef int find_stored(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        return -1

    cdef uint64_t skip(self) noexcept nogil:
        cdef Segment* s = self.tail()
        if s == NULL or self.catalogue.add_gap(s) != 0:
            return 0
        return self.catalogue.last_seq

    cdef int skip_to(self, uint64_t seq) noexcept nogil:
        cdef bint wide
        if seq <= self.catalogue.last_seq:
            return 0
        if self.catalogue.msgs == 0:
            self.drop_all(seq + 1)
            return 0
        wide = seq - self.catalogue.last_seq > GAP_ENTRIES_MAX \
            or index_last(&self.catalogue.index).n > SEGMENT_ENTRIES_MAX
        if wide and self.jump_to(seq) != 0:
            return -1
        while self.catalogue.last_seq < seq:
            if self.skip() == 0:
                return -1
        return 0

    cdef int jump_to(self, uint64_t seq) noexcept nogil:
        self.catalogue.last_seq = seq - 1
        return 0

    cdef int drop(self, uint64_t seq, bint erase) noexcept nogil:
        cdef size_t at = index_at(&self.catalogue.index, seq)
        cdef Segment* s
        cdef uint32_t i
        if at == self.catalogue.index.n or self.catalogue.index.segments[at].base > seq:
            return -1
        s = self.catalogue.index.segments[at]
        i = <uint32_t> (seq - s.base)
        if is_dead(s, i):
            return -1
        self.catalogue.unlink(s, i)
        self.forget(s, i, erase)
        if at + 1 < self.catalogue.index.n and s.live == 0:  # the first write of the last segment may have failed
            self.retire(at)
        return 0

    cdef int begin_entry(self, uint64_t size) except -1:
        return 0

    cdef int end_entry(self, uint64_t index, uint64_t term, int64_t ns, bytes last_id) except -1:
        self.applied_index, self.applied_term, self.applied_ns, self.applied_id = index, term, ns, last_id
        return 0

    # -- hooks -------------------------------------------------------------------------------------------------
    cdef void forget(self, Segment* s, uint32_t i, bint erase) noexcept nogil:
        pass

    cdef void retire(self, size_t at) noexcept nogil:
        cdef Segment* s = self.catalogue.index.segments[at]
        index_remove(&self.catalogue.index, at)
        segment_free(s)

    cdef void forget_found(self, Segment* s, Found* found, Remains remains) noexcept nogil:
        pass

    cdef void retire_to(self, size_t at, Remains remains) noexcept nogil:
        cdef Segment* s = self.catalogue.index.segments[at]
        index_remove(&self.catalogue.index, at)
        remains.take_segment(s)

    cdef void clear_segments(self) noexcept nogil:
        if self.catalogue.index.n <= SEGMENTS_AT_ONCE:
            index_free(&self.catalogue.index)
        else:
            with gil:
                self.catalogue.part_from_segments()

    cdef Segment* tail(self) noexcept nogil:
        return NULL

    # -- state -------------------------------------------------------------------------------------------------
    cdef uint64_t drop_below(self, uint64_t seq) noexcept nogil:
        """Drop every message below `seq`; return the number of dropped messages."""
        cdef uint64_t before = self.catalogue.msgs
        if self.keeps_few(seq):
            with gil:
                self.keep_from(seq)
        self.drop_singly_below(seq)
        return before - self.catalogue.msgs

    cdef void drop_singly_below(self, uint64_t seq) noexcept nogil:
        """Drop every message below `seq`, one at a time."""
        while self.catalogue.msgs and self.catalogue.first_seq < seq:
            self.drop(self.catalogue.first_seq, 0)

    cdef bint keeps_few(self, uint64_t seq) noexcept nogil:
        """Return whether `keep_from` should drop the messages below `seq`.

        `keep_from` is faster than dropping messages one by one if many must be dropped and few remain.
        """
        cdef size_t at = index_at(&self.catalogue.index, seq)
        cdef uint64_t kept = 0
        cdef Segment* s
        while at < self.catalogue.index.n and kept <= KEPT_MAX:
            s = self.catalogue.index.segments[at]
            kept += segment_count_from(s, <uint32_t> (seq - s.base) if seq > s.base else 0)
            at += 1
        return 0 < kept <= KEPT_MAX and self.catalogue.msgs - kept > max(kept, <uint64_t> self.many) \
            and not self.catalogue.drops.tracked

    cdef void keep_from(self, uint64_t seq) noexcept:
        """Drop all messages below `seq` by indexing the others again; `take_remains` then returns the old memory.

        If out of memory, drop nothing.
        """
        cdef Remains remains
        cdef size_t at = index_at(&self.catalogue.index, seq)
        cdef Segment* s
        try:
            remains = Remains()
            self.catalogue.leave(remains)
        except MemoryError:
            return
        if self.catalogue.subjects.renew(&self.catalogue.index, seq, remains) != 0:
            return
        s = self.catalogue.index.segments[at]
        if s.base < seq:
            segment_clear_front(s, <uint32_t> (seq - s.base))
        self.part_from_first(at, remains)
        self.catalogue.recount_all()
        self.catalogue.move_first(seq)

    cdef void part_from_first(self, size_t n, Remains remains) noexcept:
        """Move the first `n` segments to `remains`."""
        remains.take_first_segments(&self.catalogue.index, n)

    cdef uint64_t drop_all(self, uint64_t first_seq) noexcept nogil:
        """Drop all messages; return their number. The next sequence is then max(first_seq, last_seq + 1)."""
        cdef uint64_t dropped = self.catalogue.msgs
        self.catalogue.forget_all(first_seq)
        self.clear_segments()
        return dropped

    cdef bint sweep(self, StoreFilter f, uint64_t before_seq):
        """Drop all messages of the subject `f` below `before_seq`, if there are many; return whether this was done.

        If so, `take_remains` returns the memory of the messages.
        """
        cdef Remains remains
        cdef uint64_t before = self.catalogue.msgs
        cdef Subject* s = NULL
        if f.literal:
            s = subjects_find(&self.catalogue.subjects.table, f.patterns[0], f.lengths[0])
        if s == NULL or s.count <= self.many or not is_dense(self.catalogue, s, before_seq):
            return False
        try:
            remains = Remains()
            self.catalogue.leave(remains)
        except MemoryError:
            return False
        self.sweep_segments(s, before_seq, remains)
        subtract(self.catalogue, s, before - self.catalogue.msgs, before_seq)
        return True

    cdef void sweep_segments(self, Subject* subject, uint64_t before_seq, Remains remains) noexcept nogil:
        cdef size_t at = index_at(&self.catalogue.index, subject.first)
        cdef Segment* s
        while at < self.catalogue.index.n and self.catalogue.index.segments[at].base < before_seq:
            s = self.catalogue.index.segments[at]
            if s.live and may_hold(s, subject.id):
                self.sweep_segment(s, subject, <uint32_t> min(before_seq - s.base, <uint64_t> s.n), remains)
                if s.live == 0 and at + 1 < self.catalogue.index.n:
                    self.retire_to(at, remains)
                    continue
            at += 1

    cdef void sweep_segment(self, Segment* s, Subject* subject, uint32_t end, Remains remains) noexcept nogil:
        cdef uint32_t place = segment_place(s, subject.id)
        cdef uint64_t i = 0
        cdef Found found
        while i < end and s.live:
            segment_find(s, place, <uint32_t> i, <uint32_t> min(i + FOUND_MAX, <uint64_t> end), &found)
            if found.n:
                unlink_found(self.catalogue, s, subject, &found)
                self.forget_found(s, &found, remains)
            i += FOUND_MAX

    # -- Python ------------------------------------------------------------------------------------------------
    cdef StoredMessage copy_out(self, uint64_t seq):
        cdef Record r
        cdef int failed = -1 if seq == 0 else self.load(seq, &r)
        if failed == -3:
            raise NotNow(f"message {seq} cannot be read now")
        if failed:
            return None
        return StoredMessage(
            r.seq, r.ts, PyBytes_FromStringAndSize(r.subject, r.subject_len),
            PyBytes_FromStringAndSize(r.body, r.header_len),
            PyBytes_FromStringAndSize(r.body + r.header_len, r.size - r.header_len),
        )

    def store(self, bytes subject, bytes headers, bytes payload, int64_t ts) -> int:
        """Append a message with the time `ts` in ns; return its sequence, or 0 if the store refused it.

        For the API and for tests.
        """
        cdef Msg m
        cdef bytes body = headers + payload
        compose(&m, subject, len(subject), body, len(headers), len(body))
        return self.append(&m, ts)

    def skip_seq(self) -> int:
        """Use up one sequence without a message; return this sequence, or 0 if the store refused."""
        return self.skip()

    def skip_seqs_to(self, uint64_t seq) -> bool:
        """Use up all sequences up to `seq` without messages; return False if the store refused."""
        return self.skip_to(seq) == 0

    def get(self, uint64_t seq):
        """Return the message with sequence `seq`, or None if it is absent or damaged.

        Raises:
            NotNow: the message cannot be read for the moment; `get_last` and `get_next` raise this too.
        """
        return self.copy_out(seq)

    def get_checked(self, uint64_t seq):
        """Return the message as `get` does, but check its record in the file even if this process wrote it."""
        return self.copy_out(seq)

    def read_ahead(self, uint64_t seq, uint64_t size) -> None:
        """Begin to read about `size` bytes of messages from the disk, from `seq` on, without waiting for them."""

    def get_last(self, bytes subject_filter, uint64_t up_to_seq=0):
        """Return the newest matching message with seq <= `up_to_seq`, where 0 means no limit.

        Return None if there is none, or if it is damaged. Raises NotNow, as `get` does.
        """
        return self.copy_out(self.last_match(subject_filter, up_to_seq))

    def last_match(self, bytes subject_filter, uint64_t up_to_seq=0) -> int:
        """Return the sequence of the newest matching message with seq <= `up_to_seq` (0: no limit), or 0 if none."""
        cdef StoreFilter f = StoreFilter((subject_filter,))
        cdef uint64_t up_to = up_to_seq or self.catalogue.last_seq
        return self.catalogue.prev_of_filter(up_to, f)

    def get_next(self, bytes subject_filter, uint64_t from_seq):
        """Return the first matching message with seq >= `from_seq`.

        Return None if there is none, or if it is damaged. Raises NotNow, as `get` does.
        """
        return self.copy_out(self.catalogue.next_seq(from_seq, StoreFilter((subject_filter,))))

    cdef uint64_t last_of(self, const char* subject, size_t n, int64_t* work) noexcept nogil:
        """Return the sequence of the last message whose subject matches `subject`, or 0 if there is none.

        A message may be published under a subject with wildcards; nats-server then reads it as a filter
        (tests/conformance/scenarios/publish/conditions_under_a_wildcard.txt).
        """
        if not has_wildcard(subject, n):
            return self.catalogue.last_seq_of(subject, n)
        with gil:
            return self.last_matches.find(self.catalogue, subject[:n], work)

    def headers_steps(self, int64_t from_ns):
        """Yield between steps; return (sequence, time, headers) of each message since `from_ns`, even if removed."""
        yield from ()
        return []

    def keep_headers(self) -> None:
        """Keep the headers of removed messages until an entry sets `ids_from`.

        Call this before a replica is copied.
        """

    def replicate(self, uint64_t group) -> None:
        """Use this open store from now on for a replica that has applied no entry yet.

        `group` is the identity of the replica's log. It is not 0, and no earlier group of the stream has had it.
        """
        self.group = group
        self.ids_from = 0
        self.steps.clear()
        self.applied_index, self.applied_term, self.applied_ns, self.applied_id = 0, 0, 0, b""

    def expect_step(self) -> None:
        """Prepare for the first step in `steps`. Call this before `begin_entry`."""

    def begin_copied_entry(self) -> None:
        """Begin the change that completes the copy of a replica; `end_copied_entry` ends it.

        After a crash, either all of this change is stored or nothing of it.
        """
        self.begin_entry(0)

    def end_copied_entry(self, uint64_t index, uint64_t term, int64_t ns, int64_t ids_from, bytes last_id,
                         bytes steps=b"") -> None:
        """End and commit the change that completes a copy: the replica has now applied the entry `index`.

        Raises `error` if the change cannot be written, and ValueError if the clock steps in `steps` are invalid.
        """
        self.steps.load(steps, ns)
        self.ids_from, self.has_ids = ids_from, True
        self.end_entry(index, term, ns, last_id)
        self.flush()

    def make_filter(self, subjects) -> StoreFilter:
        """Return a filter of this store for any of `subjects`; a filter without subjects matches everything."""
        return StoreFilter(subjects)

    def drop_seq(self, uint64_t seq, bint erase=False) -> bool:
        """Remove one message, and overwrite its bytes if `erase` is set; return whether the message existed."""
        return self.drop(seq, erase) == 0

    def purge(self, StoreFilter f not None, uint64_t before_seq=0, uint64_t keep=0) -> int:
        """Remove matching messages below `before_seq` (0: all), except the newest `keep`; return the number removed.

        The removals are not in the log of drops, so consumers must count again. If `f` matches everything, a
        `before_seq` beyond the end empties the stream and becomes the next sequence. Source: STREAM.PURGE of
        nats-server.
        """
        cdef bint tracked = self.catalogue.drops.tracked
        if before_seq == 1:
            return 0
        self.catalogue.drops.tracked = False
        try:
            return self.purge_matching(f, before_seq, keep)
        finally:
            self.catalogue.drops.tracked = tracked

    def purge_matching(self, StoreFilter f, uint64_t before_seq, uint64_t keep) -> int:
        """Remove messages for `purge`, which has turned off the log of drops; return their number."""
        cdef uint64_t total, left, seq, before = self.catalogue.msgs
        if f.all and keep == 0:
            if before_seq == 0 or before_seq > self.catalogue.last_seq:
                return self.drop_all(before_seq)
            return self.drop_below(before_seq)
        total = self.catalogue.count_from(0, f)
        if keep >= total:
            return 0
        if keep == 0 and before_seq and total == self.catalogue.msgs:
            return self.drop_below(before_seq)
        if keep == 0 and self.sweep(f, min(before_seq or ~<uint64_t> 0, self.catalogue.last_seq + 1)):
            return before - self.catalogue.msgs
        left = total - keep
        self.catalogue.look_ahead(self.catalogue.first_seq, f)      # otherwise each search examines its gap
        seq = self.catalogue.next_seq(0, f)
        while left and seq and not (before_seq and seq >= before_seq):
            self.drop(seq, 0)
            left -= 1
            seq = self.catalogue.next_seq(seq + 1, f) if left else 0
        return total - keep - left

    def drop_some(self, StoreFilter f not None, uint64_t from_seq, uint64_t before_seq, uint32_t limit) -> tuple:
        """Run one step of a purge: remove up to `limit` matches with from_seq <= seq < before_seq.

        Return the number of removed messages, and the sequence at which the next step begins, or 0 after the last
        step.
        """
        cdef bint tracked = self.catalogue.drops.tracked
        cdef uint32_t left = limit
        cdef uint64_t rest = 0
        cdef uint64_t seq = self.catalogue.next_some(from_seq, f, &rest), begin = seq
        self.catalogue.drops.tracked = False
        while left and seq and seq < before_seq:
            self.drop(seq, 0)
            left -= 1
            seq = self.catalogue.next_of_step(begin, seq, f, &rest)
        self.catalogue.drops.tracked = tracked
        seq = seq or rest
        return limit - left, seq if seq < before_seq else 0

    def purge_seqs(self, list seqs not None) -> int:
        """Remove the messages with these sequences, without logging the drops; return how many were removed."""
        cdef bint tracked = self.catalogue.drops.tracked
        cdef uint64_t seq, purged = 0
        self.catalogue.drops.tracked = False
        try:
            for seq in seqs:
                purged += self.drop(seq, 0) == 0
        finally:
            self.catalogue.drops.tracked = tracked
        return purged

    def trim_some(self, int64_t max_per_subject, uint64_t from_seq, uint64_t before_seq, uint32_t limit) -> int:
        """Remove messages whose subjects have more than `max_per_subject` messages; visit up to `limit` messages.

        Only messages with from_seq <= seq < before_seq are visited. Return the sequence at which the next step
        begins, or 0 after the last step.
        """
        cdef uint64_t seq = index_next_live(&self.catalogue.index, from_seq)
        cdef Segment* s
        cdef uint32_t left = limit
        while left and seq and seq < before_seq:
            s = index_find(&self.catalogue.index, seq)
            if subject_by_id(&self.catalogue.subjects.table, subject_of(s, <uint32_t> (seq - s.base))).count \
                    > <uint64_t> max_per_subject:
                self.drop(seq, 0)
            left -= 1
            seq = index_next_live(&self.catalogue.index, seq + 1)
        return seq if seq < before_seq else 0

    def drop_front(self, int64_t max_msgs, int64_t max_bytes, uint32_t limit) -> bool:
        """Remove up to `limit` of the oldest messages while the store exceeds a maximum (0: no maximum).

        Return True if the store still exceeds a maximum after `limit` removals.
        """
        cdef uint32_t left = limit
        while self.catalogue.msgs and ((max_msgs > 0 and self.catalogue.msgs > <uint64_t> max_msgs)
                                       or (max_bytes > 0 and self.catalogue.bytes > <uint64_t> max_bytes)):
            if left == 0:
                return True
            if self.drop(self.catalogue.first_seq, 0) != 0:
                return False
            left -= 1
        return False

    def flush(self) -> None:
        """Commit appends and drops. Raises `error` if that fails."""
        if self.commit() != 0:
            raise self.error

    def set_first_seq(self, uint64_t seq) -> None:
        """Set the sequence of the next message, unless a later sequence is next already.

        Raises:
            ValueError: the store has messages.
        """
        if self.catalogue.msgs:
            raise ValueError(f"the store holds {self.catalogue.msgs} messages: its sequences are settled")
        if seq > self.catalogue.last_seq:
            self.drop_all(seq)

    @property
    def failed(self) -> bool:
        """Whether appends are refused; `error` is then the reason."""
        return False

    @property
    def error(self):
        """The error that publishers get while appends are refused; None if the store has not failed."""
        return None

    @property
    def last_checksum(self) -> int:
        """A checksum of everything stored; 0 for a store without files."""
        return 0

    @property
    def dirty(self) -> bool:
        """Whether there are unsynced writes; always False without files."""
        return False

    @property
    def durable(self) -> bool:
        """Whether everything written is durable; always True without files."""
        return True

    def begin_sync(self):
        """Return a SyncJob for all unsynced writes, or None if there are none or a job is running."""
        return None

    def finish_sync(self, job, error) -> None:
        """Handle the result of the SyncJob `job`; `error` is None if the sync succeeded."""

    def sync_now(self) -> None:
        """Sync all writes in this thread."""

    @property
    def lost(self):
        """The number of lost messages, the sequences of the first ones, and the number of damaged bytes.

        None means that no damage was found.
        """
        return None

    @property
    def wants_upkeep(self) -> bool:
        """Whether begin_upkeep may have work."""
        return False

    def begin_upkeep(self):
        """Return a job that any thread may run, or None if there is no work; pass its result to finish_upkeep."""
        return None

    def finish_upkeep(self, error) -> None:
        """Handle the result of the job from begin_upkeep."""

    def close(self) -> None:
        """Write staged records and free all resources; the store must not be used again."""

    def destroy(self) -> None:
        """Close the store, and remove all messages; `catalogue.take_remains` returns their memory."""
        self.close()
        self.drop_all(0)
