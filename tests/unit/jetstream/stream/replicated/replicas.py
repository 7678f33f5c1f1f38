"""Replicas of one stream and a loopback for consensus: proposals are committed in order, or lost."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage.expiry import Expiry
from pyjs.jetstream.stream.features.special import SpecialPublishes
from pyjs.jetstream.stream.limits import Usage
from pyjs.jetstream.stream.relearn import replica_steps
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.store import FileStore
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore
from pyjs.subjects.sublist import Subscription

if TYPE_CHECKING:
    from pathlib import Path

    from pyjs.base.disk import Disk
    from pyjs.jetstream.stream.replicated.proposal import Proposal

TERM = 1


def config(**options: Any) -> StreamConfig:
    """Return the configuration of the tested stream."""
    made = StreamConfig(name="S", subjects=("s.>",), duplicate_window_ns=120_000_000_000, num_replicas=3)
    return replace(made, **options)


class Keeper:
    """The owner of a replica; it stores new configurations."""

    def __init__(self, keep_steps: Any) -> None:
        self.keep_steps = keep_steps

    def configured(self, old: StreamConfig) -> None:
        """Record the new configuration."""

    def stopped(self, error: Exception) -> None:
        """Ignore the end of the replica; the tests look at the replica itself."""


class Member:
    """One node with its replica and its own clock."""

    def __init__(
        self,
        group: Loopback,
        of: StreamConfig,
        directory: str = "",
        disk: Disk | None = None,
        key: Any = None,
        keep_config: Any = None,
        now_ns: int | None = None,
    ) -> None:
        self.js = JetStreamFixture(now_ns=now_ns)
        self.directory, self.disk = directory, disk or OsDisk()
        shared = self.js.engine.shared
        self.store: StreamStore = MemStore()
        if of.storage == FILE and directory:
            self.store = FileStore(self.disk, directory, shared.log, 65536, 7, key, replicated=True)
        head = b'{"stream":"S","seq":'
        usage, server = Usage(), Usage()
        self.stream = Stream(
            self.js.engine.account, of, self.store, 1, usage, server, head, Expiry(shared.timers)
        )
        self.usage = usage
        self.stream.special = SpecialPublishes(self.stream, shared, Expiry(shared.timers))
        for _ in replica_steps(self.stream):
            pass
        owner = None if keep_config is None else Keeper(keep_config)
        self.replica = Replica(self.stream, group, owner)
        self.applied = self.replica.index
        self.stream.account.subs.insert(Subscription(self.stream, b"s.>"))

    def turn(self) -> None:
        """Run turns until nothing is left to do."""
        self.js.turn()

    def state(self, now_ns: int = 0) -> dict[str, Any]:
        """Return all state that must be equal on replicas; ids older than the window at `now_ns` are left out."""
        stream, store = self.stream, self.store
        stream.dedupe.expire(now_ns or stream.entry_ns)
        found = [store.get(seq) for seq in range(max(store.first_seq, 1), store.last_seq + 1)]
        messages = [
            (each.seq, each.ts, each.subject, each.headers, each.payload)
            for each in found
            if each is not None
        ]
        subjects = {subject for _, _, subject, _, _ in messages}
        return {
            "messages": messages,
            "range": (
                store.first_seq,
                store.last_seq,
                store.msgs,
                store.bytes,
                store.last_ts if messages else 0,
            ),
            "counts": sorted(
                (s, store.catalogue.count_matching(0, store.make_filter((s,)))) for s in subjects
            ),
            "ids": _ids(stream.dedupe.dump(0, len(stream.dedupe)), len(stream.dedupe)),
            "last_id": stream.dedupe.last_msg_id,
        }


def _ids(dump: bytes, count: int) -> list[tuple[int, int, bytes]]:
    """Return the (sequence, time, id) in a dump; one without a size was forgotten."""
    heads = [struct.unpack_from("<QqII", dump, 24 * at) for at in range(count)]
    found, at = [], 24 * count
    for seq, ns, size, _ in heads:
        found.append((seq, ns, dump[at : at + size]))
        at += size
    return [each for each in found if each[2]]


class Loopback:
    """Commits the leader's proposals when the test says so, and applies them on every member."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.log: list[tuple[int, int, int, bytes]] = []  # index, term, time, payload
        self.proposed: list[tuple[bytes, Proposal]] = []
        self.mine: dict[int, Proposal] = {}  # by index
        self.term = TERM

    def propose(self, payload: bytes, proposal: Proposal) -> bool:
        """Accept a proposal of the leader."""
        self.proposed.append((payload, proposal))
        return True

    @property
    def leader(self) -> Member:
        """The member that is the leader."""
        return next(each for each in self.members if each.replica.leads)

    def commit(self, most: int = 1 << 30) -> None:
        """Append up to `most` proposals to the log, with the leader's time."""
        now_ns = self.leader.js.clock.wall_ns() if self.proposed else 0
        taken, self.proposed = self.proposed[:most], self.proposed[most:]
        for payload, proposal in taken:
            last_ns = self.log[-1][2] if self.log else 0
            self.log.append((len(self.log) + 1, self.term, max(now_ns, last_ns + 1), payload))
            self.mine[len(self.log)] = proposal

    def lose(self) -> None:
        """Lose all uncommitted proposals."""
        lost, self.proposed = self.proposed, []
        for _, proposal in lost:
            self.leader.replica.dropped(proposal)

    def apply(self, member: Member, most: int = 1 << 30) -> None:
        """Apply up to `most` entries on one member, without running a turn."""
        for index, term, time_ns, payload in self.log[member.applied : member.applied + most]:
            proposal = self.mine.pop(index, None) if member.replica.leads else None
            member.applied = index
            member.replica.apply(index, term, time_ns, payload, proposal)

    def settle(self) -> None:
        """Run turns, commit and apply until nothing is left to do."""
        while True:
            for member in self.members:
                member.turn()
            if not self.proposed and all(each.applied == len(self.log) for each in self.members):
                return
            self.commit()
            for member in self.members:
                self.apply(member)

    def lead(self, member: Member) -> None:
        """Make a member the leader; uncommitted proposals of the old leader are lost."""
        if any(each.replica.leads for each in self.members):
            self.lose()
            self.mine.clear()
            self.leader.replica.follow()
        self.term += 1
        self.apply(member)
        member.replica.lead()


