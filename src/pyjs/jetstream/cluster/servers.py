"""The servers of a cluster, as its metadata describes them.

The metadata does not say which servers are reachable: each server observes this for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.cluster.fields import Row

NODE_MAX = (1 << 31) - 1
INCARNATION_MAX = (1 << 32) - 1
STORE_MAX = (1 << 64) - 1
SERVERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the cluster."""

    node: int  # number of the server, a digest of its name
    name: str
    cluster: str
    tags: tuple[str, ...]  # in lower case
    store: int  # random number of its store directory; if it changes, the files were lost
    version: str  # version of its software, shown to users
    level: int  # the newest version of entries that it applies
    max_memory: int  # bytes for memory streams; -1: no limit
    max_storage: int  # bytes for file streams; -1: no limit
    # Set by the metadata, not by the server:
    incarnation: int = 1  # incarnation of its peer in the metadata group; higher with each new store
    evacuating: bool = False  # the server gets no more streams, and its streams move away

    def to_row(self) -> list[Any]:
        """Return the values of the server, in the order in which `take_server` reads them."""
        return [
            self.node,
            self.name,
            self.cluster,
            list(self.tags),
            self.store,
            self.version,
            self.level,
            self.max_memory,
            self.max_storage,
            self.incarnation,
            self.evacuating,
        ]


def take_server(row: Row) -> Server:
    """Return the server in a row.

    Raises:
        BadRow: a value is missing or invalid.
    """
    server = Server(
        row.number("node", 1, NODE_MAX),
        row.text("name"),
        row.text("cluster"),
        row.texts("tags"),
        row.number("store", 0, STORE_MAX),
        row.text("version"),
        row.number("level", 1, 255),
        row.signed("max_memory"),
        row.signed("max_storage"),
        row.number("incarnation", 1, INCARNATION_MAX),
        row.flag("evacuating"),
    )
    row.end()
    return server


@dataclass(slots=True)
class Load:
    """The streams placed on one server, and the bytes that they may use."""

    memory: int = 0  # bytes that memory streams on the server may use
    storage: int = 0
    streams: int = 0
    ha_assets: int = 0  # number of streams with several replicas


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed server, which may join again only with an empty store."""

    node: int
    name: str
    store: int
    incarnation: int

    def to_row(self) -> list[Any]:
        """Return the values of the server, in the order in which `take_removed` reads them."""
        return [self.node, self.name, self.store, self.incarnation]


def take_removed(row: Row) -> Removed:
    """Return the removed server in a row.

    Raises:
        BadRow: a value is missing or invalid.
    """
    removed = Removed(
        row.number("node", 1, NODE_MAX),
        row.text("name"),
        row.number("store", 0, STORE_MAX),
        row.number("incarnation", 1, INCARNATION_MAX),
    )
    row.end()
    return removed
