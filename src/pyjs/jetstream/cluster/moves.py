"""Other servers for streams that exist: after an update, when a replica is removed, when a server goes.

Pure: returns servers and entries to propose. The metadata names the servers that should hold a stream; how its group
gets there, new replicas first, is the business of the group's leader.

Source: nats-server 2.15.1, compared in tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.assignments import add_load
from pyjs.jetstream.cluster.entries import StreamMoved
from pyjs.jetstream.cluster.placement import fitting, place
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.placement import Rules
    from pyjs.jetstream.cluster.servers import Load
    from pyjs.jetstream.cluster.state import MetaState
    from pyjs.jetstream.config.stream import StreamConfig


@dataclass(frozen=True, slots=True)
class Field:
    """Where streams can be: the metadata, the load of its servers, and the rules of the one that decides."""

    state: MetaState
    cluster: str
    load: dict[int, Load]
    rules: Rules

    def place(
        self, config: StreamConfig, kept: tuple[int, ...] = (), avoided: Collection[int] = ()
    ) -> tuple[int, ...]:
        """Return servers for a stream. Raises ApiError: 10005."""
        servers = self.state.servers.values()
        return place(servers, config, self.cluster, self.load, self.rules, kept, avoided)


def updated_nodes(field: Field, old: Assignment, config: StreamConfig, leader: int) -> tuple[int, ...]:
    """Return the servers of a stream whose configuration becomes `config`.

    More replicas are added to the old ones. Of fewer, the leader stays, then those that are online. A new placement
    keeps servers that it allows.

    Raises:
        ApiError: 10005, or 10123 for a new placement with another number of replicas.
    """
    wanted, before = config.num_replicas, old.config.num_replicas
    if config.placement != old.config.placement and config.placement is not None:
        errcodes.STREAM_MOVE_AND_SCALE.raise_if(wanted != before)
        servers = field.state.servers.values()
        kept = fitting(servers, config, field.cluster, field.load, field.rules, old.nodes)
        return field.place(config, kept)
    if wanted >= before:
        return old.nodes if wanted == before else field.place(config, old.nodes)
    online = field.rules.online
    return tuple(sorted(old.nodes, key=lambda node: (node != leader, node not in online))[:wanted])


def without_replica(field: Field, stream: Assignment, node: int) -> StreamMoved:
    """Return the entry that moves a stream's replica away from a server, for an operator.

    Raises:
        ApiError: 10040, the server has no replica; 10075, no other server fits.
    """
    errcodes.CLUSTER_PEER_NOT_MEMBER.raise_if(node not in stream.nodes)
    kept = tuple(each for each in stream.nodes if each != node)
    try:
        nodes = field.place(stream.config, kept, (node,))
    except ApiError:
        raise errcodes.PEER_REMAP_FAILED.error() from None
    return StreamMoved(stream.account, stream.name, stream.group, stream.revision, nodes)


def moves(field: Field) -> Iterator[StreamMoved]:
    """Yield the entries that move streams away from servers which were removed or are evacuated.

    Without another server a replicated stream has a replica less, as on nats-server; it gets one again as soon as a
    server fits. The only replica stays where it is. If its server was removed and another one fits, the stream begins
    there without messages. The load of `field` grows by what moves, so that not all streams go to one server.
    """
    state = field.state
    going = {server.node for server in state.servers.values() if server.evacuating} | state.removed.keys()
    for stream in sorted(state.streams(), key=lambda each: each.group):
        kept = tuple(node for node in stream.nodes if node not in going)
        if len(kept) == stream.config.num_replicas:
            continue
        try:
            nodes = field.place(stream.config, kept, going)
        except ApiError:
            nodes = kept
        if not nodes or nodes == stream.nodes:
            continue
        add_load(field.load, stream.config, set(nodes) - set(kept))
        yield StreamMoved(stream.account, stream.name, stream.group, stream.revision, nodes)


def field_of(state: MetaState, cluster: str, rules: Rules) -> Field:
    """Return the field with the load of the assigned streams; the load is a copy."""
    return Field(state, cluster, {node: replace(load) for node, load in state.load.items()}, rules)
