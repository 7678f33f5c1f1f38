"""Node logs for tests: a log on a disk in memory, a model of its contents, and random operations on both.

A log that is opened returns the model's state after some number of operations: after all of them if the process
ended, after at least the synced ones if the power was cut, and never a mixture.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from tests.sim.disk import SimDisk
from tests.support.disk import Crash

from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import Membership

if TYPE_CHECKING:
    from pyjs.base.disk import Disk

DIRECTORY = "/store/jetstream/.raft"
CONF = Membership((1, 2, 3))
Entry: TypeAlias = tuple[int, int, bytes]


@dataclass(frozen=True)
class Write:
    """The data that the engine gives the log to write."""

    group: int
    hard: tuple[int, int, int] | None = None
    first: int = 0
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Model:
    """The required state of one group."""

    name: str
    peer: int
    conf: Membership
    start: int
    start_term: int
    state: bytes = b""
    hard: tuple[int, int, int] = (0, 0, 0)
    entries: tuple[Entry, ...] = ()
    payloads: tuple[bytes, ...] = ()

    @property
    def last(self) -> int:
        return self.start + len(self.entries)

    def term_at(self, index: int) -> int:
        return self.start_term if index == self.start else self.entries[index - self.start - 1][0]


def opened(
    disk: Disk,
    incarnation: int = 1,
    *,
    file_size: int = 4096,
    log: ListLog | None = None,
    machine: int | None = 0,
) -> NodeLog:
    """Return a log that has recovered."""
    node_log = NodeLog(disk, DIRECTORY, log or ListLog(), incarnation, file_size=file_size, machine=machine)
    for _ in node_log.recover_steps():
        pass
    return node_log


def synced(log: NodeLog) -> None:
    """Flush and sync."""
    log.flush()
    job = log.begin_sync()
    if job is not None:
        log.finish_sync(job, job())
    if log.error is not None:
        raise log.error


def content(log: NodeLog) -> dict[int, Model]:
    """Return the contents of a log's intact groups."""
    return {
        number: Model(
            group.name,
            group.peer,
            group.conf,
            group.start,
            group.start_term,
            group.state,
            group.hard,
            tuple(log.entries(number)),
            tuple(log.payload(number, index) for index in range(group.start + 1, group.last + 1)),
        )
        for number, group in log.groups.items()
        if not group.is_damaged
    }


def without_commits(models: dict[int, Model]) -> dict[int, Model]:
    """Return the groups without commit indexes: a crash may lose the newest ones, which leaders send again."""
    return {number: replace(model, hard=(*model.hard[:2], 0)) for number, model in models.items()}


