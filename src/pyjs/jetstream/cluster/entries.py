"""Entries of the metadata group, proposed by its leader and applied by every server.

    entry = msgpack list: version u8, kind u8, the fields of its kind

An entry has the requested change, and the state on which the change is based. When a server applies the entry, it
decides whether to make the change; every server decides in the same way. A server cannot skip a committed entry that
it does not understand, since it would then differ from the others: decoding raises UnknownEntry or BadRow, and the
group stops here.

`Bounds` are the limits of the account at the server that proposes. They come from configuration and tokens, which may
differ between servers; all servers apply those in the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.errors import PyjsError
from pyjs.jetstream.cluster.assignments import (
    GROUP_MAX,
    INDEX_MAX,
    REPLICAS_MAX,
    StoredConfig,
    check_target,
    take_config,
)
from pyjs.jetstream.cluster.fields import BadRow, Row, pack, unpack
from pyjs.jetstream.cluster.servers import NODE_MAX, Server, take_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

VERSION = 1
ENTRY_SIZE_MAX = 16 << 20  # maximum bytes of an entry


class Kind(IntEnum):
    """The kinds of entries; the number of a kind is never used again for another kind."""

    SERVER_DESCRIBED = 1
    SERVER_REMOVED = 2
    SERVER_EVACUATING = 3
    STREAM_CREATED = 4
    STREAM_UPDATED = 5
    STREAM_MOVED = 6
    STREAM_DELETED = 7
    ACCOUNT_PURGED = 8
    REPLICA_LOST = 9
    GROUP_ENDED = 10
    STREAM_RESTORED = 11
    STREAM_OPENED = 12


class UnknownEntry(PyjsError):
    """Raised if a newer server proposed an entry that this server cannot decode. This server must be updated."""

    def __init__(self, version: int, kind: int) -> None:
        super().__init__(
            f"a newer server wrote an entry of version {version} and kind {kind} to the metadata of the cluster;"
            f" this one reads versions up to {VERSION}: update it"
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of an account that apply to a new stream; -1 means no limit."""

    max_streams: int = -1
    max_bytes: int = -1  # maximum bytes of all streams of the account with the same storage
    # count only streams with the same number of replicas, and of each only the bytes of one replica
    is_tier: bool = False


@dataclass(frozen=True, slots=True)
class ServerDescribed:
    """An entry that adds a server to the cluster, or changes its description."""

    server: Server

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.server.to_row()]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(take_server(row.row("server")))


@dataclass(frozen=True, slots=True)
class ServerRemoved:
    """An entry that removes a server permanently, as an operator requested."""

    node: int

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.node]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.number("node", 1, NODE_MAX))


@dataclass(frozen=True, slots=True)
class ServerEvacuating:
    """An entry that begins the evacuation of a server, or cancels it if `on` is False.

    Streams move away from an evacuated server.
    """

    node: int
    on: bool

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.node, self.on]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.number("node", 1, NODE_MAX), row.flag("on"))


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """An entry that creates a stream. Its proposer has checked the configuration and chosen the servers."""

    account: str
    stored: StoredConfig
    nodes: tuple[int, ...]
    bounds: Bounds = Bounds()

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.stored.values, list(self.nodes), *_bounds_row(self.bounds)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        made = cls(row.text("account"), take_config(row), _take_nodes(row), _take_bounds(row))
        if len(made.nodes) != made.stored.config.num_replicas:
            raise BadRow(f"{row.what} has {len(made.nodes)} servers, not as many as its replicas")
        return made


@dataclass(frozen=True, slots=True)
class StreamRestored:
    """An entry that adds a stream which the server `node` has built from an archive; other replicas will copy it."""

    account: str
    stored: StoredConfig
    node: int
    created_ns: int
    bounds: Bounds = Bounds()

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [
            self.account,
            self.stored.values,
            self.node,
            self.created_ns,
            *_bounds_row(self.bounds),
        ]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        account, stored, node = row.text("account"), take_config(row), row.number("node", 1, NODE_MAX)
        return cls(account, stored, node, row.signed("created"), _take_bounds(row))


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """An entry for a stream that was built from an archive.

    If `is_there` is True, the server has opened the stream. Otherwise the entry removes the stream.
    """

    account: str
    name: str
    group: int
    is_there: bool

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.name, self.group, self.is_there]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        account, name, group = row.text("account"), row.text("name"), row.number("group", 1, GROUP_MAX)
        return cls(account, name, group, row.flag("is_there"))


@dataclass(frozen=True, slots=True)
class StreamUpdated:
    """An entry that updates a stream, if `revision` is still the current revision of the stream."""

    account: str
    group: int
    revision: int
    stored: StoredConfig
    nodes: tuple[int, ...]
    bounds: Bounds = Bounds()
    target: int = 0  # the server to which the only replica moves

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [
            self.account,
            self.group,
            self.revision,
            self.stored.values,
            list(self.nodes),
            *_bounds_row(self.bounds),
            self.target,
        ]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        account, seen = row.text("account"), _take_seen(row)
        config, nodes, bounds = take_config(row), _take_nodes(row), _take_bounds(row)
        return cls(account, *seen, config, nodes, bounds, _take_target(row, nodes))


