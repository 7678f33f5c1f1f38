"""The real node log in place of the simulated disk, on a file system in memory that loses unsynced data."""

from __future__ import annotations

from random import Random

from raft.tests.sim.disk import Operation, State
from raft.tests.sim.judge import Judge
from raft.tests.sim.net import SimNet
from raft.tests.sim.node import SimNode
from raft.tests.sim.world import World
from tests.sim.disk import SimDisk as FileSystem

from pyjs.base.log import ListLog
from pyjs.consensus.log.group import StoredGroup
from pyjs.consensus.log.node_log import NodeLog
from pyjs_raft import Conf, EntryKind

FILE_SIZES = (4096, 16384)  # small, so that files are reused often
STATE_PART = 8  # bytes per part of a state


def payload_for(kind: int, body: bytes) -> bytes:
    """Return the payload of an entry of the simulation."""
    return body[:8] * 5 if kind == EntryKind.DATA else b""


class StoredFiles:
    """A group of the log, in the form that the simulation expects."""

    def __init__(self, log: NodeLog, group: StoredGroup) -> None:
        self._log = log
        self._group = group
        self.peer, self.hard = group.peer, group.hard
        self.start, self.start_term = group.start, group.start_term

    @property
    def conf(self) -> Conf:
        conf = self._group.conf
        lists = (list(conf.voters), list(conf.learners), list(conf.outgoing), list(conf.next_learners))
        return Conf(*lists, conf.auto_leave)

    @property
    def state(self) -> State:
        data = self._group.state
        return int.from_bytes(data[:STATE_PART], "little"), int.from_bytes(data[STATE_PART:], "little")

    @property
    def entries(self) -> list[tuple[int, int, bytes]]:
        return self._log.entries(self._group.number)


class Groups(dict[int, StoredFiles]):
    """All groups of the log."""

    def __init__(self, log: NodeLog) -> None:
        super().__init__((number, StoredFiles(log, group)) for number, group in log.groups.items())


class LogDisk:
    """The operations of the simulated disk, on a node log."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._files = FileSystem(rng)
        self._incarnations = 0
        self.unsynced: list[Operation] = []
        self.begin()

    def begin(self) -> None:
        """Start a process."""
        self._incarnations += 1
        lines, size = ListLog(), self._rng.choice(FILE_SIZES)
        self.log = NodeLog(self._files, "/store/.raft", lines, self._incarnations, file_size=size)
        for _ in self.log.recover_steps():
            pass
        assert lines.lines == [], lines.lines
        self.unsynced.clear()

    @property
    def written(self) -> Groups:
        """Return all groups as they are in the log."""
        return Groups(self.log)

    def submit(self, operation: Operation) -> None:
        """Write an operation, without a sync."""
        group = operation.group
        if operation.birth is not None:
            birth = operation.birth
            self.log.create(
                group, f"g{group}", birth.peer, birth.conf, birth.start, birth.start_term, bytes(16)
            )
        if operation.point is not None:
            index, term, conf, state = operation.point
            self.log.point(
                group, index, term, conf, b"".join(part.to_bytes(STATE_PART, "little") for part in state)
            )
        self.log.write(operation, [payload_for(kind, body) for _, kind, body in operation.entries])
        self.log.flush()
        self.unsynced.append(operation)

    def sync(self, count: int) -> None:
        """Make the oldest `count` operations durable, and later ones too."""
        job = self.log.begin_sync()
        if job is not None:
            self.log.finish_sync(job, job())
        del self.unsynced[:count]
        if self._rng.random() < 0.1:
            self.log.witness()
        fresh = self.log.begin_fresh_file() if self._rng.random() < 0.1 else None
        if fresh is not None:
            self.log.finish_fresh_file(fresh, fresh())

    def end_process(self) -> None:
        """Lose everything that is not written."""
        self._files.end_process()

    def lose_power(self, rng: Random) -> None:
        """Lose everything that is not synced, except a random prefix."""
        self._files.lose_power()


class LoggedNode(SimNode):
    """A node with a real log."""

    disk: LogDisk  # type: ignore[assignment]

    def __init__(self, number: int, rng: Random, net: SimNet, judge: Judge, others: list[int]) -> None:
        super().__init__(number, rng, net, judge, others)
        self.disk = LogDisk(Random(rng.random()))

    def start(self, now: int) -> None:
        if self.boot:
            self.disk.begin()
        self.boot = self.disk.log.boot - 1
        super().start(now)

    def stop(self) -> None:
        self.is_up = False
        self.disk.end_process()

    def _apply(self, group: int, index: int, term: int, kind: int, body: bytes) -> None:
        super()._apply(group, index, term, kind, body)
        if index > self.disk.log.groups[group].start:
            assert self.disk.log.payload(group, index) == payload_for(kind, body)


class LoggedWorld(World):
    """Nodes with real logs."""

    node_class = LoggedNode
