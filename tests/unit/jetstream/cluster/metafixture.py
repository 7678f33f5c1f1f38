"""Servers, configurations and random entries for tests of the metadata."""

from __future__ import annotations

import random
from dataclasses import replace

from pyjs.jetstream.cluster.assignments import Assignment, Replica, StoredConfig, stored_config
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
    Entry,
    GroupEnded,
    ReplicaLost,
    ServerDescribed,
    ServerEvacuating,
    ServerRemoved,
    StreamCreated,
    StreamDeleted,
    StreamMoved,
    StreamUpdated,
    encode,
)
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.cluster.state import Applied, MetaState
from pyjs.jetstream.config.stream import Placement, StreamConfig

NO_BOUNDS = Bounds()
A = "A"  # the account of most tests


def server(node: int, **changes: object) -> Server:
    """Return a server of cluster TRIO; it has no limits."""
    plain = Server(node, f"n{node}", "TRIO", (), 100 + node, "0.1.0", 1, -1, -1)
    return replace(plain, **changes)  # type: ignore[arg-type]


def stored(name: str = "S", *subjects: str, **options: object) -> StoredConfig:
    """Return a configuration; the stream's name is its subject unless subjects are given."""
    config = StreamConfig(name=name, subjects=subjects or (name,))
    return stored_config(replace(config, **options))  # type: ignore[arg-type]


def placed(*tags: str, cluster: str = "", **options: object) -> StreamConfig:
    """Return a configuration with a placement."""
    return stored(placement=Placement(cluster=cluster, tags=tags), **options).config


def stream(name: str = "S", nodes: tuple[int, ...] = (1,), group: int = 1, **options: object) -> Assignment:
    """Return an assigned stream."""
    config = stored(name, num_replicas=len(nodes), **options)
    return Assignment(A, group, group, 0, tuple(Replica(node, 1) for node in nodes), 1, config)


class Meta:
    """A state, the entries that led to it, and shortcuts for applying more entries."""

    def __init__(self, *nodes: int) -> None:
        self.state = MetaState()
        self.log: list[bytes] = []
        for node in nodes:
            self.do(ServerDescribed(server(node)))

    def do(self, entry: Entry) -> Applied:
        """Apply an entry."""
        self.log.append(encode(entry))
        return self.state.apply(len(self.log), 1000 * len(self.log), self.log[-1])

    def create(
        self, name: str, *nodes: int, bounds: Bounds = NO_BOUNDS, account: str = A, **options: object
    ) -> Applied:
        """Create a stream on some servers."""
        subjects = options.pop("subjects", (name,))
        assert isinstance(subjects, tuple)
        config = stored(name, *subjects, num_replicas=len(nodes), **options)
        return self.do(StreamCreated(account, config, nodes, bounds))

    def update(
        self, name: str, *nodes: int, bounds: Bounds = NO_BOUNDS, revision: int = 0, **options: object
    ) -> Applied:
        """Update a stream; `nodes` are its new servers."""
        old = self.there(name)
        config = stored_config(replace(old.config, **options))  # type: ignore[arg-type]
        seen = (old.group, revision or old.revision)
        return self.do(StreamUpdated(old.account, *seen, config, nodes or old.nodes, bounds))

    def move(self, name: str, *nodes: int) -> Applied:
        """Move a stream to other servers."""
        old = self.there(name)
        return self.do(StreamMoved(old.account, name, old.group, old.revision, nodes))

    def there(self, name: str, account: str = A) -> Assignment:
        """Return a stream that exists."""
        found = self.state.stream(account, name)
        assert found is not None
        return found


def random_entry(chance: random.Random, state: MetaState) -> Entry:
    """Return an entry about a few servers and names, which may be based on an outdated state."""
    node = chance.randint(1, 6)
    there = sorted(state.streams(), key=lambda each: each.group)
    kind = chance.randrange(12)
    if kind < 3 or not state.servers:
        return ServerDescribed(server(node, store=chance.randint(1, 3), tags=("a",) * chance.randint(0, 1)))
    if kind == 3:
        return chance.choice([ServerRemoved(node), ServerEvacuating(node, chance.random() < 0.5)])
    if kind == 4:
        return AccountPurged(chance.choice("ABC"))
    nodes = tuple(chance.sample(range(1, 7), chance.choice((1, 3))))
    if kind < 8 or not there:
        config = _random_config(chance, chance.choice("PQRST"), len(nodes))
        return StreamCreated(
            chance.choice("AB"), config, nodes, Bounds(chance.choice((-1, 3)), 5000, chance.random() < 0.5)
        )
    old = chance.choice(there)
    group, revision = old.group - (chance.random() < 0.1 and old.group > 1), old.revision
    if kind == 8:
        return StreamDeleted(old.account, old.name, group)
    if kind == 9:
        return StreamMoved(old.account, old.name, group, revision, nodes)
    if kind == 10 and chance.random() < 0.5:
        return GroupEnded(old.account, old.name, group, revision)
    if kind == 10:
        return ReplicaLost(old.account, old.name, group, revision, chance.choice(old.nodes))
    return StreamUpdated(old.account, group, revision, _random_config(chance, old.name, len(nodes)), nodes)


def _random_config(chance: random.Random, name: str, replicas: int) -> StoredConfig:
    subjects = chance.sample(["a.*", "a.b", "c.>", "c.d", name], 2)
    return stored(name, *subjects, num_replicas=replicas, max_bytes=chance.choice((-1, 1000)))