@dataclass(frozen=True, slots=True)
class StreamMoved:
    """An entry that assigns a stream to other servers.

    If `target` is not 0, the only replica begins to move to this server. An entry that ends the move has only the
    target in `nodes`. An entry that cancels the move has only the original server in `nodes`.
    """

    account: str
    name: str
    group: int
    revision: int
    nodes: tuple[int, ...]
    target: int = 0

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.name, self.group, self.revision, list(self.nodes), self.target]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        account, name, seen, nodes = row.text("account"), row.text("name"), _take_seen(row), _take_nodes(row)
        return cls(account, name, *seen, nodes, _take_target(row, nodes))


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """An entry about a replica that has lost its log on the server `node`: the replica restarts as a new peer."""

    account: str
    name: str
    group: int
    revision: int
    node: int

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.name, self.group, self.revision, self.node]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.text("account"), row.text("name"), *_take_seen(row), row.number("node", 1, NODE_MAX))


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """An entry that ends the group of a stream with one replica. The replica continues without a group."""

    account: str
    name: str
    group: int
    revision: int

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.name, self.group, self.revision]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.text("account"), row.text("name"), *_take_seen(row))


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    """An entry that deletes a stream."""

    account: str
    name: str
    group: int

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account, self.name, self.group]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.text("account"), row.text("name"), row.number("group", 1, GROUP_MAX))


@dataclass(frozen=True, slots=True)
class AccountPurged:
    """An entry that deletes all streams of an account."""

    account: str

    def fields(self) -> list[Any]:
        """Return the values of the fields, in the order in which `take` reads them."""
        return [self.account]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the entry whose fields are the next values of `row`.

        Raises:
            BadRow: a value is missing or invalid.
        """
        return cls(row.text("account"))


Entry: TypeAlias = (
    ServerDescribed
    | ServerRemoved
    | ServerEvacuating
    | StreamCreated
    | StreamRestored
    | StreamOpened
    | StreamUpdated
    | StreamMoved
    | ReplicaLost
    | GroupEnded
    | StreamDeleted
    | AccountPurged
)
KINDS: dict[type, Kind] = {
    ServerDescribed: Kind.SERVER_DESCRIBED,
    ServerRemoved: Kind.SERVER_REMOVED,
    ServerEvacuating: Kind.SERVER_EVACUATING,
    StreamCreated: Kind.STREAM_CREATED,
    StreamRestored: Kind.STREAM_RESTORED,
    StreamOpened: Kind.STREAM_OPENED,
    StreamUpdated: Kind.STREAM_UPDATED,
    StreamMoved: Kind.STREAM_MOVED,
    ReplicaLost: Kind.REPLICA_LOST,
    GroupEnded: Kind.GROUP_ENDED,
    StreamDeleted: Kind.STREAM_DELETED,
    AccountPurged: Kind.ACCOUNT_PURGED,
}
_TAKE: dict[int, Callable[[Row], Any]] = {
    kind: made.take  # type: ignore[attr-defined]
    for made, kind in KINDS.items()
}


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry.

    Raises:
        BadRow: no server would accept the entry, so it must not be proposed; the message names the field.
    """
    data = pack([VERSION, int(KINDS[type(entry)]), *entry.fields()])
    decode(data)
    return data


def decode(data: bytes) -> Entry:
    """Return the entry in `data`.

    Raises:
        UnknownEntry: a newer server wrote the entry.
        BadRow: the entry is damaged.
    """
    row = unpack(data, "an entry of the metadata", ENTRY_SIZE_MAX)
    version, kind = row.number("version"), row.number("kind")
    if version != VERSION or kind not in _TAKE:
        raise UnknownEntry(version, kind)
    entry: Entry = _TAKE[kind](row)
    row.end()
    return entry


def _take_seen(row: Row) -> tuple[int, int]:
    return row.number("group", 1, GROUP_MAX), row.number("revision", 1, INDEX_MAX)


def _take_nodes(row: Row) -> tuple[int, ...]:
    return row.numbers("nodes", REPLICAS_MAX, 1, NODE_MAX)


def _take_target(row: Row, nodes: tuple[int, ...]) -> int:
    target = row.number("target", 0, NODE_MAX)
    check_target(row, target, nodes)
    return target


def _bounds_row(bounds: Bounds) -> list[Any]:
    return [bounds.max_streams, bounds.max_bytes, bounds.is_tier]


def _take_bounds(row: Row) -> Bounds:
    return Bounds(row.signed("max_streams"), row.signed("max_bytes"), row.flag("is_tier"))
