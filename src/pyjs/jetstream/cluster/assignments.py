"""An assigned stream: its configuration, and the servers that hold its replicas.

The configuration is held as stored values. If a newer server wrote options that this server does not know, the stream
is offline here, but keeps its name, its subjects and its reserved bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.nuid import DIGITS
from pyjs.jetstream.cluster.fields import BadRow
from pyjs.jetstream.cluster.servers import INCARNATION_MAX, NODE_MAX, Load
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.declared import from_json, from_meta, to_meta
from pyjs.jetstream.config.offline import offline_stream
from pyjs.jetstream.config.stream import Placement, StreamConfig
from pyjs.jetstream.names import is_valid_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from pyjs.jetstream.cluster.fields import Row

REPLICAS_MAX = 5
GROUP_MAX = (1 << 63) - 1
INDEX_MAX = (1 << 64) - 1
CONFIG_ERROR = (
    "decoding error: json",
    "unsupported - config error",
)  # options of one nats-server, and options of a cluster


class Replica(NamedTuple):
    """One copy of a stream, on one server."""

    node: int
    incarnation: int  # each replica added later has a higher one, so that every peer of a group is unique


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A stored configuration, with the options that this server knows."""

    values: dict[str, Any]  # shared, so it must not be modified
    config: StreamConfig = field(compare=False)  # the options that this server knows
    # the reason why this server cannot serve the stream; "": it can
    offline: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stream of an account: its configuration, and the servers that hold its replicas."""

    account: str
    # Unique: a stream that is created again gets another number. So does a stream that was reduced to one replica,
    # when its old group has ended.
    group: int
    revision: int  # index of the log entry that last changed the stream
    created_ns: int
    replicas: tuple[Replica, ...]  # the first one should become the first leader
    newest: int  # the highest incarnation that any replica of the stream has had
    stored: StoredConfig
    # The former group, whose only member was the only replica; the stream keeps its messages. 0: none.
    ended: int = 0
    # The server of the first replica has built the stream from an archive, but has not opened it yet.
    is_built: bool = False
    # The server to which a stream with one replica moves; until the copy is complete, the stream has two replicas.
    # 0: the stream does not move.
    target: int = 0
    # While the stream moves: its placement before the move, as stored; a cancelled move restores it.
    placed: Mapping[str, Any] | None = None

    @property
    def config(self) -> StreamConfig:
        """The options that this server knows."""
        return self.stored.config

    @property
    def shown_config(self) -> StreamConfig:
        """The options as clients see them: a stream that moves is shown with one replica."""
        return replace(self.config, num_replicas=1) if self.target else self.config

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.stored.config.name

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node numbers of the servers that hold the stream."""
        return tuple(replica.node for replica in self.replicas)

    @property
    def raft_group(self) -> str:
        """The name of the stream's group in reports."""
        return group_name(self.group, self.config)

    @property
    def first_node(self) -> int:
        """The server of the only replica with incarnation 1, or 0 if there is no such replica or more than one."""
        found = [each.node for each in self.replicas if each.incarnation == 1]
        return found[0] if len(found) == 1 else 0

    def incarnation_on(self, node: int) -> int:
        """Return the incarnation of the replica on a server, or 0 if the server has none."""
        return next((each.incarnation for each in self.replicas if each.node == node), 0)

    def regrouped(self, nodes: tuple[int, ...], lost: int = 0) -> Assignment:
        """Return the assignment with replicas on the servers `nodes`.

        Replicas on servers that are new, or on the server `lost`, get a new incarnation.
        """
        stay = {each.node: each for each in self.replicas if each.node != lost}
        newest = self.newest + any(node not in stay for node in nodes)
        replicas = tuple(stay.get(node) or Replica(node, newest) for node in nodes)
        return replace(self, replicas=replicas, newest=newest)

    def moving(self, nodes: tuple[int, ...], target: int) -> Assignment:
        """Return the assignment of a stream with one replica while it moves to `target`.

        Until the move is complete, the stream has replicas on all `nodes`.
        """
        return self.updated(nodes, with_replicas(self.stored, len(nodes)), target)

    def updated(self, nodes: tuple[int, ...], stored: StoredConfig, target: int) -> Assignment:
        """Return the assignment with another configuration and with replicas on the servers `nodes`.

        If `target` is not 0, the stream moves to this server.
        """
        placed = self.placed if self.target else self.stored.values.get("placement")
        new = replace(self.regrouped(nodes), stored=stored, target=target)
        return replace(new, placed=placed if target else None)

    def moved(self) -> Assignment:
        """Return the assignment after the move: the only replica is on `target`."""
        return self.updated((self.target,), with_replicas(self.stored, 1), 0)

    @property
    def origin(self) -> int:
        """The server from which the only replica moves to `target`."""
        return next(node for node in self.nodes if node != self.target)

    def stayed(self) -> Assignment:
        """Return the assignment after a cancelled move: the only replica stays, under its former placement."""
        single = with_replicas(self.stored, 1)
        placement = None if self.placed is None else from_json(Placement, self.placed)
        values, config = (
            {**single.values, "placement": self.placed},
            replace(single.config, placement=placement),
        )
        return self.updated((self.origin,), StoredConfig(values, config, single.offline), 0)

    def to_row(self) -> list[Any]:
        """Return the values of the assignment in the order in which `take_assignment` reads them."""
        replicas = [list(each) for each in self.replicas]
        head = [self.account, self.group, self.revision, self.created_ns]
        placed = [self.placed or {}] if self.target else []
        return [
            *head,
            replicas,
            self.newest,
            self.ended,
            self.is_built,
            self.target,
            *placed,
            self.stored.values,
        ]


