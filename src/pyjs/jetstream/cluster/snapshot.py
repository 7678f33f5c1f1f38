"""The metadata of a cluster as bytes: equal states give equal bytes.

    snapshot = msgpack list: version u8, index, next group, servers, removed servers, streams
    servers and removed servers in the order of their numbers, streams in the order of their groups

A snapshot comes from another server or from the own disk; what holds it has a checksum. Nonsense in it is refused by
name all the same, and leaves no half of a state.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.jetstream.cluster.account_streams import AccountStreams
from pyjs.jetstream.cluster.assignments import GROUP_MAX, INDEX_MAX, take_assignment
from pyjs.jetstream.cluster.fields import BadRow, pack, unpack
from pyjs.jetstream.cluster.servers import SERVERS_MAX, take_removed, take_server
from pyjs.jetstream.cluster.state import MetaState

if TYPE_CHECKING:
    from pyjs.jetstream.cluster.assignments import Assignment

VERSION = 1
SNAPSHOT_SIZE_MAX = 1 << 30  # bytes
ROWS_MAX = SNAPSHOT_SIZE_MAX  # of streams and of removed servers: a row has more than a byte


class UnknownSnapshot(PyjsError):
    """A newer server wrote the snapshot: this one must be updated."""


def encode_snapshot(state: MetaState) -> bytes:
    """Return the bytes of a state."""
    streams = sorted(state.streams(), key=attrgetter("group"))
    return pack(
        [
            VERSION,
            state.index,
            state.next_group,
            [state.servers[node].to_row() for node in sorted(state.servers)],
            [state.removed[node].to_row() for node in sorted(state.removed)],
            [stream.to_row() for stream in streams],
        ]
    )


def decode_snapshot(data: bytes) -> MetaState:
    """Return the state in `data`.

    Raises:
        UnknownSnapshot: a newer server wrote it.
        BadRow: it is not a snapshot.
    """
    row = unpack(data, "a snapshot of the metadata", SNAPSHOT_SIZE_MAX)
    version = row.number("version")
    if version != VERSION:
        raise UnknownSnapshot(
            f"a newer server wrote version {version} of {row.what}; this one reads {VERSION}: update it"
        )
    state = MetaState()
    state.index = row.number("index", 0, INDEX_MAX)
    state.next_group = row.number("next group", 1, GROUP_MAX)
    for server in map(take_server, row.rows("servers", SERVERS_MAX)):
        state.servers[server.node] = server
    for removed in map(take_removed, row.rows("removed servers", ROWS_MAX)):
        state.removed[removed.node] = removed
    streams = [take_assignment(each) for each in row.rows("streams", ROWS_MAX)]
    row.end()
    if state.servers.keys() & state.removed.keys():
        raise BadRow(f"{row.what} has a server that was removed")
    _put_all(state, streams, row.what)
    return state


def _put_all(state: MetaState, streams: list[Assignment], what: str) -> None:
    last = 0
    for stream in streams:
        if (
            not last < stream.group < state.next_group
            or state.stream(stream.account, stream.name) is not None
        ):
            raise BadRow(
                f"{what} has stream {stream.name} of group {stream.group} twice, or in the wrong place"
            )
        last = stream.group
        state.accounts.setdefault(stream.account, AccountStreams()).put(stream)
