"""Random histories on members with files that are killed, lose power and restart: all end in the same state.

In addition to the operations of test_determinism: changed configurations, skipped sequences, expiry, consumers that
want some subjects and acknowledge, schedules and expiries that become due, compactions, and syncs that end late. One
member is never killed.

`python -m tests.unit.jetstream.stream.replicated.test_histories FIRST LAST` plays more of them.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.history.making import History, Publish, Request, make
from tests.support.disk import LossyDisk
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member, config, same
from tests.unit.jetstream.stream.replicated.test_determinism import Teller

from pyjs.base.rng import SeededRng
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.stream_consumer import StreamConsumer
from pyjs.store.file.store import FileStore
from pyjs.subjects.transform import SubjectTransform

S = 1_000_000_000
SAMPLE = range(50_000, 50_020)


class Reader(StreamConsumer):
    """A consumer that acknowledges when the test says so."""

    config = ConsumerConfig()

    def __init__(self, filters: tuple[bytes, ...]) -> None:
        super().__init__("c", filters)
        self.acknowledged: list[int] = []
        self.done: set[int] = set()

    def needs(self, seq: int) -> bool:
        return seq not in self.done

    def take_acknowledged(self, most: int) -> list[int]:
        """Return up to `most` of the acknowledged messages, each one once."""
        taken, self.acknowledged = self.acknowledged[:most], self.acknowledged[most:]
        return taken


class Lives(Loopback):
    """A group whose members, except the last one, may end at any time and restart with the data written."""

    def __init__(self, of: StreamConfig, directory: Path, rng: random.Random) -> None:
        super().__init__()
        self.rng, self.directory = rng, directory
        self.kept = [of] * 3
        self.disks = [LossyDisk() for _ in range(3)]
        self.readers = [Reader((b"s.a", b"s.at.>")) for _ in range(3)]
        self.transform = rng.random() < 0.5
        self.restarts = 0
        for at in range(3):
            self.members.append(self.opened(at, None))
            self.members[at].js.advance(seconds=17 * at)
        self.lead(self.members[0])

    def opened(self, at: int, now_ns: int | None) -> Member:
        """Start a member."""

        def keep(changed: StreamConfig) -> Iterator[None]:
            yield None
            self.kept[at] = changed

        path = f"{self.directory}/{at}"
        member = Member(self, self.kept[at], path, self.disks[at], None, keep, now_ns)
        self.readers[at] = Reader((b"s.a", b"s.at.>"))
        member.stream.add_consumer(self.readers[at])
        if self.transform:
            member.stream.transform = SubjectTransform("s.to.>", "s.to.{{random(9)}}.>", SeededRng(at))
        return member

    def restart(self, at: int, power: bool) -> None:
        """End a member without a stop, and start it again."""
        member = self.members[at]
        store = member.store
        assert isinstance(store, FileStore)
        led, synced, applied = member.replica.leads, store.synced_index, member.replica.index
        assert synced <= applied
        if led:
            self.proposed.clear()
            self.mine.clear()
        store.release()
        if power:
            self.disks[at].lose_power()
        self.members[at] = again = self.opened(at, member.js.clock.now_ns())
        self.restarts += 1
        assert synced <= again.applied <= applied
        assert again.store.lost is None
        if led:
            self.term += 1
            chosen = self.rng.choice(self.members)
            self.apply(chosen)
            chosen.replica.lead()

    def stopped(self, at: int) -> None:
        """Stop a member cleanly, and restart it from its stored index."""
        member = self.members[at]
        if not member.replica.leads:
            member.store.close()
            self.members[at] = self.opened(at, member.js.clock.now_ns())


class Player(Teller):
    """Plays a history with more random events than a Teller."""

    group: Lives

    def play(self, history: History) -> None:
        for operation in history.operations:
            if isinstance(operation, Publish):
                self.publish(operation)
            elif isinstance(operation, Request):
                self.request(operation)
            self.other_work()
            self.some_work()
        self.group.settle()

    def other_work(self) -> None:
        """At random, do operations that no history has."""
        rng, group, chance = self.rng, self.group, self.rng.random()
        if chance < 0.05:
            self.operate(operations.skip(group.leader.store.last_seq + rng.choice((0, 1, 3, 9000))))
        elif chance < 0.12:
            self.operate(operations.configure(self.changed(group.leader.stream.config)))
        elif chance < 0.2:
            self.acknowledge()
        elif chance < 0.25:
            self.operate(operations.delete(rng.randrange(1, group.leader.store.last_seq + 2), erase=True))
        elif chance < 0.28:
            for _ in range(rng.randrange(1, 4)):
                self.publish(Publish(rng.choice("ab"), "x", (("Nats-Msg-Id", f"id{rng.randrange(20)}"),)))
        elif chance < 0.37:
            group.restart(rng.randrange(2), rng.random() < 0.5)
        elif chance < 0.39:
            group.stopped(rng.randrange(2))
        elif chance < 0.47:
            for member in group.members:
                member.js.advance(seconds=rng.choice((1, 30, 4000)))
        for member in group.members:
            self.disk_work(member)

    def operate(self, payload: bytes) -> None:
        """Propose an operation."""
        self.group.leader.stream.turn.go_on(self.group.leader.replica.operate(payload))

    def acknowledge(self) -> None:
        """Let the leader's consumer acknowledge something."""
        group = self.group
        reader = group.readers[group.members.index(group.leader)]
        seq = self.rng.randrange(1, group.leader.store.last_seq + 2)
        for each in group.readers:
            each.done.add(seq)
        reader.acknowledged.append(seq)
        group.leader.stream.inbox.has_acknowledged(reader)

    def changed(self, of: StreamConfig) -> StreamConfig:
        """Return the configuration with one option changed."""
        rng = self.rng
        return replace(
            of,
            **rng.choice(
                (
                    {"max_msgs": rng.choice((-1, 3, 10))},
                    {"max_bytes": rng.choice((-1, 400, 4000))},
                    {"max_msgs_per_subject": rng.choice((-1, 1, 2))},
                    {"max_age_ns": rng.choice((0, 2, 60, 8000)) * S},
                    {"duplicate_window_ns": rng.choice((1, 20, 120, 4000)) * S},
                    {"max_msg_size": rng.choice((-1, 70))},
                )
            ),
        )

    def disk_work(self, member: Member) -> None:
        """Randomly sync, remove files and compact."""
        store, chance = member.store, self.rng.random()
        assert isinstance(store, FileStore)
        if chance < 0.1:
            store.sync_now()
        elif chance < 0.2 and (job := store.begin_sync()) is not None:
            error = job()
            if self.rng.random() < 0.5:
                member.turn()
            store.finish_sync(job, error)
        elif chance < 0.3 and (upkeep := store.begin_upkeep()) is not None:
            error = upkeep()
            if self.rng.random() < 0.5:
                member.turn()
            store.finish_upkeep(error)


