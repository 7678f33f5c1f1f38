"""Chooses the servers that hold a stream, by its configuration and by the load of the servers.

A server fits if it is in the requested cluster, is online, has all requested tags and none of the unwanted ones
(`!tag`), and has room for `max_bytes`. For a replicated stream, it must also be below `max_ha_assets`. With a
`unique_tag`, two replicas never share a tag with this prefix. Of the servers that fit, the least loaded come first.
They are compared by replicated streams if the stream is replicated, then by free bytes, by streams, and by number. So
equal input gives equal results, whereas nats-server chooses at random among equals.

Source: rules and texts of nats-server 2.15.1, compared in tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyjs.base.gotext import quoted
from pyjs.jetstream import errcodes
from pyjs.jetstream.cluster.servers import Load
from pyjs.jetstream.config.choices import MEMORY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyjs.jetstream.cluster.servers import Server
    from pyjs.jetstream.config.stream import Placement, StreamConfig
    from pyjs.jetstream.errcodes import ApiError

NOT = "!"  # before a tag that a server must not have
NO_STREAMS = "!jetstream"  # tag of a server on which no streams are placed
UNLIMITED = 1 << 63  # free bytes of a server without a limit


@dataclass(frozen=True, slots=True)
class Rules:
    """The servers that are online, and the placement options of the server that chooses."""

    online: Collection[int]
    unique_tag: str = ""  # a prefix in lower case; "": none
    max_ha_assets: int = 0  # 0: no limit

    def is_full(self, load: Load) -> bool:
        """Return whether a server with this load has reached `max_ha_assets`."""
        return 0 < self.max_ha_assets <= load.ha_assets


@dataclass(slots=True)
class Misfits:
    """The reasons why servers did not fit, for the error message."""

    offline: bool = False
    excluded: bool = False
    full: bool = False
    not_unique: bool = False
    other: bool = False
    missing_tags: set[str] = field(default_factory=set)
    unwanted_tags: set[str] = field(default_factory=set)

    def wrong_tag(self, tag: str) -> None:
        """Add a requested tag that a server lacks, or an unwanted tag (`!tag`) that a server has."""
        (self.unwanted_tags if tag.startswith(NOT) else self.missing_tags).add(tag.removeprefix(NOT))

    def error(self) -> ApiError:
        """Return the error that lists these reasons."""
        parts = ["no suitable peers for placement"]
        said = (
            (self.offline, "peer offline"),
            (self.excluded, "exclude tag set"),
            (self.full, "insufficient storage"),
            (self.not_unique, "server tag not unique"),
            (self.other, "miscellaneous issue"),
        )
        parts += [text for is_so, text in said if is_so]
        parts += [f"tags not matched [{_quoted(self.missing_tags)}]"] if self.missing_tags else []
        parts += [f"tags excluded [{_quoted(self.unwanted_tags)}]"] if self.unwanted_tags else []
        return errcodes.CLUSTER_NO_PEERS.error(err=", ".join(parts))


def _quoted(tags: Iterable[str]) -> str:
    return ", ".join(f"'{tag}'" for tag in sorted(tags))


def place(
    servers: Iterable[Server],
    config: StreamConfig,
    cluster: str,
    load: dict[int, Load],
    rules: Rules,
    kept: tuple[int, ...] = (),
    avoided: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the servers for a stream: those in `kept` first, then new ones that are not in `avoided`.

    `cluster` is used if the configuration names no cluster. `load` is the load of each server, and may include
    streams that are only planned.

    Raises:
        ApiError: too few servers fit (10005); the message lists the reasons.
    """
    wanted = config.num_replicas
    if len(kept) >= wanted:
        return kept[:wanted]
    known = {server.node: server for server in servers}
    search = _Search(config, cluster, load, rules, [known[node] for node in kept if node in known])
    others = [known[node] for node in sorted(known) if node not in kept and node not in avoided]
    found = sorted((server for server in others if search.fits(server)), key=search.rank)
    chosen = search.unique(found, wanted - len(kept))
    if len(kept) + len(chosen) < wanted:
        raise search.misfits.error()
    return kept + tuple(server.node for server in chosen)