@dataclass
class Driver:
    """Does random operations on a log; `history[n]` is the model after n operations."""

    rng: Random
    disk: SimDisk
    file_size: int = 4096
    incarnation: int = 0
    history: list[dict[int, Model]] = field(default_factory=lambda: [{}])
    durable: int = 0  # number of operations that must survive a power loss
    flushed: int = 0  # number of operations that must survive the end of the process
    machine: int = 0  # number of the boot of the machine; 0: other nodes rely only on what is synced
    told: int = 0  # number of operations that were flushed: with a `machine`, other nodes may rely on them
    boots: list[int] = field(default_factory=list)
    body: int = 0

    def open(self) -> None:
        """Start a process, and compare the contents that it finds."""
        self.incarnation += 1
        lines = ListLog()
        self.log = opened(
            self.disk, self.incarnation, file_size=self.file_size, log=lines, machine=self.machine
        )
        assert lines.lines == [], lines.lines
        assert not self.boots or self.log.boot > self.boots[-1], (self.log.boot, self.boots)
        self.boots.append(self.log.boot)
        found = content(self.log)
        may_be = range(len(self.history) - 1, self.flushed - 1, -1)
        at = next((n for n in may_be if without_commits(self.history[n]) == without_commits(found)), -1)
        assert at >= 0, (found, self.history[self.durable :])
        assert all(model.hard[2] <= self.history[at][number].hard[2] for number, model in found.items())
        told = self.told if self.machine else self.durable
        assert at >= told or self.log.is_doubtful, f"operations {at} to {told} are lost, and the log is sure"
        assert self.machine or not self.log.is_doubtful
        self.history[at:] = [found]
        self.durable = self.flushed = self.told = at
        if self.log.is_doubtful and self.rng.random() < 0.5:
            self.log.trust()

    @property
    def models(self) -> dict[int, Model]:
        return self.history[-1]

    def step(self) -> None:
        """Do a random operation."""
        kind = self.rng.random()
        if kind < 0.45:
            self._change()
        elif kind < 0.7:
            self.log.flush()
            self.flushed = len(self.history) - 1
        elif kind < 0.93:
            synced(self.log)
            self.durable = self.flushed = len(self.history) - 1
            for group in self.log.crowding():
                self._compact(group)
        elif kind < 0.97:
            self.log.witness()
            self.flushed = len(self.history) - 1 if self.log._end.is_empty else self.flushed
        else:
            job = self.log.begin_fresh_file()
            if job is not None:
                self.log.finish_fresh_file(job, job())

    def _change(self) -> None:
        models, rng = self.models, self.rng
        if not models or (len(models) < 5 and rng.random() < 0.15):
            return self._create(rng.randrange(1, 8))
        group = rng.choice(sorted(models))
        kind = rng.random()
        if kind < 0.04:
            self.log.remove(group)
            return self._done({n: model for n, model in models.items() if n != group})
        if kind < 0.15:
            return self._compact(group)
        if kind < 0.2:
            return self._install(group)
        return self._write(group)

    def _done(self, models: dict[int, Model]) -> None:
        self.history.append(models)

    def _set(self, group: int, model: Model) -> None:
        self._done({**self.models, group: model})

    def _create(self, group: int) -> None:
        peer = len(self.history) + 1000 * self.incarnation
        model = Model(f"g{group} é", peer, CONF if self.rng.random() < 0.7 else Membership(), 1, 1)
        self.log.create(group, model.name, model.peer, model.conf, model.start, model.start_term)
        self._set(group, model)

    def _compact(self, group: int) -> None:
        model = self.models[group]
        index = self.rng.randint(model.start, model.last)
        cut = index - model.start
        after = replace(
            model,
            start=index,
            start_term=model.term_at(index),
            conf=Membership((1, 2), (3,), (4,), (5,), True),
            state=self.rng.randbytes(self.rng.randrange(40)),
            entries=model.entries[cut:],
            payloads=model.payloads[cut:],
        )
        self.log.point(group, index, after.start_term, after.conf, after.state)
        self._set(group, after)

    def _install(self, group: int) -> None:
        model = self.models[group]
        index, term = model.last + self.rng.randrange(1, 5), max(model.hard[0], model.term_at(model.last)) + 1
        after = replace(model, start=index, start_term=term, conf=CONF, state=b"S", entries=(), payloads=())
        self.log.point(group, index, term, CONF, b"S")
        self._set(group, after)

    def _write(self, group: int) -> None:
        model, rng = self.models[group], self.rng
        term = max(model.hard[0], model.term_at(model.last))
        first = model.last + 1
        if rng.random() < 0.2:  # another leader replaces a suffix
            term += 1
            first = max(model.start + 1, model.hard[2] + 1, rng.randint(model.start + 1, model.last + 1))
        entries, payloads = [], []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
            self.body += 1
            entries.append((term, 1, self.body.to_bytes(40, "little")))
            payloads.append(rng.randbytes(rng.choice((0, 8, 60, 300))))
        kept = first - model.start - 1 if entries else len(model.entries)
        after = replace(
            model,
            entries=(*model.entries[:kept], *entries),
            payloads=(*model.payloads[:kept], *payloads),
        )
        hard = None
        if not entries or rng.random() < 0.6:
            vote = model.hard[1] if term == model.hard[0] and model.hard[1] else rng.randrange(3)
            hard = (term, vote, rng.randint(min(model.hard[2], after.last), after.last))
            hard = (term, vote, max(hard[2], model.hard[2]))
            after = replace(after, hard=hard)
        if after.hard[2] > after.last:
            return
        self.log.write(Write(group, hard, first if entries else 0, tuple(entries)), payloads)
        self._set(group, after)

    # -- troubles ------------------------------------------------------------------------------------------

    def trouble(self) -> None:
        """Let the process, the machine or the disk fail during the next calls, and start again."""
        rng = self.rng
        how = rng.choice(("kill", "power", "EIO", "ENOSPC", "close"))
        if how in ("kill", "power"):
            self.disk.crash_in = rng.randrange(12)
        elif how != "close":
            self.disk.fail_in, self.disk.failure = rng.randrange(12), getattr(errno, how)
        try:
            for _ in range(30):
                self.step()
            self.log.close()
            if self.log.error is None:
                self.durable = self.flushed = len(self.history) - 1
        except (Crash, StoreFailed):
            pass
        self._end(power=rng.random() < 0.5 and how != "kill")
        self._reopen()

    def _end(self, *, power: bool) -> None:
        """End the process, or cut the power."""
        self.told = max(self.told, self.flushed)
        if power:
            self.disk.lose_power()
            self.machine += 4 if self.machine else 0
            self.flushed = self.durable
        else:
            self.disk.end_process()
            if self.disk.evicted:  # a failed sync had lost records, as a power cut does
                self.flushed = self.durable

    def _reopen(self) -> None:
        """Open the log again; in some cases that start fails too."""
        while self.rng.random() < 0.3:
            kind = self.rng.random()
            if kind < 0.6:
                self.disk.crash_in = self.rng.randrange(25)
            else:
                self.disk.fail_in, self.disk.failure = self.rng.randrange(25), errno.EIO
            try:
                self.open()
            except (Crash, StoreFailed):
                pass
            self._end(power=self.rng.random() < 0.5)
        self.open()