def stream_of(history: History, rng: random.Random) -> StreamConfig:
    """Return the options of a history, with additions, as those of the tested stream."""
    given: dict[str, Any] = {**history.config, "storage": FILE}
    given["retention"] = rng.choice(("limits", "limits", "interest", "workqueue"))
    if "subject_delete_marker_ttl" in given:
        given["subject_delete_marker_ttl_ns"] = given.pop("subject_delete_marker_ttl")
    given.pop("first_seq", None)
    if given.get("allow_msg_schedules"):
        given |= {"allow_rollup_hdrs": True, "discard": "old", "discard_new_per_subject": False}
    given["max_age_ns"] = rng.choice((0, 0, 0, 20, 3000)) * S
    given["duplicate_window_ns"] = rng.choice((2, 120)) * S
    return config(**given)


def play(seed: int, directory: Path) -> Lives:
    """Play one history; check that all members are equal at its end, and after another restart."""
    rng, history = random.Random(seed), make(seed)
    group = Lives(stream_of(history, rng), directory, rng)
    Player(group, seed).play(history)
    before = same(group)
    for at in range(3):
        group.restart(at, power=False)
    group.settle()
    after = same(group)
    assert before["messages"] == after["messages"][: len(before["messages"])] or history
    return group


def test_members_that_were_killed_end_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "STEP", 2)
    restarts = stored = 0
    for seed in SAMPLE:
        try:
            group = play(seed, tmp_path / f"{seed}")
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
        restarts += group.restarts
        stored += group.members[2].store.last_seq
    assert restarts > 2 * len(SAMPLE)
    assert stored > 5 * len(SAMPLE)


if __name__ == "__main__":
    operations.STEP = 2
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                play(number, Path(scratch))
            except BaseException:
                print(f"seed {number}", flush=True)
                raise
