"""Chooses other servers for a stream after an update, after the removal of a replica, or when a server leaves.

The functions only return servers, and entries to propose. The metadata names the servers that should hold a stream;
the leader of the stream's group carries out the move, in which new replicas are added first.

Source: nats-server 2.15.1, compared in tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.assignments import add_load
from pyjs.jetstream.cluster.entries import StreamMoved
from pyjs.jetstream.cluster.placement import fitting, place
from pyjs.jetstream.cluster.servers import Load
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.placement import Rules
    from pyjs.jetstream.cluster.state import MetaState
    from pyjs.jetstream.config.stream import StreamConfig

SINGLES_MAX = 16  # maximum number of streams with one replica that are copied at the same time


@dataclass(frozen=True, slots=True)
class Field:
    """The input for choosing servers: the metadata, the load of the servers, and the rules of the deciding server."""

    state: MetaState
    cluster: str
    load: dict[int, Load]
    rules: Rules

    def place(
        self, config: StreamConfig, kept: tuple[int, ...] = (), avoided: Collection[int] = ()
    ) -> tuple[int, ...]:
        """Return the servers for a stream: those in `kept` first, then new ones that are not in `avoided`.

        Raises:
            ApiError: too few servers fit (10005).
        """
        servers = self.state.servers.values()
        return place(servers, config, self.cluster, self.load, self.rules, kept, avoided)

    def is_full(self, node: int) -> bool:
        """Return whether a server already has the maximum number of replicated streams."""
        return self.rules.is_full(self.load.get(node, Load()))


def updated_nodes(field: Field, old: Assignment, config: StreamConfig, leader: int) -> tuple[int, ...]:
    """Return the servers of a stream whose configuration becomes `config`.

    If the number of replicas grows, servers are added. If the number shrinks, online servers are preferred to offline
    ones, and the leader to the others. With a new placement, those of the old servers that fit the placement stay.

    Raises:
        ApiError: too few servers fit (10005), both the placement and the number of replicas change (10123), or the
            only server already has the maximum number of replicated streams (10023).
    """
    wanted, before = config.num_replicas, old.config.num_replicas
    if config.placement != old.config.placement and config.placement is not None:
        errcodes.STREAM_MOVE_AND_SCALE.raise_if(wanted != before)
        servers = field.state.servers.values()
        kept = fitting(servers, config, field.cluster, field.load, field.rules, old.nodes)
        return field.place(config, kept)
    if wanted == before:
        return old.nodes
    if wanted > before:
        errcodes.INSUFFICIENT_RESOURCES.raise_if(before == 1 and field.is_full(old.nodes[0]))
        return field.place(config, old.nodes)
    online = field.rules.online
    return tuple(sorted(old.nodes, key=lambda node: (node not in online, node != leader))[:wanted])


def without_replica(field: Field, stream: Assignment, node: int) -> StreamMoved:
    """Return the entry that moves a stream's replica away from server `node`, as an operator requested.

    Raises:
        ApiError: the server has no replica (10040), no other server fits (10075), or the stream is being moved
            (10124).
    """
    errcodes.CLUSTER_PEER_NOT_MEMBER.raise_if(node not in stream.nodes)
    errcodes.STREAM_MOVE_IN_PROGRESS.raise_if(stream.target)
    kept = tuple(each for each in stream.nodes if each != node)
    try:
        nodes = field.place(stream.config, kept, (node,))
    except ApiError:
        raise errcodes.PEER_REMAP_FAILED.error() from None
    return StreamMoved(stream.account, stream.name, stream.group, stream.revision, nodes)


def may_move(state: MetaState) -> bool:
    """Return whether a stream is on a removed or evacuated server, or has too few or too many replicas."""
    return bool(state.uneven) or any(node in state.load for node in _going(state))


def _going(state: MetaState) -> set[int]:
    """Return the servers from which streams move away."""
    return {server.node for server in state.servers.values() if server.evacuating} | state.removed.keys()


def moves(field: Field, streams: Iterable[Assignment] | None = None) -> Iterator[StreamMoved]:
    """Yield the entries that move `streams` (None: all) away from removed or evacuated servers.

    If no other server fits, a replicated stream loses the replica, and gets a new one when a server fits. At least
    two replicas remain. A single replica on an evacuated server is copied to another server, up to SINGLES_MAX at the
    same time; it stays if its server is offline or no other server fits. If the server of a single replica was
    removed and another server fits, the stream begins there without messages. Each move is added to the load in
    `field`.
    """
    state = field.state
    going, singles = _going(state), len(state.moving)
    for stream in by_group(state) if streams is None else streams:
        kept = tuple(node for node in stream.nodes if node not in going)
        if len(kept) == stream.config.num_replicas:
            continue
        if stream.target or (stream.config.num_replicas == 1 and stream.nodes[0] in state.servers):
            is_free = stream.target or singles < SINGLES_MAX
            if is_free and (entry := _single_move(field, stream, going)):
                singles += not stream.target
                yield entry
            continue
        try:
            nodes = field.place(stream.config, kept, going)
        except ApiError:
            nodes = kept if len(kept) > 1 else stream.nodes
        if nodes == stream.nodes:
            continue
        add_load(field.load, stream.config, set(nodes) - set(kept))
        yield StreamMoved(stream.account, stream.name, stream.group, stream.revision, nodes)


def _single_move(field: Field, stream: Assignment, going: set[int]) -> StreamMoved | None:
    """Return the entry that begins the move of a single replica, or changes its target.

    Return None if the replica cannot move, or if it is already moving to a server that keeps its streams.
    """
    first = next(node for node in stream.nodes if node != stream.target)
    if first not in field.rules.online or stream.target not in {0, *going}:
        return None
    config = stream.shown_config
    try:
        (target,) = field.place(config, (), going | {first})
    except ApiError:
        return None
    add_load(field.load, config, (target,))
    return StreamMoved(stream.account, stream.name, stream.group, stream.revision, (first, target), target)


def by_group(state: MetaState) -> list[Assignment]:
    """Return all streams, oldest first."""
    return sorted(state.streams(), key=attrgetter("group"))


def field_of(state: MetaState, cluster: str, rules: Rules) -> Field:
    """Return the input for choosing servers, with a copy of the load of all assigned streams."""
    return Field(state, cluster, {node: replace(load) for node, load in state.load.items()}, rules)
