"""The metadata of a cluster as bytes: equal states give equal bytes.

    snapshot = msgpack list: version u8 (2), index, next group, servers, removed servers, streams
    servers and removed servers in the order of their numbers, streams in the order of their groups

A snapshot comes from another server or from this server's disk, in a container with a checksum. Decoding never
returns a partial state: an invalid value causes an error that names its field.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.jetstream.cluster.assignments import GROUP_MAX, INDEX_MAX, take_assignment
from pyjs.jetstream.cluster.fields import BadRow, pack, unpack
from pyjs.jetstream.cluster.servers import SERVERS_MAX, take_removed, take_server
from pyjs.jetstream.cluster.state import MetaState
from pyjs.subjects.overlap import at_once

if TYPE_CHECKING:
    from collections.abc import Generator

VERSION = 2
OLD_VERSION = 1  # its streams lack `target`; some lack `is_built`, and some of these `ended` too
STEP = 64  # number of streams between two yields: a few milliseconds
SNAPSHOT_SIZE_MAX = 1 << 30  # maximum bytes
ROWS_MAX = SNAPSHOT_SIZE_MAX  # maximum number of streams and of removed servers: each takes more than a byte


class UnknownSnapshot(PyjsError):
    """Raised if a newer server wrote a snapshot. This server must be updated to read the snapshot."""


def encode_snapshot(state: MetaState) -> bytes:
    """Return a snapshot of the state."""
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
    """Return the state in the snapshot `data`, in a single step.

    Raises:
        UnknownSnapshot: a newer server wrote `data`.
        BadRow: `data` is not a snapshot.
    """
    return at_once(decoding(data))


def decoding(data: bytes) -> Generator[None, None, MetaState]:
    """Decode the snapshot `data` in steps; the generator returns the state.

    Raises:
        UnknownSnapshot: a newer server wrote `data`.
        BadRow: `data` is not a snapshot.
    """
    row = unpack(data, "a snapshot of the metadata", SNAPSHOT_SIZE_MAX)
    version = row.number("version")
    if version not in (VERSION, OLD_VERSION):
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
    if state.servers.keys() & state.removed.keys():
        raise BadRow(f"{row.what} has a server that was removed")
    last = 0
    for at, each in enumerate(row.rows("streams", ROWS_MAX)):
        if at % STEP == STEP - 1:
            yield
        stream = take_assignment(each, may_be_short=version == OLD_VERSION)
        if (
            not last < stream.group < state.next_group
            or state.stream(stream.account, stream.name) is not None
        ):
            raise BadRow(
                f"{row.what} has stream {stream.name} of group {stream.group} twice, or in the wrong place"
            )
        last = stream.group
        state.put(stream)
    row.end()
    return state
