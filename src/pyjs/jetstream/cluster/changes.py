"""The changes made by an applied entry, or between two states, for a server that has received a snapshot.

Changes are the same on every server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
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


Change: TypeAlias = ServerChange | StreamChange


def difference(old: MetaState, new: MetaState) -> list[Change]:
    """Return the changes from one state to another: first servers, then deleted streams, then the other streams."""
    nodes = sorted({*old.servers, *new.servers})
    servers = [ServerChange(old.servers.get(node), new.servers.get(node)) for node in nodes]
    before = {each.group: each for each in old.streams()}
    after = {each.group: each for each in new.streams()}
    gone = [StreamChange(before[group], None) for group in sorted(before.keys() - after.keys())]
    other = [StreamChange(before.get(group), after[group]) for group in sorted(after)]
    changes: list[Change] = [*servers, *gone, *other]
    return [change for change in changes if change.old != change.new]
