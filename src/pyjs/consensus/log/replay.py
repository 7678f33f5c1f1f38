"""The reader of a node log: it finds the groups, the end and the lost records, and writes nothing.

A missing record was either never durable, or is damaged. `synced` in later records decides: if it shows that
the missing record was durable, the record is damaged, and reading continues after it. Otherwise the log ends
there, as after a power failure, and later records count as not written.

Damage affects the groups of the lost records. These groups are found in three ways: each record names the group
of the previous record (`before`), a gap in the `seq` of a group shows that its records are missing, and a census
lists the groups with records since the previous census. If the groups of some lost records remain unknown, every
group without a later record or census entry may have lost records and counts as damaged too. A group is intact
again when the records after the loss form a complete log.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.disk import closing, read_around
from pyjs.consensus.log.files import (
    FIRST_AT,
    HEADER,
    LOG,
    TAIL_SIZE,
    UNKNOWN_MACHINE,
    LogFile,
    header_in,
    is_nothing,
    number_in,
    seal_in,
)
from pyjs.consensus.log.group import FILE_SHIFT, StoredGroup
from pyjs.consensus.log.records import (
    CENSUS,
    DAMAGED_FLAG,
    ENTRY,
    GROUP,
    MORE,
    REMOVE,
    RESET,
    WRITE,
    Base,
    Head,
    body_of,
    decode_base,
    decode_census,
    head_at,
    mark_of,
    payload_of,
)
from pyjs.store.format.layout import UNSYNCED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyjs.base.disk import Disk

STEP_SIZE = 1 << 20  # bytes that are read in one step
UNREADABLE = b"\xff" * HEADER.size  # in place of an unreadable header: neither a header nor unwritten space
NO_BEGINNING = "the beginning of its log is missing"
NO_RECORD = "a record of it is missing"
SET_APART = "it lost a part of its log earlier"
UNKNOWN_MANY = 1 << 62  # stands for an unknown number of lost records


@dataclass(eq=False, slots=True)
class Loss:
    """One damaged place in the log, with the records that were lost there."""

    path: str
    offset: int
    size: int
    what: str
    first: int  # number of the first lost record
    left: int = 0  # number of lost records whose groups are unknown
    groups: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.what}"


@dataclass(eq=False, slots=True)
class Change:
    """One record of a change whose last record has not been read yet."""

    head: Head
    file: LogFile
    at: int
    base: Base | None
    state: bytes


class Replay:
    """A reader of the log files in a directory, and the results of the reading."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.groups: dict[int, StoredGroup] = {}
        self.losses: list[Loss] = []
        self.notes: list[Loss] = []  # damage that has lost no records
        self.files: list[LogFile] = []  # files with records that are used, oldest first
        self.stale: list[tuple[str, int]] = []  # path and size of files without any record that is used
        self.broken: list[str] = []  # paths of files without a readable header
        self.ends: dict[int, int] = {}  # number of a file -> offset after its last record
        self.next_number = 1  # number of the next record
        self.last_group = 0  # group of the last record; 0: that record is a census
        self.last_file = 0  # the highest number in a file name
        self.boot = 0  # the highest boot in a header
        self.machine = 0  # machine in the header of the newest file; 0 if the log was closed
        self.has_lost_sync = False  # whether a sync failed in an earlier process
        self.synced = 0  # records up to this number are known to be durable
        self.records = 0
        self.is_in_doubt = False  # whether an earlier start found that groups may be missing
        self.unsynced: deque[tuple[int, int, int]] = deque()  # number, file, offset of records after `synced`
        self._headers: list[LogFile] = []
        self._changes: list[Change] = []
        self._is_over = False

    @property
    def lost_unknown(self) -> bool:
        """Return whether the groups of some lost records are unknown."""
        return bool(self.broken) or any(loss.left for loss in self.losses)

    def steps(self) -> Iterator[None]:
        """Read all files, in steps.

        Raises:
            UnknownLog: a file has another format.
            OSError: a file cannot be opened or read.
        """
        self._find_files()
        if self._headers:
            self.next_number = self._headers[0].header.first
        for at, file in enumerate(self._headers):
            if self._is_over or file.header.first >= self._limit(at):
                self.stale.append((file.path, file.size))
                continue
            yield from self._read_file(at)
        self._give_up_change()
        self._check_end()
        self._judge()

    # -- files ---------------------------------------------------------------------------------------------

    def _find_files(self) -> None:
        for name in self._disk.list_dir(self._directory):
            self.has_lost_sync |= name == UNSYNCED
            number = number_in(name)
            if number:
                self.last_file = max(self.last_file, number)
                self._find_file(f"{self._directory}/{name}", number)
        self._headers.sort(key=lambda file: file.number)
        self.boot = max((file.header.boot for file in self._headers), default=0)

    def _find_file(self, path: str, number: int) -> None:
        with closing(self._disk, self._disk.open_read_only(path)) as fd:
            size = self._disk.size_of(fd)
            head, tail = self._read_ends(fd, size)
            header = header_in(head, path)
            if header is not None and header.number == number and header.size != size:
                tail = b""  # the file was truncated
        copies = [header_in(data, path) for data in (head, tail[-HEADER.size :])]
        header = next((each for each in copies if each and each.number == number), None)
        bad = [not is_nothing(data, number, path) for data in (head, tail[-HEADER.size :])]
        if header is None:
            if all(bad):
                self.broken.append(path)
            else:
                self.stale.append((path, size))
            return
        if copies[0] is None or copies[1] is None:
            at = 0 if copies[0] is None else size - HEADER.size
            if bad[at > 0]:
                self.notes.append(
                    Loss(path, at, HEADER.size, "one of two copies of the header is damaged", 0)
                )
        self._headers.append(LogFile(header, path))

    def _read_ends(self, fd: int, size: int) -> tuple[bytes, bytes]:
        ends = []
        for length, at in ((HEADER.size, 0), (TAIL_SIZE, max(0, size - TAIL_SIZE))):
            try:
                ends.append(self._disk.read_at(fd, length, at))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                ends.append(UNREADABLE)
        return ends[0], ends[1]

    def _limit(self, at: int) -> int:
        """Return the lowest number that a first record has in the later files.

        The records of this file from that number on are ignored.
        """
        return min((file.header.first for file in self._headers[at + 1 :]), default=1 << 64)

    # -- records -------------------------------------------------------------------------------------------

    def _read_file(self, at_file: int) -> Iterator[None]:
        file = self._headers[at_file]
        data = read_around(self._disk, file.path)
        limit = self._limit(at_file)
        if file.header.first > self.next_number and not self._pass_gap_before(at_file, data):
            return
        self._saw_synced(file.header.synced)
        self.files.append(file)
        view, at, paused_at = memoryview(data), FIRST_AT, STEP_SIZE
        end = min(file.end, len(data))
        while self.next_number < limit and not self._is_over:
            head = head_at(view, at, end, file.id)
            if head is None or head.number != self.next_number:
                found = self._search(data, at, file, limit)
                if found is None or not self._pass_gap(at_file, data, at, *found):
                    break
                at, head = found
            if self._take(at_file, data, at, head):
                at += head.size
            if at > paused_at:
                paused_at = at + STEP_SIZE
                yield
        self.ends[file.number] = at

    def _search(self, data: bytes, at: int, file: LogFile, limit: int) -> tuple[int, Head] | None:
        """Return the offset and the head of the next valid record, or None if there is none."""
        for place, head in _heads_after(data, at, file):
            if self.next_number <= head.number < limit:
                return place, head
        return None

    def _pass_gap_before(self, at_file: int, data: bytes) -> bool:
        """Note the loss of the records before a file; return False if the log ends there instead."""
        file = self._headers[at_file]
        if file.header.synced < self.next_number and not self._is_witnessed(at_file, data, FIRST_AT - 1):
            self._is_over = True
            self.stale.append((file.path, file.size))
            return False
        count = file.header.first - self.next_number
        if self.files:
            before = self.files[-1]
            path, at, size = before.path, self.ends[before.number], before.end - self.ends[before.number]
        else:
            path, at, size = file.path, 0, 0
        self._lose(path, at, size, file.header.first, count)
        return True

    def _pass_gap(self, at_file: int, data: bytes, at: int, found_at: int, found: Head) -> bool:
        """Note the loss of the records before `found`; return False if the log ends there instead."""
        if found.synced < self.next_number and not self._is_witnessed(at_file, data, at):
            self._is_over = True
            return False
        path, count = self._headers[at_file].path, found.number - self.next_number
        self._lose(path, at, found_at - at, found.number, count)
        if count == 1:
            self._lose_one(found.before)
        return True

    def _lose_one(self, number: int) -> None:
        """Assign the last loss, which is a single record, to the group `number`; 0 means that it was a census."""
        loss = self.losses[-1]
        loss.left = 0
        if number:
            group = self.groups.setdefault(number, StoredGroup(number))
            loss.groups.add(number)
            group.lose(str(loss))
            group.seen = loss.first

    def _lose(self, path: str, at: int, size: int, next_number: int, count: int) -> None:
        plural = "" if count == 1 else "s"
        loss = Loss(path, at, size, f"{count} record{plural} lost", self.next_number, left=count)
        self.losses.append(loss)
        self.next_number = next_number
        if self._changes:
            group = self.groups[self._changes[0].head.group]
            loss.groups.add(group.number)
            group.lose(str(loss))
            self._changes = []

    def _is_witnessed(self, at_file: int, data: bytes, at: int) -> bool:
        """Return whether a later record, header or seal proves that the next record was durable."""
        number = self.next_number
        file = self._headers[at_file]
        seal = seal_in(data[-TAIL_SIZE:], file.id)
        if seal is not None and seal.last >= number:
            return True
        if any(head.synced >= number for _, head in _heads_after(data, at, file)):
            return True
        for later in self._headers[at_file + 1 :]:
            if later.header.synced >= number:
                return True
            data = read_around(self._disk, later.path)
            if any(head.synced >= number for _, head in _heads_after(data, FIRST_AT - 1, later)):
                return True
        return False

    def _saw_synced(self, synced: int) -> None:
        if synced > self.synced:
            self.synced = synced
            while self.unsynced and self.unsynced[0][0] <= synced:
                self.unsynced.popleft()

    # -- changes -------------------------------------------------------------------------------------------

    def _take(self, at_file: int, data: bytes, at: int, head: Head) -> bool:
        """Process the next record; return False if the log ends before this record."""
        file, view = self._headers[at_file], memoryview(data)
        payload = payload_of(view, at, head)
        if payload is None and not self._is_witnessed(at_file, data, at):
            self._is_over = True
            return False
        self.next_number = head.number + 1
        self.last_group = head.group
        self._saw_synced(head.synced)
        self.unsynced.append((head.number, file.number, at))
        self.records += 1
        body = body_of(view, at, head)
        if head.kind == CENSUS:
            self._take_census(head, *decode_census(body))
            return True
        group = self._group_of(head)
        file.groups.add(group.number)
        if payload is None:
            self._lose_of(group, file, at, head, f"the payload of index {head.last} is damaged")
            return True
        base = decode_base(body) if head.kind == GROUP else None
        self._changes.append(Change(head, file, at, base, bytes(payload) if base else b""))
        if not head.flags & MORE:
            changes, self._changes = self._changes, []
            for change in changes:
                self._apply(group, change)
        return True

    def _lose_of(self, group: StoredGroup, file: LogFile, at: int, head: Head, what: str) -> None:
        """Note the loss of a record of a group, because the record is unusable."""
        loss = Loss(file.path, at, head.size, what, head.number, groups={group.number})
        self.losses.append(loss)
        self._changes = []
        group.lose(str(loss))

    def _group_of(self, head: Head) -> StoredGroup:
        """Return the group of a record; note any records of the group that are missing before this record."""
        group = self.groups.get(head.group)
        if group is None:
            group = self.groups[head.group] = StoredGroup(head.group)
            group.lose(NO_BEGINNING)
            if not self.losses:
                group.seq = head.seq - 1
        is_birth = head.kind == GROUP and head.seq == head.number
        if head.seq != group.seq + 1 and not is_birth:
            self._miss(group, head.seq - group.seq - 1)
        group.seq, group.seen = head.seq, head.number
        return group

    def _miss(self, group: StoredGroup, count: int) -> None:
        """Note that `count` of the lost records belong to a group."""
        hit = [loss for loss in self.losses if loss.first > group.seen and loss.left]
        for loss in hit:
            loss.groups.add(group.number)
        if len(hit) == 1 and count <= hit[0].left:  # otherwise the creation of the group is missing too
            hit[0].left -= count
        group.lose(str(hit[-1]) if hit else NO_RECORD)

    def _apply(self, group: StoredGroup, change: Change) -> None:
        head = change.head
        place = change.file.number << FILE_SHIFT | change.at
        if not _follows(group, change):
            self._lose_of(group, change.file, change.at, head, "it does not follow the records before it")
            return
        group.hard = (head.term, head.vote, head.commit)
        group.written_commit = head.commit
        if head.kind == REMOVE:
            del self.groups[group.number]
        elif change.base is not None:
            group.begin_at(change.base, head.last, place, head.size, reset=bool(head.flags & RESET))
            group.state = change.state
            if head.flags & DAMAGED_FLAG:
                group.lose(SET_APART)
        elif head.kind == WRITE and head.flags & ENTRY:
            group.append(head.last, head.entry_term, place, head.size)

    def _take_census(self, head: Head, since: int, seqs: Sequence[tuple[int, int]]) -> None:
        is_first = self.records == 1
        for number, seq in seqs:
            group = self.groups.get(number)
            if seq == 0:
                self.groups.pop(number, None)
                continue
            if group is None:
                group = self.groups[number] = StoredGroup(number)
                group.lose(NO_BEGINNING)
            if group.seq != seq and not is_first:
                self._miss(group, seq - group.seq)
            group.seq, group.seen = seq, head.number
        if since == 0:
            self.is_in_doubt = bool(head.flags & DAMAGED_FLAG)
        if since == 0 and not is_first:
            listed = {number for number, _ in seqs}
            self.groups = {number: group for number, group in self.groups.items() if number in listed}
        for loss in self.losses:
            if loss.first > since:
                loss.left = 0

    # -- the end -------------------------------------------------------------------------------------------

    def _give_up_change(self) -> None:
        """Undo a change whose last record was not written."""
        if not self._changes:
            return
        first = self._changes[0]
        group = self.groups[first.head.group]
        group.seq -= len(self._changes)
        group.seen = first.head.number - 1
        self.next_number = first.head.number
        self.last_group = first.head.before
        self.ends[first.file.number] = first.at
        while self.unsynced and self.unsynced[-1][0] >= self.next_number:
            self.unsynced.pop()
        self._changes = []

    def _check_end(self) -> None:
        """Note a loss if the end of the log is missing, which may be records of the newest file, or a newer file."""
        newest = self.files[-1] if self.files else None
        self.machine = self._headers[-1].header.machine if self._headers else 0
        if newest is not None:
            with closing(self._disk, self._disk.open_read_only(newest.path)) as fd:
                size = self._disk.size_of(fd)
                seal = seal_in(self._read_ends(fd, size)[1], newest.id)
            end = self.ends[newest.number]
            if size < newest.size:
                self._lose_rest(newest.path, size, "the file was cut")
            elif seal is not None and seal.last >= self.next_number:
                count = seal.last - self.next_number + 1
                self._lose(newest.path, end, max(0, seal.end - end), seal.last + 1, count)
                if count == 1:
                    self._lose_one(seal.group)
            if seal is not None and seal.next == 0 and newest is self._headers[-1]:
                self.machine = 0 if self.machine != UNKNOWN_MACHINE else self.machine
            if seal is not None:
                self.boot = max(self.boot, seal.boot)
                self.last_file = max(self.last_file, seal.next)
            if seal is not None and seal.next:
                path = f"{self._directory}/{seal.next:08d}{LOG}"
                self._lose_rest(path, 0, "the file is missing, or its header is")
                return
        for path in self.broken:
            if newest is None or path > newest.path:
                self._lose_rest(path, 0, "both copies of the header are damaged")
            else:
                self.notes.append(Loss(path, 0, 0, "both copies of the header are damaged", 0))

    def _lose_rest(self, path: str, at: int, what: str) -> None:
        self.losses.append(Loss(path, at, 0, what, self.next_number, left=UNKNOWN_MANY))

    def _judge(self) -> None:
        """Mark groups that may have lost records as damaged; remove groups that are intact from the losses."""
        for loss in self.losses:
            for group in self.groups.values():
                if loss.left and group.seen < loss.first:
                    loss.groups.add(group.number)
                    group.lose(f"{loss}, maybe of it")
        for loss in self.losses:
            loss.groups = {n for n in loss.groups if n in self.groups and self.groups[n].is_damaged}
        named = set().union(*(loss.groups for loss in self.losses))
        for group in self.groups.values():
            if group.is_damaged and group.number not in named and group.damage != SET_APART:
                path = self.files[0].path
                self.losses.append(Loss(path, 0, 0, group.damage, 0, groups={group.number}))


def _follows(group: StoredGroup, change: Change) -> bool:
    """Return whether the invariants of the writer allow a record as the next record of its group."""
    head, base = change.head, change.base
    if base is not None and head.flags & RESET:
        return base.start <= head.last
    if base is not None:
        is_whole = head.last in (base.start, group.last) or group.is_damaged
        return group.start <= base.start <= head.last and is_whole
    if head.kind == WRITE and head.flags & ENTRY:
        before = group.term_at(head.last - 1)
        follows = head.last <= group.last + 1 and before <= head.entry_term
        return group.start < head.last and (follows or group.is_damaged)
    return True


def _heads_after(data: bytes, at: int, file: LogFile) -> Iterator[tuple[int, Head]]:
    """Yield the offset and the head of each valid record after offset `at`."""
    mark, view, end = mark_of(file.id), memoryview(data), min(file.end, len(data))
    place = data.find(mark, at + 1, end)
    while place >= 0:
        head = head_at(view, place, end, file.id)
        if head is None:
            place = data.find(mark, place + 1, end)
            continue
        yield place, head
        place = data.find(mark, place + head.size, end)
