"""The changes made by an applied entry, and the duties that follow for one server.

Changes are the same on every server; `duties` returns the work of one server, in the order of the changes.
`difference` returns the changes between two states, for a server that has received a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.servers import Server
    from pyjs.jetstream.cluster.state import MetaState


class ServerChange(NamedTuple):
    """A server that joined (no `old`), was removed (no `new`), or has another description."""

    old: Server | None
    new: Server | None


class StreamChange(NamedTuple):
    """A stream that was created (no `old`), deleted (no `new`), or changed; both have the same group."""

    old: Assignment | None
    new: Assignment | None
    is_empty: bool = False  # no replica is left that a new one could copy: the stream begins without messages


def stream_change(old: Assignment | None, new: Assignment, servers: Collection[int]) -> StreamChange:
    """Return the change to `new`; replicas on servers outside of `servers` are lost."""
    before = old.replicas if old is not None else ()
    left = [each for each in before if each in new.replicas or each.node not in new.nodes]
    return StreamChange(old, new, not any(replica.node in servers for replica in left))


Change: TypeAlias = ServerChange | StreamChange


class Work(Enum):
    """The kinds of work of a server for one stream."""

    CREATE = "create"  # open it empty; with other replicas, all found the group together
    JOIN = "join"  # open it empty, as a replica that the group's leader will add
    UPDATE = "update"  # take the new configuration
    REGROUP = "regroup"  # the replicas are others: the leader changes the group's membership
    LEAVE = "leave"  # its replica is no longer wanted; remove it when the group has let it go
    REMOVE = "remove"  # the stream is deleted: remove it with its data


@dataclass(frozen=True, slots=True)
class Duty:
    """One task of a server."""

    work: Work
    stream: Assignment  # as it is now; as it was, for REMOVE


def duties(changes: Iterable[Change], node: int) -> Iterator[Duty]:
    """Yield the duties of the server `node`."""
    for change in changes:
        if isinstance(change, StreamChange):
            yield from _stream_duties(change, node)


def _stream_duties(change: StreamChange, node: int) -> Iterator[Duty]:
    old, new, is_empty = change
    before = old.incarnation_on(node) if old is not None else 0
    if new is None:
        assert old is not None
        if before:
            yield Duty(Work.REMOVE, old)
        return
    after = new.incarnation_on(node)
    if before and not after:
        yield Duty(Work.LEAVE, new)
    elif after > before:
        yield Duty(Work.CREATE if is_empty else Work.JOIN, new)
    elif before:
        assert old is not None
        if old.stored.values != new.stored.values:
            yield Duty(Work.UPDATE, new)
        if old.replicas != new.replicas:
            yield Duty(Work.REGROUP, new)


def difference(old: MetaState, new: MetaState) -> list[Change]:
    """Return the changes from one state to another: first servers, then deleted streams, then the other streams."""
    nodes = sorted({*old.servers, *new.servers})
    servers = [ServerChange(old.servers.get(node), new.servers.get(node)) for node in nodes]
    before = {each.group: each for each in old.streams()}
    after = {each.group: each for each in new.streams()}
    gone = [StreamChange(before[group], None) for group in sorted(before.keys() - after.keys())]
    other = [stream_change(before.get(group), after[group], new.servers) for group in sorted(after)]
    changes: list[Change] = [*servers, *gone, *other]
    return [change for change in changes if change.old != change.new]