def successor(
    servers: Mapping[int, Server],
    nodes: Collection[int],
    leader: int,
    placement: Placement | None,
    online: Collection[int],
) -> int:
    """Return the server in `nodes` that should lead after `leader`, as an operator requested, or 0 if any may lead.

    Raises:
        ApiError: no server fits (10005).
    """
    others = [node for node in sorted(nodes) if node != leader and node in online]
    if placement is None or len(nodes) == 1:
        return 0
    if placement.preferred:
        names = {servers[node].name: node for node in nodes if node in servers}
        node, shown = names.get(placement.preferred, 0), quoted(placement.preferred)
        errcodes.CLUSTER_NO_PEERS.raise_if(not node, err=f"preferred server {shown} not known")
        errcodes.CLUSTER_NO_PEERS.raise_if(node == leader, err=f"preferred server {shown} is already leader")
        others = [node] if node in others else []
    elif placement.cluster or placement.tags:
        known = [servers[node] for node in others if node in servers]
        known = [each for each in known if placement.cluster in ("", each.cluster)]
        # Unlike in placements, nats-server takes `!tag` for the name of a tag here.
        others = [each.node for each in known if all(tag.lower() in each.tags for tag in placement.tags)]
    else:
        return 0
    errcodes.CLUSTER_NO_PEERS.raise_if(not others, err="no replacement peer connected")
    return others[0]


def wrong_tag(tags: Iterable[str], server: Server) -> str | None:
    """Return the first requested or unwanted tag in `tags` that excludes a server, or None if the server matches."""
    for tag in tags:
        if (tag.removeprefix(NOT).lower() in server.tags) == tag.startswith(NOT):
            return tag
    return None


def fitting(
    servers: Iterable[Server],
    config: StreamConfig,
    cluster: str,
    load: dict[int, Load],
    rules: Rules,
    nodes: Collection[int],
) -> tuple[int, ...]:
    """Return the servers in `nodes` that fit a new configuration of the stream that they hold.

    The limits on bytes and on replicated streams are not checked, because these servers already hold the stream.
    """
    search = _Search(replace(config, max_bytes=-1), cluster, load, replace(rules, max_ha_assets=0), [])
    known = {server.node: server for server in servers}
    stay = [known[node] for node in nodes if node in known and search.fits(known[node])]
    return tuple(server.node for server in search.unique(stay, len(stay)))


class _Search:
    """One search for servers that can hold a stream."""

    def __init__(
        self, config: StreamConfig, cluster: str, load: dict[int, Load], rules: Rules, kept: list[Server]
    ) -> None:
        placement = config.placement
        self._config = config
        self._cluster = (placement.cluster if placement is not None else "") or cluster
        self._tags = placement.tags if placement is not None else ()
        self._load = load
        self._rules = rules
        # If the stream itself names a tag with this prefix, its replicas may share one.
        prefix = rules.unique_tag
        self._unique = "" if any(tag.removeprefix(NOT).startswith(prefix) for tag in self._tags) else prefix
        self._taken = {tag for server in kept for tag in self._unique_tags(server)}
        self.misfits = Misfits()

    def fits(self, server: Server) -> bool:
        """Return whether a server may hold the stream.

        If not, record the reason, unless the server is in another cluster.
        """
        misfits, load = self.misfits, self._load.get(server.node, Load())
        if server.cluster != self._cluster:
            return False
        if server.node not in self._rules.online:
            misfits.offline = True
        elif NO_STREAMS in server.tags or server.evacuating:
            misfits.excluded = True
        elif (tag := wrong_tag(self._tags, server)) is not None:
            misfits.wrong_tag(tag)
        elif max(self._config.max_bytes, 0) > self._free(server):
            misfits.full = True
        elif self._config.num_replicas > 1 and self._rules.is_full(load):
            misfits.other = True
        else:
            return True
        return False

    def rank(self, server: Server) -> tuple[int, int, int, int]:
        """Return the sort key of a server that fits; the best server has the smallest key."""
        load = self._load.get(server.node, Load())
        ha_assets = load.ha_assets if self._config.num_replicas > 1 else 0
        return ha_assets, -self._free(server), load.streams, server.node

    def unique(self, servers: list[Server], count: int) -> list[Server]:
        """Return up to `count` of the servers, in order, without those that have no unique tag or share one.

        If no unique tag is required, these are the first servers.
        """
        chosen: list[Server] = []
        for server in servers:
            if len(chosen) == count:
                break
            if self._unique:
                tags = self._unique_tags(server)
                if not tags or not self._taken.isdisjoint(tags):
                    self.misfits.not_unique = True
                    continue
                self._taken.update(tags)
            chosen.append(server)
        return chosen

    def _unique_tags(self, server: Server) -> list[str]:
        return [tag for tag in server.tags if self._unique and tag.startswith(self._unique)]

    def _free(self, server: Server) -> int:
        load = self._load.get(server.node, Load())
        is_memory = self._config.storage == MEMORY
        most, used = (server.max_memory, load.memory) if is_memory else (server.max_storage, load.storage)
        return max(most - used, 0) if most >= 0 else UNLIMITED
