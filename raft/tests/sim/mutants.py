"""Nodes with a flaw that the judge must detect within some seeds; this proves that the judge works."""

from __future__ import annotations

from dataclasses import replace

from raft.tests.sim.disk import Operation
from raft.tests.sim.node import SimNode, next_state
from raft.tests.sim.world import World

from pyjs_raft import EntryKind, Ready, Refused, Role, Write


class HastyNode(SimNode):
    """A node that reports an entry or a vote to its peers before this entry or vote is durable."""

    def _begin_sync(self, token: int, count: int) -> None:
        super()._begin_sync(0, count)
        self._report_stored(token)


class ForgetfulNode(SimNode):
    """A node that does not store its votes."""

    def _operation(self, write: Write) -> Operation:
        operation = super()._operation(write)
        if operation.hard is None:
            return operation
        return replace(operation, hard=(operation.hard[0], 0, operation.hard[2]))


class EagerReader(SimNode):
    """A node that answers reads as the leader from all entries of its log, even if they are not committed."""

    def read(self, group: int) -> None:
        status = self.engine.status(group)
        if status.role != Role.LEADER:
            return
        state = self.states[group]
        for index in range(self.applied[group] + 1, status.last + 1):
            entry = self.engine.entry(group, index)
            if entry is None:
                return  # the entry was proposed in this turn
            state = next_state(state, entry[2]) if entry[1] == EntryKind.DATA else state
        self.judge.read(group, self.judge.floor(group), status.last, state)


class StaleReader(SimNode):
    """A node that answers reads without confirmation if it believes that it leads."""

    def read(self, group: int) -> None:
        if self.engine.status(group).role == Role.LEADER:
            self.judge.read(group, self.judge.floor(group), self.applied[group], self.states[group])


class CarelessInstaller(SimNode):
    """A node that uses a snapshot before the data of the snapshot has arrived."""

    def _take(self, ready: Ready) -> None:
        super()._take(ready)
        for write in [one[2] for one in self.installs]:
            point = write.snapshot
            assert point is not None
            known = [
                s
                for (_, group, index), s in self.judge.bulk.items()
                if (group, index) == (write.group, point.index)
            ]
            try:
                self._send(self.engine.installed(write.group, point.index))
            except Refused:
                continue  # the vote is not stored yet
            self._take_state(write.group, point.index, known[0])
            self.installs = [one for one in self.installs if one[2] is not write]

    def _operation(self, write: Write) -> Operation:
        operation = super()._operation(write)
        files = self.disk.written[write.group]
        if operation.entries and operation.first > files.start + len(files.entries) + 1:
            return replace(operation, entries=())  # a gap: a start ignores the entries after it
        return operation

    def compact(self, group: int) -> None:
        """Do nothing, since the log on the disk may be incomplete."""


class SoundSleeper(SimNode):
    """A node that does not watch sleeping groups."""

    watch_ticks = 60_000


MUTANTS: dict[str, type[SimNode]] = {
    "tells before durable": HastyNode,
    "forgets its vote": ForgetfulNode,
    "reads beyond commit": EagerReader,
    "reads without asking": StaleReader,
    "applies past a snapshot": CarelessInstaller,
    "sleeps for ever": SoundSleeper,
}


def world_of(node: type[SimNode]) -> type[World]:
    """Return a world with nodes of this class."""
    storms = 0.0 if node is SoundSleeper else 1.0  # during a storm no group sleeps
    return type("MutantWorld", (World,), {"node_class": node, "storms": storms})
