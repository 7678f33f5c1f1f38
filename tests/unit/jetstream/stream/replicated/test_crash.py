"""A replica whose process ended at some call of the disk is equal to one that always ran, once it has caught up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import Crash, LossyDisk, crash_is_printed
from tests.unit.jetstream.stream.replicated.payloads import message, payload_of
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member, config

from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.jetstream.stream.stream_consumer import StreamConsumer
from pyjs.store.crypt.keys import CHACHA, KeyRing, StreamKey
from pyjs.store.file.store import FileStore

Entry = tuple[int, int, int, bytes]
S = 1_000_000_000
START_NS = 1_700_000_000 * S


class DyingDisk(LossyDisk):
    """Ends the process at call number `at` of those that change something, and at every later one."""

    def __init__(self, at: int = -1) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return 0 <= self.at < self.calls

    def lose_power(self) -> None:
        self.at = -1
        super().lose_power()

    def _count(self) -> bool:
        if self.dead:
            raise Crash
        self.calls += 1
        return self.dead

    def open_file(self, path: str, *, create: bool = False) -> int:
        if create and self._count():
            raise Crash
        return super().open_file(path, create=create)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self._count():
            super().write_at(fd, data[: len(data) // 2], offset)
            raise Crash
        super().write_at(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        if self._count():
            raise Crash
        super().truncate(fd, size)

    def sync_file(self, fd: int) -> None:
        if self._count():
            raise Crash
        super().sync_file(fd)

    def unlink(self, path: str) -> None:
        if self._count():
            raise Crash
        super().unlink(path)

    def rename(self, old: str, new: str) -> None:
        if self._count():
            raise Crash
        super().rename(old, new)
        if old in self._named:  # the file is found under its old or its new name
            self._named.add(new)


def entries(rng: random.Random, count: int, retention: str = "limits") -> list[Entry]:
    """Return random entries: messages with headers of all kinds, and operations."""
    made: list[Entry] = []
    for index in range(1, count + 1):
        chance = rng.random()
        if chance < 0.04:
            payload = operations.purge(rng.choice((b"", b"s.1", b"s.*")), rng.choice((0, 9)), 0)
        elif chance < 0.08:
            payload = operations.purge(rng.choice((b"", b"s.2")), 0, rng.randrange(1, 4))
        elif chance < 0.16:
            payload = operations.delete(rng.randrange(1, 3 * index), rng.random() < 0.5)
        elif chance < 0.18:
            payload = operations.skip(rng.randrange(1, 6 * index))
        elif chance < 0.21:
            payload = operations.configure(options(rng, retention))
        elif chance < 0.25:
            payload = operation("expiry")
        else:
            payload = payload_of([_message(rng) for _ in range(rng.randrange(1, 6))])
        made.append((index, 1 + index // 20, START_NS + index * S, payload))
    return made


def _message(rng: random.Random) -> bytes:
    headers = []
    if rng.random() < 0.3:
        headers.append(f"Nats-Msg-Id: {rng.randrange(30)}")
    if rng.random() < 0.1:
        headers.append(f"Nats-Expected-Last-Subject-Sequence: {rng.randrange(20)}")
    if rng.random() < 0.1:
        headers.append(f"Nats-Expected-Last-Msg-Id: {rng.randrange(30)}")
    if rng.random() < 0.1:
        headers.append(f"Nats-Rollup: {rng.choice(('sub', 'all'))}")
    if rng.random() < 0.1:
        headers.append(f"Nats-TTL: {rng.choice((1, 3, 9))}")
    size = rng.choice((3, 3, 3, 900, 30_000))
    return message(f"s.{rng.randrange(4)}".encode(), headers, bytes(rng.choices(b"abc", k=size)))


def finish_chores(member: Member, rng: random.Random) -> None:
    """Run the operations to their end, with commits and syncs between their steps."""
    turn = member.stream.turn
    while turn.chores or turn.jobs:
        if rng.random() < 0.5:
            member.stream.commit()
        if rng.random() < 0.3:
            member.store.sync_now()
        for job in turn.take("jobs"):
            job.run()
            job.finish(None)
        for chore in turn.take("chores"):
            if chore.go_on():
                turn.chores.append(chore)


class Life:
    """One replica and its restarts."""

    def __init__(
        self, of: StreamConfig, directory: Path, log: list[Entry], seed: int, key: StreamKey | None = None
    ) -> None:
        self.key = key
        self.of, self.directory, self.log = of, str(directory), log
        self.rng = random.Random(seed)

    def keep(self, changed: StreamConfig) -> Iterator[None]:
        """Store a changed configuration."""
        yield None
        self.of = changed

    def live(self, disk: DyingDisk) -> Member | None:
        """Start, and apply the log from the entry after the last one applied; return None if the process ended."""
        try:
            member = Member(Loopback(), self.of, self.directory, disk, self.key, self.keep)
            member.stream.add_consumer(Reader("c", (b"s.1", b"s.2")))
            for entry in self.log[member.applied :]:
                member.replica.apply(*entry)
                if self.rng.random() < 0.4:
                    member.stream.commit()
                if self.rng.random() < 0.1:
                    assert isinstance(member.store, FileStore)
                    member.store.sync_now()
                finish_chores(member, self.rng)
                if disk.dead:
                    return None
            member.stream.commit()
        except Crash:
            return None
        return None if disk.dead else member


class Reader(StreamConsumer):
    """A consumer of a stream with interest retention."""

    config = ConsumerConfig()


def options(rng: random.Random, retention: str = "limits") -> StreamConfig:
    """Return the configuration of a stream with random limits."""
    return config(
        storage=FILE,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        retention=retention,
        max_msgs=rng.choice((-1, 12)),
        max_msgs_per_subject=rng.choice((-1, 3)),
        discard=rng.choice(("old", "old", "new")),
        duplicate_window_ns=rng.choice((5, 1000)) * S,
        max_age_ns=rng.choice((0, 0, 12)) * S,
    )


def shown(member: Member) -> dict[str, Any]:
    """Return the state of a member."""
    return member.state()


def lives(directory: Path, seed: int, power: bool, stride: int, key: StreamKey | None = None) -> int:
    """End a replica's process at every `stride`-th call of the disk; return the number of ends."""
    rng = random.Random(seed)
    retention = rng.choice(("limits", "limits", "interest"))
    of, log = options(rng, retention), entries(rng, 40, retention)
    disk = DyingDisk()
    never = Life(of, directory / "never", log, seed, key).live(disk)
    assert never is not None
    wanted, deaths = shown(never), 0
    for at in range(rng.randrange(stride), disk.calls, stride):
        life = Life(of, directory / f"{at}", log, seed, key)
        dying = DyingDisk(at)
        if life.live(dying) is None:
            deaths += 1
            if power:
                dying.lose_power()
        again = life.live(DyingDisk())
        assert again is not None
        found = shown(again)
        assert {name: found[name] == wanted[name] for name in wanted} == dict.fromkeys(wanted, True), at
        assert again.store.lost is None
    return deaths


@crash_is_printed
@pytest.mark.parametrize("power", [False, True])
def test_a_replica_that_died_is_equal_afterwards(tmp_path: Path, power: bool) -> None:
    for seed in range(4):
        assert lives(tmp_path / f"{seed}", seed, power, 13) > 0


def test_a_replica_with_encrypted_files_that_died_is_equal_afterwards(tmp_path: Path) -> None:
    key = KeyRing("secret", CHACHA, random.Random(1).randbytes).new_key()
    assert lives(tmp_path, 9, power=True, stride=13, key=key) > 0


@crash_is_printed
@pytest.mark.parametrize("power", [False, True])
def test_a_replica_that_died_in_a_long_purge_is_equal_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: bool
) -> None:
    monkeypatch.setattr(operations, "STEP", 2)
    for seed in range(6, 9):
        assert lives(tmp_path / f"{seed}", seed, power, 13) > 0
