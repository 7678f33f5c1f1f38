"""The disks of the simulation: the real log on a file system in memory, or a log in memory without a disk.

The log in memory is fast, and flaws are easy to add to it. A power cut keeps a random prefix of its unsynced
operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from tests.sim.disk import SimDisk

from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.consensus.engine import Write
from pyjs.consensus.log.files import number_in
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import Members, Membership

DIRECTORY = "/store/.raft"
FILE_SIZES = (16384, 65536)  # small, so that files are reused often
Entry: TypeAlias = tuple[int, int, bytes, bytes]  # term, kind, body, payload


@dataclass(frozen=True)
class Files:
    """The stored state of one group."""

    name: str
    peer: int
    conf: Membership
    start: int
    start_term: int
    state: bytes = b""
    hard: tuple[int, int, int] = (0, 0, 0)
    rows: tuple[Entry, ...] = ()
    is_damaged: bool = False

    @property
    def damage(self) -> str:
        """Return a description of the loss."""
        return "lost" if self.is_damaged else ""

    def written(self, write: Write, payloads: Sequence[bytes]) -> Files:
        """Return the state after a write of a vote and of entries.

        The new entries replace all stored entries from the index of the first new entry on.
        """
        rows = self.rows
        if write.entries:
            assert self.start < write.first <= self.start + len(rows) + 1, (self.start, write.first)
            new = [(*entry, payload) for entry, payload in zip(write.entries, payloads, strict=True)]
            rows = (*rows[: write.first - self.start - 1], *new)
        return replace(self, hard=write.hard or self.hard, rows=rows)

    def beginning(self, index: int, term: int, conf: Members, state: bytes) -> Files:
        """Return the state with another start; the entries after `index` remain if the log has `term` at `index`."""
        kept = self.rows[index - self.start :] if self.term_at(index) == term else ()
        return replace(self, start=index, start_term=term, conf=Membership.of(conf), state=state, rows=kept)

    def term_at(self, index: int) -> int:
        """Return the term of the entry at an index, or 0 if the log does not have this entry."""
        at = index - self.start - 1
        if at == -1:
            return self.start_term
        return self.rows[at][0] if 0 <= at < len(self.rows) else 0


Groups: TypeAlias = dict[int, Files]
Operation: TypeAlias = Callable[[Groups], None]


@dataclass
class Job:
    """A sync that covers the oldest `count` operations."""

    count: int

    def __call__(self) -> Exception | None:
        """Do nothing: finish_sync makes the operations durable."""
        return None


@dataclass
class MemoryLog:
    """The log of one node. When a process ends, everything that was flushed remains."""

    boot: int = 1
    groups: Groups = field(default_factory=dict)  # all groups, including staged changes
    is_broken: bool = False  # every write fails
    is_damaged: bool = False
    lost_unknown: bool = False
    tells_early: bool = False  # acknowledges entries to other nodes before they are synced
    is_doubtful: bool = False
    _written: Groups = field(default_factory=dict)
    _durable: Groups = field(default_factory=dict)
    _staged: list[Operation] = field(default_factory=list)
    _unsynced: list[Operation] = field(default_factory=list)
    _is_syncing: bool = False

    # -- the interface -----------------------------------------------------------------------------------------

    def create(self, group: int, name: str, peer: int, conf: Members, start: int, start_term: int) -> None:
        """Stage the creation of a group."""
        self._stage(
            lambda groups: groups.__setitem__(
                group, Files(name, peer, Membership.of(conf), start, start_term)
            )
        )

    def remove(self, group: int) -> None:
        """Stage the removal of a group."""
        self._stage(lambda groups: groups.__delitem__(group))

    def write(self, write: Write, payloads: Sequence[bytes]) -> bool:
        """Stage a vote and entries."""
        group = write.group
        self._stage(lambda groups: groups.__setitem__(group, groups[group].written(write, payloads)))
        return True

    def stage_commits(self) -> bool:
        """Do nothing: `write` has staged the commit index."""
        return False

    def point(self, group: int, index: int, term: int, conf: Members, state: bytes) -> None:
        """Stage a new start of a log."""
        self._stage(
            lambda groups: groups.__setitem__(group, groups[group].beginning(index, term, conf, state))
        )

    def flush(self) -> None:
        """Write everything that is staged."""
        if self.is_broken:
            raise StoreFailed("/consensus", "no space left on device")
        for operation in self._staged:
            operation(self._written)
        self._unsynced += self._staged
        self._staged.clear()

    def begin_sync(self) -> Job | None:
        """Return a sync job for everything that is written."""
        if self._is_syncing or not self._unsynced:
            return None
        self._is_syncing = True
        return Job(len(self._unsynced))

    def finish_sync(self, job: Job, error: Exception | None) -> None:
        """Handle the result of a sync."""
        self._is_syncing = False
        if error is None:
            self._make_durable(job.count)

    def entries(self, group: int) -> list[tuple[int, int, bytes]]:
        """Return the entries without payloads."""
        return [row[:3] for row in self.groups[group].rows]

    def crowding(self) -> list[int]:
        """Return no group, since there are no files to reuse."""
        return []

    def witness(self) -> None:
        """Do nothing."""

    def begin_fresh_file(self) -> None:
        """Do nothing: no file is needed."""

    def payload(self, group: int, index: int) -> bytes:
        """Return the payload of an entry."""
        files = self._written[group]
        return files.rows[index - files.start - 1][3]

    def forget_commit(self, group: int) -> None:
        """Reset the commit index of a group."""
        for groups in (self._written, self.groups):
            files = groups[group]
            groups[group] = replace(files, hard=(*files.hard[:2], files.start))

    def trust(self) -> None:
        """Record that no entries are missing."""
        self.is_doubtful = False

    # -- the simulation ----------------------------------------------------------------------------------------

    def _stage(self, operation: Operation) -> None:
        operation(self.groups)
        self._staged.append(operation)

    def _make_durable(self, count: int) -> None:
        for operation in self._unsynced[:count]:
            operation(self._durable)
        del self._unsynced[:count]

    def begin(self) -> MemoryLog:
        """Start a process."""
        return self

    def damage(self, rng: Random, end: tuple[int, int]) -> None:
        """Lose a part of a group's log, while no process runs."""
        self.is_damaged = True
        group = rng.choice(sorted(self._durable))
        for groups in (self._durable, self._written, self.groups):
            groups[group] = replace(groups[group], is_damaged=True)

    def fail(self, rng: Random, *, may_lose: bool) -> None:
        """Make every write fail."""
        self.is_broken = True

    def end(self) -> None:
        """End the process; the kernel writes its data eventually."""
        self._make_durable(len(self._unsynced))
        self._begin_again()

    def lose_power(self, rng: Random) -> None:
        """Lose the unsynced operations, except a random prefix."""
        self._make_durable(rng.randrange(len(self._unsynced) + 1))
        self._begin_again()
        self.is_doubtful |= self.tells_early

    def _begin_again(self) -> None:
        self._unsynced.clear()
        self._staged.clear()
        self._written = dict(self._durable)
        self.groups = dict(self._durable)
        self._is_syncing = False
        self.is_broken = False
        self.boot += 1


