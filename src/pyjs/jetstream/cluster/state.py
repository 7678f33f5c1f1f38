"""The metadata of a cluster: its servers, and the streams of all accounts with their assignments.

Only committed entries change the state, so equal entries lead to equal states and equal answers on every server.
Conflicts are decided only here, so of two conflicting requests in flight only one can succeed. The proposer may call
`check_create` and `check_update` before it chooses servers, but only the result of `apply` counts.

The state on which an entry is based may have changed before the entry is applied: a server was removed, or the stream
has another revision. Nothing is then changed, and the result is STALE: the proposer must propose again, from the new
state.

Source: cases and errors as a cluster of nats-server 2.15.1 answers, tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.account_streams import AccountStreams
from pyjs.jetstream.cluster.assignments import INDEX_MAX, Assignment, Replica, add_load, with_replicas
from pyjs.jetstream.cluster.changes import ServerChange, StreamChange
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
    GroupEnded,
    ReplicaLost,
    ServerDescribed,
    ServerEvacuating,
    ServerRemoved,
    StreamCreated,
    StreamDeleted,
    StreamMoved,
    StreamOpened,
    StreamRestored,
    StreamUpdated,
    decode,
)
from pyjs.jetstream.cluster.servers import SERVERS_MAX, Load, Removed, Server
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pyjs.jetstream.cluster.assignments import StoredConfig
    from pyjs.jetstream.cluster.changes import Change


class Outcome(Enum):
    """The outcome of an entry."""

    DONE = "done"
    EXISTS = "exists"  # the stream already exists with the same configuration
    STALE = "stale"  # the entry is based on an old state: it must be proposed again
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an entry: the answer for its proposer, and the changes for every server."""

    outcome: Outcome
    changes: tuple[Change, ...] = ()
    error: ApiError | None = None  # set if the request of a client is refused
    reason: str = ""  # set if the request of a server or an operator is refused
    stream: Assignment | None = None  # the created, updated, moved, deleted or existing stream


class Seen(NamedTuple):
    """The stream that an entry changes, as the proposer of the entry has seen it."""

    account: str
    name: str
    group: int
    revision: int = 0  # 0: any revision


STALE = Applied(Outcome.STALE)