def replicas(of: StreamConfig, directory: Path | None = None, count: int = 3) -> Loopback:
    """Return a group whose first member is the leader."""
    group = Loopback()
    for number in range(count):
        path = f"{directory}/{number}" if directory is not None else ""
        group.members.append(Member(group, of, path))
    group.lead(group.members[0])
    return group


def send(member: Member, subject: str, payload: bytes = b"x", **headers: str) -> None:
    """Publish with a reply subject."""
    member.js.user.send(b"SUB _INBOX.> 1\r\n") if not hasattr(member, "heard") else None
    member.heard = True  # type: ignore[attr-defined]
    block = b""
    if headers:
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        block = f"NATS/1.0\r\n{''.join(lines)}\r\n".encode()
        head = b"HPUB %b _INBOX.a %d %d\r\n" % (subject.encode(), len(block), len(block) + len(payload))
    else:
        head = b"PUB %b _INBOX.a %d\r\n" % (subject.encode(), len(payload))
    member.js.user.send(head + block + payload + b"\r\n")


def answers(member: Member) -> list[Any]:
    """Return the PubAcks that have arrived since the last call."""
    return [json.loads(payload) if payload else None for payload in member.js.user.payloads()]


def operate(group: Loopback, payload: bytes) -> Any:
    """Propose an operation on the leader; return its result."""
    done: list[Any] = []

    def steps() -> Any:
        done.append((yield from group.leader.replica.operate(payload)))

    group.leader.stream.turn.go_on(steps())
    group.settle()
    return done[0]


def same(group: Loopback) -> dict[str, Any]:
    """Check that the state of all members is equal; return it."""
    now_ns = max(each.stream.entry_ns for each in group.members)
    states = [each.state(now_ns) for each in group.members]
    assert all(state == states[0] for state in states[1:])
    return states[0]
