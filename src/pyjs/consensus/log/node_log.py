"""The log of a node: all its groups in one sequence of records, with one write and one sync per turn.

    log.write(write, payloads)      # stage changes, for any number of groups
    log.flush()                     # one write
    job = log.begin_sync(); log.finish_sync(job, job())     # durable; the job runs in any thread

Invariants, asserted by each writer:

    synced <= written < number      synced: durable, written: in the file, number: of the next record
    seq(record) = seq(previous record of its group) + 1; the first record of a replica has seq = number
    first = start + 1, start <= last, commit <= last, terms of entries do not decrease, start_term <= the first term
    (term, commit) never decreases as a pair; commit decreases only by `forget_commit`; within a term, vote changes
    only from 0
    oldest file <= file of a group's GROUP record and of each of its entries

A process writes each place in a file only once, so a combination of number, place and id is never repeated. A
file is reused when no group needs it. The records of idle groups in the oldest file are copied to the end of
the log, a few with each write. `crowding` lists the groups that have many records in that file; the owner must
compact them. After a failed write or sync the log accepts no more writes, since only the next start can determine
which records are durable.

Long because it stages the records of every change of a group.

Sources: etcd's WAL, LevelDB's log; Alagappan et al., "Protocol-Aware Recovery" (a damaged log must not vote).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

from pyjs.base.disk import closing, is_shortage
from pyjs.base.errors import CorruptRecord, NotNow, StoreFailed, reason_of
from pyjs.consensus.log.files import FIRST_AT, UNKNOWN_MACHINE, LogFile, machine_of
from pyjs.consensus.log.group import FILE_SHIFT, StoredGroup
from pyjs.consensus.log.records import (
    DAMAGED_FLAG,
    GROUP,
    HEAD,
    MORE,
    RECORD_SIZE_MIN,
    REMOVE,
    RESET,
    WRITE,
    Base,
    Head,
    Membership,
    body_of,
    encode_base,
    head_at,
    payload_of,
)
from pyjs.consensus.log.replay import Replay
from pyjs.consensus.log.shelf import Shelf
from pyjs.consensus.log.staging import Staged, Staging
from pyjs.store.format.layout import make_directory, set_aside
from pyjs.store.format.lost_sync import forget_lost_sync, note_lost_sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.consensus.log.records import Members
    from pyjs.consensus.log.sync_job import FreshFileJob, SyncJob

FILE_SIZE = 64 << 20
# the oldest file is emptied if there are more files than twice the needed ones plus this number
FILES_FEW = 2
CARRY_SHARE = 64  # a flush copies at most a file's size divided by this,
CARRY_RECORDS = 512  # at most this many records, but at least one group
# a group with more records than that, or more bytes than a file's size divided by this, is compacted, not copied
CARRY_GROUP_SHARE = 4
STEP_SIZE = 1 << 20
BODY_SIZE = 4096  # bytes that are read at once for an entry without its payload
BOOT_JUMP = 1024  # added to the boot number after damage that may have hidden starts
BOOTS_MAX = 1 << 24
OFFSET_BITS = (1 << FILE_SHIFT) - 1


class Write(Protocol):
    """The changes of a group that the engine needs to store."""

    @property
    def group(self) -> int:
        """Return the number of the group."""

    @property
    def hard(self) -> tuple[int, int, int] | None:
        """Return term, vote and commit index, or None if they are unchanged."""

    @property
    def first(self) -> int:
        """Return the index of the first entry."""

    @property
    def entries(self) -> Sequence[tuple[int, int, bytes]]:
        """Return term, kind and body of the entries, which replace all entries from `first` on."""


class NodeLog:
    """The log of all groups of one node.

    `incarnation` is a 64-bit number that no other process has ever used. `file_size` is in bytes. `machine` is the
    number of a boot of the machine; None means the current boot. It is 0 if entries are acknowledged only after they
    were synced, so that a power failure loses no acknowledged entry.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: Log,
        incarnation: int,
        *,
        file_size: int = FILE_SIZE,
        machine: int | None = 0,
    ) -> None:
        self._disk = disk
        self._log = log
        self._directory = directory
        self._file_size = file_size
        self.groups: dict[int, StoredGroup] = {}
        # whether a power failure or a failed sync since the last start may have lost acknowledged records
        self.is_doubtful = False
        self._machine = machine_of(disk) if machine is None else machine
        self.damages = 0  # number of damaged places found since the start
        self.error: StoreFailed | None = None  # the reason why the log accepts no more writes
        self._shelf = Shelf(disk, directory, file_size)
        self._end = Staging(self._shelf, self.groups, incarnation, file_size)
        self._files_max = FILES_FEW
        # groups whose commit index is newer than the one in their last record
        self._late_commits: set[int] = set()
        self._counted_at = 0  # number of the newest file when `_files_max` was computed
        self._written = 0
        self._job: SyncJob | None = None
        self._is_unmarked = False  # whether a failed sync could not be marked at once

    @property
    def boot(self) -> int:
        """Return the number of this start of the node; it is durable when `recover_steps` has ended."""
        return self._end.boot

    @property
    def lost_unknown(self) -> bool:
        """Return whether the log may have lost a whole group, now or at an earlier start; see `end_doubt`."""
        return self._end.is_in_doubt

    # -- start ---------------------------------------------------------------------------------------------

    def recover_steps(self) -> Iterator[None]:
        """Read the log, report damage, and begin the file of this start, in steps.

        Raises:
            UnknownLog: another version wrote the log; no file is changed.
            StoreFailed: the disk failed; durable records are unchanged.
        """
        try:
            make_directory(self._disk, self._directory)
            replay = Replay(self._disk, self._directory)
            yield from replay.steps()
            self._report(replay)
            self._adopt(replay)
            yield from self._write_again(replay)
            self._begin_boot(replay)
        except OSError as error:
            self._shelf.close()
            raise self._fail(error) from error

    def _report(self, replay: Replay) -> None:
        for note in replay.notes:
            self._log.warn(f"  {note}")
        for loss in replay.losses:
            self.damages += 1
            names = ", ".join(f"{number} {replay.groups[number].name!r}" for number in sorted(loss.groups))
            self._log.error(f"  {loss}; groups that must come back as new replicas: {names or 'none'}")

    def _adopt(self, replay: Replay) -> None:
        self.groups.update(replay.groups)
        end = self._end
        end.is_in_doubt = replay.lost_unknown or replay.is_in_doubt
        end.boot = replay.boot + (BOOT_JUMP if replay.lost_unknown else 1)
        if end.boot >= BOOTS_MAX:
            raise OSError(errno.EOVERFLOW, f"the node has started {end.boot} times")
        for file in replay.files:
            self._shelf.adopt(file, replay.ends[file.number])
            end.at = file.written
        self.is_doubtful = replay.machine != 0 and replay.machine != self._machine
        self.is_doubtful |= replay.machine == UNKNOWN_MACHINE
        # The kernel may have dropped records after a failed sync, without a start of the machine.
        self.is_doubtful |= replay.machine != 0 and replay.has_lost_sync
        end.machine = UNKNOWN_MACHINE if self.is_doubtful else self._machine
        end.number, end.before = replay.next_number, replay.last_group
        self._written = end.number - 1

    def _write_again(self, replay: Replay) -> Iterator[None]:
        """Rewrite records that no later record proves durable, since an earlier process may not have synced them."""
        if not replay.unsynced:
            return
        _, first_file, first_at = replay.unsynced[0]
        for file in self._shelf.files.values():
            if file.number < first_file:
                continue
            at = first_at if file.number == first_file and first_at > FIRST_AT else 0
            while at < file.written:
                size = min(STEP_SIZE, file.written - at)
                self._shelf.write_again(file, size, at)
                at += size
                yield

    def _begin_boot(self, replay: Replay) -> None:
        """Begin a new log file for this server start.

        From then on, bytes after the replayed end of an older file are invalid.
        """
        for path, _ in replay.stale:
            self._sync_stale(path)
        self._sync_now(self._shelf.sync_job(self._written))
        self._end.synced = self._written
        self._shelf.find_spares()
        self._end.begin_file(0, replay.last_file + 1)
        for group in self.groups.values():
            if group.damage:
                self._stage_base(group, RESET | DAMAGED_FLAG, group.start)
            else:
                group.check()
        self.flush()
        job = self.begin_sync()
        assert job is not None
        self.finish_sync(job, job())
        if self.error is not None:
            raise self.error
        if replay.has_lost_sync:  # the remaining records are durable, and the new file states the doubt
            forget_lost_sync(self._disk, self._directory)
        for path in replay.broken:  # not earlier: until this boot has a file, only these files show the loss
            self._log.error(f"  {path} is set aside as {set_aside(self._disk, path)}")
        for path, size in replay.stale:
            self._shelf.retire(path, size)

    def _sync_stale(self, path: str) -> None:
        """Sync a file without records: if the kernel could not write it after a kill, it reports that only here."""
        with closing(self._disk, self._disk.open_file(path)) as fd:
            try:
                self._disk.sync_file(fd)
            except OSError:
                note_lost_sync(self._disk, self._directory, self._log)
                raise

    def _sync_now(self, job: SyncJob | None) -> None:
        if job is not None and (error := job()) is not None:
            self._note_lost_sync(job)
            raise error

    # -- staging -------------------------------------------------------------------------------------------

    def create(
        self, group: int, name: str, peer: int, conf: Members, start: int, start_term: int, state: bytes = b""
    ) -> None:
        """Stage the creation of a group, or of a new replica in place of the current one.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        assert group > 0
        assert peer > 0
        new = StoredGroup(group)
        new.name, new.peer, new.conf, new.state = name, peer, Membership.of(conf), state
        new.start, new.start_term = start, start_term
        self._stage_base(new, RESET, start)
        # a census that precedes the record of the group must list the state before this change
        self.groups[group] = new

    def remove(self, group: int) -> None:
        """Stage the removal of a group.

        Raises:
            KeyError: the log has no such group.
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        gone = self.groups[group]
        self._end.reserve(RECORD_SIZE_MIN)
        self._end.stage(gone, REMOVE, 0, max(gone.last, 0))
        self._end.forget(group)
        del self.groups[group]

    def write(self, write: Write, payloads: Sequence[bytes] = ()) -> bool:
        """Stage the hard state and entries of a write, with a payload for each entry (b"": no payload).

        Return whether a record was staged. A commit index alone is staged later, with the next record or by
        `stage_commits`. A snapshot in the write is not staged: the caller must pass it to `point`.

        Raises:
            CorruptRecord: the group is damaged.
            StoreFailed: the log accepts no more writes.
        """
        group = self.groups[write.group]
        if self.error is not None or group.damage:
            self._intact(write.group)  # raises the error
        staged = self._end.stage_changes(group, write.hard, write.first, write.entries, payloads)
        if staged is Staged.COMMIT:
            self._late_commits.add(group.number)
        return staged is Staged.RECORD

    def stage_commits(self) -> bool:
        """Stage the commit indexes that are not in a record yet; return whether there are any.

        Without them, a restarted node applies the last entries only when a leader reports them as committed.
        """
        late, self._late_commits = self._late_commits, set()
        is_staged = False
        for number in late:
            group = self.groups.get(number)
            if group is not None and not group.damage and group.written_commit < group.commit:
                self._end.reserve(RECORD_SIZE_MIN)
                self._end.stage(group, WRITE, 0, group.last)
                is_staged = True
        return is_staged

    def point(self, group: int, index: int, term: int, conf: Members, state: bytes) -> None:
        """Stage a new start of a group's log, after a compaction or after the installation of a snapshot.

        If the log has an entry with this index and term, the later entries remain; otherwise the log becomes empty.

        Raises:
            CorruptRecord: the group is damaged.
            StoreFailed: the log accepts no more writes.
        """
        one = self._intact(group)
        assert one.start <= index
        last = one.last if one.term_at(index) == term else index
        one.conf, one.state = Membership.of(conf), state
        self._stage_base(one, 0, last, Base(one.peer, index, term, one.conf, one.name))
        one.check()

    def _stage_base(
        self, group: StoredGroup, flags: int, last: int, base: Base | None = None, room: int = 0
    ) -> LogFile:
        """Stage a GROUP record in a file with `room` more free bytes; return this file.

        `last` is the last index of the group after the record.
        """
        if base is None:
            base = Base(group.peer, group.start, group.start_term, group.conf, group.name)
        body = encode_base(base)
        file = self._end.reserve(RECORD_SIZE_MIN + len(body) + len(group.state) + room)
        if group.seq == 0:
            group.seq = self._end.number - 1
        at = self._end.at
        self._end.stage(group, GROUP, flags, last, body, group.state)
        damage = group.damage
        place = file.number << FILE_SHIFT | at
        group.begin_at(base, last, place, self._end.at - at, reset=bool(flags & RESET))
        if flags & DAMAGED_FLAG:
            group.lose(damage)
        file.groups.add(group.number)
        return file

    def _intact(self, number: int) -> StoredGroup:
        if self.error is not None:
            raise self.error
        group = self.groups[number]
        if group.damage:
            raise CorruptRecord(
                self._directory, 0, f"group {number} {group.name!r} is damaged: {group.damage}"
            )
        return group

    def _check_working(self) -> None:
        if self.error is not None:
            raise self.error

    # -- writing -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write all staged records.

        Raises:
            StoreFailed: the records were not written completely; the log accepts no more writes.
        """
        if self.error is not None:
            raise self.error
        if self._end.is_empty:
            return
        try:
            self._end.write()
            self._written = self._end.number - 1
            if len(self._shelf.files) > FILES_FEW and self._has_many_files():
                self._carry(self._shelf.oldest)
                self._end.write()
                self._written = self._end.number - 1
        except OSError as error:
            raise self._fail(error) from error
        assert self._end.synced <= self._written

    def begin_sync(self) -> SyncJob | None:
        """Return a job that syncs the written records; None if there is nothing to sync, or a sync is running.

        The job may run in any thread. The caller must pass its result to `finish_sync`.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        if self._job is None:
            self._job = self._shelf.sync_job(self._written)
            return self._job
        return None

    def finish_sync(self, job: SyncJob, error: Exception | None) -> None:
        """Handle the result of a sync; if it succeeded, all records that the job had to sync are durable."""
        assert job is self._job
        self._job = None
        if error is not None:
            self._note_lost_sync(job)
            self._fail(error)
            return
        assert self._end.synced <= job.mark
        self._end.synced = job.mark
        if self.error is not None:
            return  # a write has failed meanwhile
        try:
            self._shelf.synced(job)
        except OSError as failure:
            self._fail(failure)

    @property
    def is_syncing(self) -> bool:
        """Return whether a sync is running; the log cannot be closed then."""
        return self._job is not None

    @property
    def synced(self) -> int:
        """Return the number of the last durable record."""
        return self._end.synced

    @property
    def written(self) -> int:
        """Return the number of the last written record."""
        return self._written

    @property
    def files(self) -> list[str]:
        """Return the names of the files with records, oldest first."""
        return [file.path.rpartition("/")[2] for file in self._shelf.files.values()]

    def trust(self) -> None:
        """Begin a new file, which ends the doubt about the log. The log must have every acknowledged entry.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        self.is_doubtful = False
        self._end.machine = self._machine
        self._end.begin_file(0, self._shelf.newest.number + 1)

    def forget_commit(self, group: int) -> None:
        """Reset the commit index of a group to the start of its log, since committed entries may be lost."""
        one = self.groups[group]
        one.hard = (*one.hard[:2], one.start)

    def end_doubt(self) -> None:
        """Stage a record that proves that no group is missing.

        The caller must have replaced or removed the groups that may have been lost.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        self._end.end_doubt()

    def witness(self) -> None:
        """Write a record that proves the last records durable, unless there is one already.

        Without this record, damage to the last records looks like the end of a log that was never synced.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        if self._end.claimed < self._end.synced:
            self._end.stage_census()
            self.flush()

    def begin_fresh_file(self) -> FreshFileJob | None:
        """Return a job that creates a file in advance, or None if no file has to be created now.

        Without such a file, the log creates the next file when it needs that file, and the first syncs are slower.

        Raises:
            StoreFailed: the log accepts no more writes.
        """
        self._check_working()
        return self._shelf.fresh_job()

    def finish_fresh_file(self, job: FreshFileJob, error: Exception | None) -> None:
        """Add the created file. After a failed sync the log accepts no more writes; other errors are only logged."""
        self._shelf.made(job, error)
        if error is None or self.error is not None:
            return
        if job.has_failed_sync:
            self._note_lost_sync(job)
            self._fail(error)
        else:
            self._log.warn(f"  {self._directory}: no file could be made in advance: {error}")

    def close(self) -> None:
        """Make all records durable, seal the newest file, and close the files. No sync may be running."""
        assert self._job is None
        if self.error is None:
            try:
                self.stage_commits()
                self._sync_rest()
                self._end.stage_census()
                self._sync_rest()
                self._sync_now(self._shelf.closing_job(self._end.seal(0)))
            except (OSError, StoreFailed) as error:
                self._fail(error)
        if self._is_unmarked:
            note_lost_sync(self._disk, self._directory, self._log)
        self._shelf.close()

    def _sync_rest(self) -> None:
        self.flush()
        job = self.begin_sync()
        if job is not None:
            self.finish_sync(job, job())
        self._check_working()

    def _note_lost_sync(self, job: SyncJob | FreshFileJob) -> None:
        """Mark the log after a failed sync, unless the job has done so."""
        if not job.is_marked:
            self._is_unmarked = True
            note_lost_sync(self._disk, self._directory, self._log)

    def _fail(self, error: Exception) -> StoreFailed:
        if isinstance(error, StoreFailed):
            return error
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        self.error = StoreFailed(self._directory, reason)
        self._log.error(f"  {self.error}; nothing is written to this log until the next start")
        return self.error

    # -- reading back --------------------------------------------------------------------------------------

    def payload(self, group: int, index: int) -> bytes:
        """Return the payload of an entry.

        Raises:
            KeyError: there is no such entry.
            NotNow: the entry is not written yet, or the system is short of a resource.
            CorruptRecord: the record is damaged; the group now counts as damaged too.
            StoreFailed: a write or sync of the log has failed.
        """
        view, head = self._read(self._intact(group), index, whole=True)
        found = payload_of(view, 0, head)
        assert found is not None
        return bytes(found)

    def entries(self, group: int) -> list[tuple[int, int, bytes]]:
        """Return term, kind and body of each entry, as the engine needs them to open a group.

        Raises:
            NotNow, CorruptRecord, StoreFailed: for the same reasons as in `payload`.
        """
        one = self._intact(group)
        found = []
        for index in range(one.start + 1, one.last + 1):
            view, head = self._read(one, index, whole=False)
            found.append((head.entry_term, head.entry_kind, body_of(view, 0, head)))
        return found

    def _read(self, group: StoredGroup, index: int, *, whole: bool) -> tuple[memoryview, Head]:
        """Return the bytes and the head of an entry's record.

        If `whole`, the bytes include the payload, which is checked.
        """
        place, size = group.place_of(index)
        file, at = self._shelf.files[place >> FILE_SHIFT], place & OFFSET_BITS
        if at + size > file.written:
            raise NotNow(f"index {index} of group {group.number} is not written yet")
        try:
            data = self._disk.read_at(file.fd, size if whole else min(size, BODY_SIZE), at)
            if len(data) < size and _body_end(data) > len(data):
                data = self._disk.read_at(file.fd, size, at)
        except OSError as error:
            if is_shortage(error):
                raise NotNow(str(error)) from error
            raise self._damaged(group, file, at, reason_of(error)) from error
        view = memoryview(data)
        head = head_at(view, 0, size, file.id) if _body_end(data) <= len(data) else None
        if head is None or (head.group, head.last, head.size) != (group.number, index, size):
            raise self._damaged(group, file, at, f"the record of index {index} is damaged")
        if whole and payload_of(view, 0, head) is None:
            raise self._damaged(group, file, at, f"the payload of index {index} is damaged")
        return view, head

    def _damaged(self, group: StoredGroup, file: LogFile, at: int, what: str) -> CorruptRecord:
        """Mark a group as damaged, log the damage, and return the error to raise."""
        error = CorruptRecord(file.path, at, what)
        self.damages += 1
        self._log.error(
            f"  {error}; groups that must come back as new replicas: {group.number} {group.name!r}"
        )
        group.lose(str(error))
        return error

    # -- reuse of files ------------------------------------------------------------------------------------

    def crowding(self) -> list[int]:
        """Return the groups that must be compacted, because their records in the oldest file are too many to copy.

        The result is empty unless the log has so many files that the oldest should be freed.
        """
        return sorted(self._shelf.oldest.crowded) if self._has_many_files() else []

    def _has_many_files(self) -> bool:
        """Return whether there are so many files that records of the oldest file should be copied.

        The limit is FILES_FEW plus twice the number of files that the needed records fill, so the log never copies
        more bytes than it writes.
        """
        files = self._shelf.files
        if len(files) <= FILES_FEW:
            return False
        if self._shelf.newest.number != self._counted_at:
            self._counted_at = self._shelf.newest.number
            needed = sum(group.size for group in self.groups.values())
            self._files_max = FILES_FEW + 2 * needed // self._file_size
        return len(files) > self._files_max

    def _carry(self, oldest: LogFile) -> None:
        """Copy some records of the oldest file to the end of the log; set `free_at` when the file is not needed."""
        if oldest.free_at:
            return
        left, last = self._file_size // CARRY_SHARE, self._end.number + CARRY_RECORDS
        while oldest.groups and left > 0 and self._end.number < last:
            number = oldest.groups.pop()
            group = self.groups.get(number)
            if group is None or group.oldest_file != oldest.number:
                continue
            count = group.last - group.start
            if count > CARRY_RECORDS or group.size > self._file_size // CARRY_GROUP_SHARE:
                oldest.crowded.add(number)
                continue
            left -= group.size
            try:
                self._carry_group(group)
            except NotNow:  # out of memory: a later write repeats the attempt
                oldest.groups.add(number)
                return
        for number in list(oldest.crowded):
            group = self.groups.get(number)
            if group is None or group.oldest_file != oldest.number:
                oldest.crowded.discard(number)
        if not oldest.groups and not oldest.crowded:
            oldest.free_at = self._end.number - 1

    def _carry_group(self, group: StoredGroup) -> None:
        """Copy all records of a group to the end of the log, as one change."""
        if not group.damage:
            try:
                read = [self._read(group, i, whole=True) for i in range(group.start + 1, group.last + 1)]
            except CorruptRecord:
                pass  # the group is damaged now
        if group.damage:
            self._stage_base(group, RESET | DAMAGED_FLAG, group.start)
            return
        entries = [(head.entry_term, head.entry_kind, body_of(view, 0, head)) for view, head in read]
        payloads = [bytes(view[RECORD_SIZE_MIN + head.body_size :]) for view, head in read]
        flags, room = RESET | (MORE if entries else 0), sum(head.size for _, head in read)
        self._stage_base(group, flags, group.start, room=room)
        self._end.stage_entries(group, group.start + 1, entries, payloads)
        group.check()


def _body_end(data: bytes) -> int:
    """Return how many bytes of a record are needed to check its head and body."""
    if len(data) < HEAD.size:
        return RECORD_SIZE_MIN
    return RECORD_SIZE_MIN + int(Head._make(HEAD.unpack_from(data)).body_size)