class MetaState:
    """The state of the metadata, which is equal on all servers of the cluster."""

    def __init__(self) -> None:
        self.index = 0  # index of the last applied entry
        self.next_group = 1  # higher than the group number of any stream so far
        self.servers: dict[int, Server] = {}
        self.removed: dict[int, Removed] = {}  # removed servers; none of them is also in `servers`
        self.accounts: dict[str, AccountStreams] = {}  # only accounts that have streams
        # by server: the load of all its streams; only servers that hold a stream
        self.load: dict[int, Load] = {}
        # groups of streams that have fewer or more servers than configured replicas
        self.uneven: set[int] = set()
        self.moving: dict[
            int, Assignment
        ] = {}  # by group: streams with one replica that move to another server

    def streams(self) -> Iterator[Assignment]:
        """Yield all streams."""
        for streams in self.accounts.values():
            yield from streams

    def stream(self, account: str, name: str) -> Assignment | None:
        """Return the stream with this name in an account, or None if there is none."""
        streams = self.accounts.get(account)
        return streams.get(name) if streams is not None else None

    def level(self) -> int:
        """Return the newest version of entries that every server can apply; newer ones must not be proposed."""
        return min((server.level for server in self.servers.values()), default=1)

    def apply(self, index: int, time_ns: int, payload: bytes) -> Applied:
        """Apply a committed entry; an empty payload changes nothing.

        Raises:
            UnknownEntry, BadRow: the entry cannot be decoded. Nothing was changed, and no later entry may be applied.
        """
        assert self.index < index <= INDEX_MAX
        if not payload:
            self.index = index
            return Applied(Outcome.DONE)
        entry = decode(payload)
        self.index = index
        try:
            return _APPLY[type(entry)](self, entry, time_ns)
        except ApiError as error:
            return Applied(Outcome.REFUSED, error=error)

    def check_create(self, account: str, stored: StoredConfig, bounds: Bounds) -> Assignment | None:
        """Return an existing stream with the same configuration, or None if the stream can be created.

        Raises:
            ApiError: the stream cannot be created.
        """
        config = stored.config
        streams = self.accounts.get(account) or AccountStreams()
        streams.check_limits(config, bounds)
        existing = streams.get(config.name)
        if existing is not None:
            errcodes.STREAM_NAME_EXIST.raise_if(
                existing.stored.offline or not existing.config.same_as(config)
            )
            return existing
        streams.check_subjects(config)
        return None

    def check_update(self, account: str, stored: StoredConfig, bounds: Bounds) -> None:
        """Check that a stream can be updated to a configuration.

        Raises:
            ApiError: the stream does not exist, it exceeds a limit, or its subjects overlap with those of another
                stream.
        """
        streams = self.accounts.get(account)
        if streams is None or streams.get(stored.config.name) is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        streams.check_limits(stored.config, bounds)
        streams.check_subjects(stored.config)

    # -- servers -----------------------------------------------------------------------------------------------

    def _server_described(self, entry: ServerDescribed, time_ns: int) -> Applied:
        given = entry.server
        old, removed = self.servers.get(given.node), self.removed.get(given.node)
        known = old or removed
        if known is not None and known.name != given.name:
            both = f"the servers {known.name} and {given.name}"
            return _refused(f"{both} have the same number {given.node}: rename one")
        if removed is not None and removed.store == given.store:
            return _refused(f"the server {given.name} was removed: it may come back with an empty store")
        if old is None and len(self.servers) == SERVERS_MAX:
            return _refused(f"the cluster has {SERVERS_MAX} servers")
        incarnation = 1 if known is None else known.incarnation + (known.store != given.store)
        new = replace(given, incarnation=incarnation, evacuating=old is not None and old.evacuating)
        self.servers[new.node] = new
        self.removed.pop(new.node, None)
        changes: list[Change] = [ServerChange(old, new)] if old != new else []
        if known is not None and known.incarnation != new.incarnation:
            changes += self._replicas_lost(new.node)
        return Applied(Outcome.DONE, tuple(changes))

    def _replicas_lost(self, node: int) -> Iterator[Change]:
        """Give new incarnations to the replicas on a server that came back with an empty store; yield the changes."""
        for old in sorted(self.streams(), key=attrgetter("group")):
            if old.incarnation_on(node):
                new = self._on(old.nodes, old, lost=node)
                yield self._put_or_drop(replace(new, revision=self.index), old)

    def _server_removed(self, entry: ServerRemoved, time_ns: int) -> Applied:
        old = self.servers.pop(entry.node, None)
        if old is None:
            raise errcodes.CLUSTER_SERVER_NOT_MEMBER.error()
        self.removed[old.node] = Removed(old.node, old.name, old.store, old.incarnation)
        return Applied(Outcome.DONE, (ServerChange(old, None),))

    def _server_evacuating(self, entry: ServerEvacuating, time_ns: int) -> Applied:
        old = self.servers.get(entry.node)
        if old is None:
            raise errcodes.CLUSTER_SERVER_NOT_MEMBER.error()
        new = self.servers[old.node] = replace(old, evacuating=entry.on)
        return Applied(Outcome.DONE, (ServerChange(old, new),) if old != new else ())

    # -- streams -----------------------------------------------------------------------------------------------

    def _stream_created(self, entry: StreamCreated, time_ns: int) -> Applied:
        existing = self.check_create(entry.account, entry.stored, entry.bounds)
        if existing is not None:
            return Applied(Outcome.EXISTS, stream=existing)
        if not self._are_there(entry.nodes):
            return STALE
        group, self.next_group = self.next_group, self.next_group + 1
        replicas = tuple(Replica(node, 1) for node in entry.nodes)
        new = Assignment(entry.account, group, self.index, time_ns, replicas, 1, entry.stored)
        return Applied(Outcome.DONE, (self.put(new, None),), stream=new)

    def _stream_restored(self, entry: StreamRestored, time_ns: int) -> Applied:
        existing = self.stream(entry.account, entry.stored.config.name)
        errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.raise_if(existing is not None)
        self.check_create(entry.account, entry.stored, entry.bounds)
        if not self._are_there((entry.node,)):
            return STALE
        group, self.next_group = self.next_group, self.next_group + 1
        replicas = (Replica(entry.node, 1),)
        new = Assignment(
            entry.account, group, self.index, entry.created_ns, replicas, 1, entry.stored, is_built=True
        )
        return Applied(Outcome.DONE, (self.put(new, None),), stream=new)

    def _stream_updated(self, entry: StreamUpdated, time_ns: int) -> Applied:
        seen = Seen(entry.account, entry.stored.config.name, entry.group, entry.revision)
        old = self._as_seen(seen)
        if old is None or not self._are_there(entry.nodes, old) or old.target not in (0, entry.target):
            return STALE
        wanted = with_replicas(entry.stored, 1) if entry.target else entry.stored
        self.check_update(entry.account, wanted, entry.bounds)
        return self._changed(old, old.updated(entry.nodes, entry.stored, entry.target))

    def _stream_moved(self, entry: StreamMoved, time_ns: int) -> Applied:
        old = self._as_seen(Seen(entry.account, entry.name, entry.group, entry.revision))
        if old is None or not self._are_there(entry.nodes, old):
            return STALE
        if entry.target:
            return self._changed(old, old.moving(entry.nodes, entry.target))
        if old.target and entry.nodes == (old.origin,):
            return self._changed(old, old.stayed())
        if old.target:
            return self._changed(old, old.moved()) if entry.nodes == (old.target,) else STALE
        return self._changed(old, self._on(entry.nodes, old))

    def _replica_lost(self, entry: ReplicaLost, time_ns: int) -> Applied:
        old = self._as_seen(Seen(entry.account, entry.name, entry.group, entry.revision))
        if old is None or entry.node not in old.nodes:
            return STALE
        return self._changed(old, self._on(old.nodes, old, lost=entry.node))

    def _group_ended(self, entry: GroupEnded, time_ns: int) -> Applied:
        old = self._as_seen(Seen(entry.account, entry.name, entry.group, entry.revision))
        if old is None or old.config.num_replicas > 1:
            return STALE
        return self._changed(old, replace(self._without_group(old, old.nodes[0]), ended=old.group))

    def _stream_opened(self, entry: StreamOpened, time_ns: int) -> Applied:
        old = self._as_seen(Seen(entry.account, entry.name, entry.group))
        if old is None or not old.is_built:
            return STALE
        if not entry.is_there:
            return Applied(Outcome.DONE, (self._drop(old),), stream=old)
        new = replace(old, is_built=False, revision=self.index)
        return Applied(Outcome.DONE, (self.put(new, old),), stream=new)

    def _on(self, nodes: tuple[int, ...], old: Assignment, lost: int = 0) -> Assignment:
        """Return the assignment with other servers, or with a new replica on server `lost`."""
        if old.config.num_replicas > 1:
            return old.regrouped(nodes, lost)
        if nodes == old.nodes and not lost:
            return old
        return self._without_group(old, nodes[0])

    def _without_group(self, old: Assignment, node: int) -> Assignment:
        """Return the assignment of a stream with one replica and no group, under a new group number."""
        group, self.next_group = self.next_group, self.next_group + 1
        return replace(old, group=group, replicas=(Replica(node, 1),), newest=1, ended=0, is_built=False)

    def _changed(self, old: Assignment, new: Assignment) -> Applied:
        if new == old:
            return Applied(Outcome.DONE, stream=old)
        new = replace(new, revision=self.index)
        return Applied(Outcome.DONE, (self._put_or_drop(new, old),), stream=new)

    def _put_or_drop(self, new: Assignment, old: Assignment) -> StreamChange:
        """Replace a stream; remove it instead if it was built from an archive and `new` lacks the built replica."""
        is_lost = old.is_built and not (new.is_built and new.incarnation_on(old.first_node) == 1)
        return self._drop(old) if is_lost else self.put(new, old)

    def _stream_deleted(self, entry: StreamDeleted, time_ns: int) -> Applied:
        old = self._as_seen(Seen(entry.account, entry.name, entry.group))
        if old is None:
            return STALE
        return Applied(Outcome.DONE, (self._drop(old),), stream=old)

    def _account_purged(self, entry: AccountPurged, time_ns: int) -> Applied:
        streams = sorted(self.accounts.get(entry.account, ()), key=attrgetter("group"))
        return Applied(Outcome.DONE, tuple(self._drop(each) for each in streams))

    def _as_seen(self, seen: Seen) -> Assignment | None:
        """Return the stream, or None if it has changed since the proposer of the entry saw it.

        Raises:
            ApiError: there is no stream with this name.
        """
        found = self.stream(seen.account, seen.name)
        if found is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        is_same = found.group == seen.group and seen.revision in (0, found.revision)
        return found if is_same else None

    def _are_there(self, nodes: tuple[int, ...], old: Assignment | None = None) -> bool:
        """Return whether each server in `nodes` is known, or is a removed one that holds a replica of `old`."""
        stay = old.nodes if old is not None else ()
        return all(node in self.servers or node in stay for node in nodes)

    def put(self, new: Assignment, old: Assignment | None = None) -> StreamChange:
        """Add a stream, or replace `old` with it; return the change."""
        if old is not None:
            add_load(self.load, old.config, old.nodes, -1)
        add_load(self.load, new.config, new.nodes)
        self.accounts.setdefault(new.account, AccountStreams()).put(new)
        if old is not None:
            self.uneven.discard(old.group)
            self.moving.pop(old.group, None)
        if new.target:
            self.moving[new.group] = new
        if len(new.replicas) == new.config.num_replicas:
            self.uneven.discard(new.group)
        else:
            self.uneven.add(new.group)
        return StreamChange(old, new)

    def _drop(self, old: Assignment) -> StreamChange:
        streams = self.accounts[old.account]
        streams.remove(old.name)
        self.uneven.discard(old.group)
        self.moving.pop(old.group, None)
        add_load(self.load, old.config, old.nodes, -1)
        if not len(streams):
            del self.accounts[old.account]
        return StreamChange(old, None)


def _refused(reason: str) -> Applied:
    return Applied(Outcome.REFUSED, reason=reason)


_APPLY: dict[type, Callable[[MetaState, Any, int], Applied]] = {
    ServerDescribed: MetaState._server_described,
    ServerRemoved: MetaState._server_removed,
    ServerEvacuating: MetaState._server_evacuating,
    StreamCreated: MetaState._stream_created,
    StreamRestored: MetaState._stream_restored,
    StreamOpened: MetaState._stream_opened,
    StreamUpdated: MetaState._stream_updated,
    StreamMoved: MetaState._stream_moved,
    ReplicaLost: MetaState._replica_lost,
    GroupEnded: MetaState._group_ended,
    StreamDeleted: MetaState._stream_deleted,
    AccountPurged: MetaState._account_purged,
}