def play(seed: int, troubles: int = 12) -> Driver:
    """Play the history of one seed."""
    rng = Random(seed)
    driver = Driver(rng, SimDisk(Random(seed + 1)), file_size=rng.choice((1024, 4096, 16384)))
    driver.machine = 2 * (seed % 2)
    driver.open()
    for _ in range(troubles):
        for _ in range(rng.randrange(40)):
            driver.step()
        driver.trouble()
    return driver


def files_of(disk: SimDisk) -> dict[str, bytes]:
    """Return the files of a log."""
    return {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_dir(DIRECTORY)}


def disk_with(files: dict[str, bytes]) -> SimDisk:
    """Return a disk with the files of a log, all of them synced."""
    disk = SimDisk(Random(0))
    disk.make_dirs(DIRECTORY)
    for name, data in files.items():
        fd = disk.open_file(f"{DIRECTORY}/{name}", create=True)
        disk.write_at(fd, data, 0)
        disk.sync_file(fd)
        disk.close_file(fd)
    return disk


def wrong_after(files: dict[str, bytes], histories: list[dict[int, Model]]) -> str:
    """Open damaged files twice; return a fault: a group in a state that it never had, or missing without a report.

    `histories` are the states that may be found; the last one is the newest.
    """
    disk = disk_with(files)
    log = opened(disk, 99)
    found = content(log)
    lost = {number for number, group in log.groups.items() if group.is_damaged}
    for number in (histories[-1].keys() | found.keys()) - lost:
        is_known = any(history.get(number) == found.get(number) for history in histories)
        if not is_known and (number in found or not log.lost_unknown):
            return f"group {number} is {found.get(number)}"
    in_doubt = log.lost_unknown
    disk.lose_power()
    log = opened(disk, 100)
    again = {number for number, group in log.groups.items() if group.is_damaged}
    if (content(log), again, log.lost_unknown) != (found, lost, in_doubt):
        return (
            f"damaged are {sorted(again)} after {sorted(lost)}, in doubt {log.lost_unknown} after {in_doubt}"
        )
    return ""