class Store:
    """The real log on a file system in memory that loses unsynced data in a power cut."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._files = SimDisk(self._rng)
        self._processes = 0
        self.is_broken = False
        self.is_damaged = False  # damaged now or earlier
        self.tells_early = False
        self._machine = 2

    def begin(self) -> NodeLog:
        """Start a process."""
        self._processes += 1
        lines = ListLog()
        size = self._rng.choice(FILE_SIZES)
        machine = self._machine if self.tells_early else 0
        log = NodeLog(self._files, DIRECTORY, lines, self._processes, file_size=size, machine=machine)
        for _ in log.recover_steps():
            pass
        assert self.is_damaged or lines.lines == [], lines.lines
        return log

    def damage(self, rng: Random, end: tuple[int, int]) -> None:
        """Flip a bit of the log before `end` (number of a file, offset in it), while no process runs."""
        self.is_damaged = True
        places = []
        for name in self._files.list_dir(DIRECTORY):
            number, path = number_in(name), f"{DIRECTORY}/{name}"
            if number and number <= end[0]:
                places.append((path, end[1] if number == end[0] else len(self._files.read_file(path))))
        path, size = rng.choice(places)
        data = bytearray(self._files.read_file(path))
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
        fd = self._files.open_file(path)
        self._files.write_at(fd, bytes(data), 0)
        self._files.sync_file(fd)
        self._files.close_file(fd)

    def fail(self, rng: Random, *, may_lose: bool) -> None:
        """Make one of the next calls fail; unless `may_lose`, it is a write, since a failed sync may lose records."""
        self.is_broken = True
        self._files.failing = "" if may_lose else "write"
        self._files.fail_in = rng.randrange(4)

    def end(self) -> None:
        """End the process; the kernel writes its data eventually."""
        self.is_broken = False
        self._files.end_process()

    def lose_power(self, rng: Random) -> None:
        """Lose unsynced data, as the file system does."""
        self.is_broken = False
        self._machine += 1
        self._files.lose_power()
