"""The changes that an applied entry or a received snapshot makes to the metadata.

Changes are the same on every server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.servers import Server
    from pyjs.jetstream.cluster.state import MetaState


class ServerChange(NamedTuple):
    """The change of a server: it joined (`old` is None), was removed (`new` is None), or has a new description."""

    old: Server | None
    new: Server | None


class StreamChange(NamedTuple):
    """The change of a stream: it was created (`old` is None), deleted (`new` is None), or updated."""

    old: Assignment | None
    new: Assignment | None


Change: TypeAlias = ServerChange | StreamChange


def difference(old: MetaState, new: MetaState) -> list[Change]:
    """Return the changes from one state to another: first servers, then deleted streams, then the other streams."""
    nodes = sorted({*old.servers, *new.servers})
    servers = [ServerChange(old.servers.get(node), new.servers.get(node)) for node in nodes]
    before = {(each.account, each.name, each.created_ns): each for each in old.streams()}
    after = {(each.account, each.name, each.created_ns): each for each in new.streams()}
    gone = [StreamChange(before[key], None) for key in before.keys() - after.keys()]
    gone.sort(key=lambda change: change.old.group if change.old else 0)
    other = [
        StreamChange(before.get(key), after[key]) for key in sorted(after, key=lambda key: after[key].group)
    ]
    changes: list[Change] = [*servers, *gone, *other]
    return [change for change in changes if change.old != change.new]
