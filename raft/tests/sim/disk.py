"""A disk in memory for the logs of one node: a power cut keeps a random prefix of the unsynced operations.

An operation is written completely or not at all, which the real log achieves with checksums. This module does not
depend on the engine.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from pyjs_raft import Conf

Entry: TypeAlias = tuple[int, int, bytes]  # term, kind, body
# state of the application: number of applied entries with data, and their digest
State: TypeAlias = tuple[int, int]


@dataclass
class GroupFiles:
    """The stored state of one group."""

    peer: int
    conf: Conf
    start: int
    start_term: int
    state: State = (0, 0)  # state of the application at `start`
    hard: tuple[int, int, int] = (0, 0, 0)
    entries: tuple[Entry, ...] = ()  # entries from start + 1 on

    def write(self, hard: tuple[int, int, int] | None, first: int, entries: list[Entry]) -> None:
        """Store a vote, and entries in place of those from `first` on."""
        self.hard = hard or self.hard
        if entries:
            assert self.start < first <= self.start + len(self.entries) + 1, (self.start, first)
            self.entries = (*self.entries[: first - self.start - 1], *entries)

    def begin_at(self, index: int, term: int, conf: Conf, state: State) -> None:
        """Move the start of the log; later entries remain if the log has an entry with this index and term."""
        kept = self.entries[index - self.start :] if self.has(index, term) else ()
        self.entries = kept
        self.start, self.start_term, self.conf, self.state = index, term, conf, state

    def has(self, index: int, term: int) -> bool:
        """Return whether the log has an entry with this index and term."""
        if index == self.start:
            return term == self.start_term
        at = index - self.start - 1
        return 0 <= at < len(self.entries) and self.entries[at][0] == term


@dataclass(frozen=True)
class Operation:
    """One change of the files of a group."""

    group: int
    hard: tuple[int, int, int] | None = None
    first: int = 0
    entries: tuple[Entry, ...] = ()
    point: tuple[int, int, Conf, State] | None = None
    birth: GroupFiles | None = None


@dataclass
class SimDisk:
    """All groups of a node, as written and as durable."""

    written: dict[int, GroupFiles] = field(default_factory=dict)
    durable: dict[int, GroupFiles] = field(default_factory=dict)
    unsynced: list[Operation] = field(default_factory=list)

    def submit(self, operation: Operation) -> None:
        """Write an operation, without a sync."""
        _perform(self.written, operation)
        self.unsynced.append(operation)

    def sync(self, count: int) -> None:
        """Make the oldest `count` operations durable."""
        for operation in self.unsynced[:count]:
            _perform(self.durable, operation)
        del self.unsynced[:count]

    def lose_power(self, rng: Random) -> None:
        """Lose the unsynced operations, except a random prefix."""
        self.sync(rng.randrange(len(self.unsynced) + 1))
        self.unsynced.clear()
        self.written = {group: copy(files) for group, files in self.durable.items()}


def _perform(files: dict[int, GroupFiles], operation: Operation) -> None:
    if operation.birth is not None:
        files[operation.group] = copy(operation.birth)
        return
    one = files[operation.group]
    if operation.point is not None:
        one.begin_at(*operation.point)
    one.write(operation.hard, operation.first, list(operation.entries))