def add_load(load: dict[int, Load], config: StreamConfig, nodes: Iterable[int], count: int = 1) -> None:
    """Add `count` streams with this configuration to the load of each server in `nodes`; `count` may be -1."""
    size = count * max(config.max_bytes, 0)
    for node in nodes:
        there = load.setdefault(node, Load())
        there.streams += count
        there.ha_assets += count if config.num_replicas > 1 else 0
        if config.storage == MEMORY:
            there.memory += size
        else:
            there.storage += size
        if there == Load():
            del load[node]


def group_name(group: int, config: StreamConfig) -> str:
    """Return the name of a group in nats-server's form: replicas, storage, and at least eight digits."""
    digits = ""
    while group or len(digits) < 8:
        group, digit = divmod(group, len(DIGITS))
        digits = DIGITS[digit] + digits
    kind = {FILE: "F", MEMORY: "M"}[config.storage]
    return f"S-R{config.num_replicas}{kind}-{digits}"


def take_assignment(row: Row, *, may_be_short: bool = False) -> Assignment:
    """Return the assignment in a row. If `may_be_short`, values that later versions have added may be missing.

    Raises:
        BadRow: a value is missing or invalid.
    """
    account, group = row.text("account"), row.number("group", 1, GROUP_MAX)
    revision, created_ns = row.number("revision", 1, INDEX_MAX), row.signed("created")
    replicas = tuple(_take_replica(each) for each in row.rows("replicas", REPLICAS_MAX))
    newest = row.number("newest", 1, INCARNATION_MAX)
    ended = 0 if may_be_short and row.left < 2 else row.number("ended", 0, GROUP_MAX)
    is_built = False if may_be_short and row.left < 2 else row.flag("is_built")
    target = 0 if may_be_short else row.number("target", 0, NODE_MAX)
    # A move that an earlier version has begun has no former placement.
    placed = row.values("placement") or None if target and row.left > 1 else None
    stored = take_config(row)
    row.end()
    nodes = {each.node for each in replicas}
    if not replicas or len(nodes) < len(replicas) or max(each.incarnation for each in replicas) > newest:
        raise BadRow(f"replicas of {row.what} are none, two on one server, or newer than {newest}")
    check_target(row, target, nodes)
    known = account, group, revision, created_ns, replicas, newest, stored, ended, is_built
    return Assignment(*known, target, placed)


def check_target(row: Row, target: int, nodes: Collection[int]) -> None:
    """Check that the target of a move is 0, or is one of exactly two servers of the stream.

    Raises:
        BadRow: the target is invalid.
    """
    if target and (target not in nodes or len(nodes) != 2):
        raise BadRow(f"target of {row.what} is not one of two servers of the stream")


def _take_replica(row: Row) -> Replica:
    replica = Replica(row.number("node", 1, NODE_MAX), row.number("incarnation", 1, INCARNATION_MAX))
    row.end()
    return replica


def stored_config(config: StreamConfig) -> StoredConfig:
    """Return the stored form of a configuration that this server created."""
    return StoredConfig(to_meta(config), config)


def with_replicas(stored: StoredConfig, replicas: int) -> StoredConfig:
    """Return a configuration with another number of replicas."""
    values = {**stored.values, "num_replicas": replicas}
    return StoredConfig(values, replace(stored.config, num_replicas=replicas), stored.offline)


def take_config(row: Row) -> StoredConfig:
    """Return the configuration in the next value of a row.

    Raises:
        BadRow: a known option has the wrong type, or the configuration is not that of a stream.
    """
    values = row.values("config")
    try:
        newer = offline_stream(values)
        config = newer.config if newer is not None else from_meta(StreamConfig, values)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRow(f"config of {row.what}: {error}") from None
    if not is_valid_name(config.name) or config.storage not in (FILE, MEMORY):
        raise BadRow(f"config of {row.what} has no name or no storage")
    if not 1 <= config.num_replicas <= REPLICAS_MAX:
        raise BadRow(f"config of {row.what} has {config.num_replicas} replicas")
    reason = newer.reason if newer is not None else ""
    return StoredConfig(values, config, reason.replace(*CONFIG_ERROR))
