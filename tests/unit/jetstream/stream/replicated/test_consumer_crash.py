"""A replica with consumers whose process ended at some call of the disk is finally equal to one that always ran."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.disk import Crash
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member
from tests.unit.jetstream.stream.replicated.test_consumer_histories import Clients
from tests.unit.jetstream.stream.replicated.test_crash import DyingDisk, finish_chores

from pyjs.jetstream.config.choices import FILE
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from pyjs.jetstream.config.stream import StreamConfig

Entry = tuple[int, int, int, bytes]


def history(seed: int) -> tuple[StreamConfig, list[Entry]]:
    """Return a stream, and the entries that were committed while clients used its consumers."""
    clients = Clients(seed)
    for _ in range(120):
        clients.step()
    clients.js.settle()
    return replace(clients.js.leader.stream.config, storage=FILE), clients.js.group.log


class Life:
    """One replica over several starts, with the consumer state that its log would have."""

    def __init__(self, of: StreamConfig, directory: Path, log: list[Entry], seed: int) -> None:
        self.of, self.directory, self.log = of, str(directory), log
        self.rng = random.Random(seed)
        self.dump = b""

    def live(self, disk: DyingDisk) -> dict[str, Any] | None:
        """Start, and apply the log from the entry after the last snapshot; return None if the process ended."""
        try:
            member = Member(Loopback(), self.of, self.directory, disk)
            consumers = member.replica.consumers
            if self.dump:
                consumers.load(self.dump)
            for entry in self.log[consumers.index :]:
                member.replica.apply(*entry)
                self.some_work(member)
                if disk.dead:
                    return None
            member.stream.commit()
        except Crash:
            return None
        return None if disk.dead else member.state() | {"consumers": consumers.dump()}

    def some_work(self, member: Member) -> None:
        """At random, commit, sync, and take a snapshot of durable state."""
        assert isinstance(member.store, FileStore)
        if self.rng.random() < 0.4:
            member.stream.commit()
        if self.rng.random() < 0.2:
            member.store.sync_now()
            if member.store.synced_index == member.replica.index:
                self.dump = member.replica.consumers.dump()
        finish_chores(member, self.rng)


@pytest.mark.parametrize("power", [False, True])
def test_a_replica_with_consumers_that_died_is_equal_afterwards(tmp_path: Path, power: bool) -> None:
    deaths = snapshots = 0
    for seed in range(3):
        of, log = history(seed)
        disk = DyingDisk()
        wanted = Life(of, tmp_path / f"{seed}", log, seed).live(disk)
        assert wanted is not None
        for at in range(seed, disk.calls, 7):
            life = Life(of, tmp_path / f"{seed}-{at}", log, seed)
            dying = DyingDisk(at)
            if life.live(dying) is None:
                deaths += 1
                if power:
                    dying.lose_power()
            snapshots += life.dump != b""
            found = life.live(DyingDisk())
            assert found is not None
            assert {name: found[name] == wanted[name] for name in wanted} == dict.fromkeys(wanted, True), at
    assert deaths >= 10
    assert snapshots >= 5
