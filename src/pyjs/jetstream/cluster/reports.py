"""Reports about groups as dicts with fields in the order of the API: `cluster` of streams, `meta_cluster` of /jsz.

Source: fields, their order and omitted fields as three nats-servers 2.15.1 answer,
tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import time_text
from pyjs.base.nuid import short_hash

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.state import MetaState


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The status of one member of a group, as this server sees it."""

    node: int
    is_current: bool  # the peer has all committed entries
    active_ns: int  # ns since the last message from the peer
    is_offline: bool = False
    lag: int = 0  # number of entries that the peer has not confirmed yet


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group, as this server sees it."""

    leader: int = 0  # number of the leader's server; 0: no leader is known
    leader_since_ns: int = 0  # on the wall clock; 0: unknown
    # all peers but this server; of a stream without a leader, this server too
    peers: tuple[PeerStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The numbers about the metadata group in a report: voters, waiting API requests, and the last snapshot."""

    voters: int
    requests: int = 0  # number of API requests of this server that wait, except those in `infos`
    infos: int = 0  # number of requests for information that wait
    entries: int = 0  # number of entries applied since the last snapshot
    size: int = 0  # bytes of these entries
    snapshot_ns: int = 0  # time of the last snapshot, on the wall clock; 0: there is none


class ConsumerName(NamedTuple):
    """The name of a consumer, and the number of its replicas, for its report."""

    name: str
    replicas: int = 0  # as configured; 0: as many as the stream has


def stream_cluster(
    state: MetaState, cluster: str, stream: Assignment, status: GroupStatus, account: str
) -> dict[str, Any]:
    """Return the field `cluster` of a stream's info; `account` is the account that carries the group's traffic."""
    group = stream.raft_group if len(stream.replicas) > 1 else ""
    return _group(state, cluster, group, status, account)


def consumer_cluster(
    state: MetaState,
    cluster: str,
    stream: Assignment,
    consumer: ConsumerName,
    status: GroupStatus,
    account: str,
) -> dict[str, Any]:
    """Return the field `cluster` of a consumer's info; `status` is the status of the stream's group.

    A consumer belongs to the group of its stream; the name shown is that of a separate group, as on nats-server.
    """
    replicas = consumer.replicas or len(stream.replicas)
    kind = stream.raft_group.split("-")[1][-1]
    name = f"C-R{replicas}{kind}-{short_hash(f'{stream.group}.{consumer.name}')}"
    return _group(state, cluster, name if replicas > 1 else "", status, account)


def _group(state: MetaState, cluster: str, group: str, status: GroupStatus, account: str) -> dict[str, Any]:
    """Return the report of a group.

    A single replica has no group, so its report has only the cluster and the leader.
    """
    out: dict[str, Any] = {"name": cluster}
    if group:
        out["raft_group"] = group
    if status.leader:
        out["leader"] = name_of(state, status.leader)
    if not group:
        return out
    if status.leader and status.leader_since_ns:
        out["leader_since"] = time_text(status.leader_since_ns)
    out |= {"system_account": True, "traffic_account": account}
    rows = replica_rows(state, status.peers)
    return out | ({"replicas": rows} if rows else {})


def away_cluster(state: MetaState, cluster: str, stream: Assignment) -> dict[str, Any]:
    """Return the field `cluster` of a listed stream whose servers are all offline."""
    peers = [PeerStatus(node, False, 0, is_offline=True) for node in stream.nodes]
    return {"name": cluster, "raft_group": stream.raft_group, "replicas": replica_rows(state, peers)}


def replica_rows(state: MetaState, peers: Iterable[PeerStatus]) -> list[dict[str, Any]]:
    """Return the field `replicas` of a report, in the order of server names."""
    rows = [_replica_row(name_of(state, peer.node), peer) for peer in peers]
    return sorted(rows, key=lambda row: str(row["name"]))


def _replica_row(name: str, peer: PeerStatus) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "current": peer.is_current}
    if peer.is_offline:
        row["offline"] = True
    row["active"] = peer.active_ns
    if peer.lag:
        row["lag"] = peer.lag
    return row | {"peer": short_hash(name)}


def meta_cluster(state: MetaState, cluster: str, status: GroupStatus, backlog: Backlog) -> dict[str, Any]:
    """Return the field `meta_cluster` of /jsz. `status` has all peers except this server."""
    out: dict[str, Any] = {"name": cluster}
    if status.leader:
        leader = name_of(state, status.leader)
        out |= {"leader": leader, "peer": short_hash(leader)}
    if status.peers:
        out["replicas"] = replica_rows(state, status.peers)
    return out | {
        "cluster_size": len(state.servers),
        "quorum_needed": backlog.voters // 2 + 1,
        "pending": backlog.requests + backlog.infos,
        "pending_requests": backlog.requests,
        "pending_infos": backlog.infos,
        "snapshot": {
            "pending_entries": backlog.entries,
            "pending_size": backlog.size,
            "last_time": time_text(backlog.snapshot_ns),
        },
    }


def name_of(state: MetaState, node: int) -> str:
    """Return the name of a current or removed server, or "" if the server is unknown."""
    known = state.servers.get(node) or state.removed.get(node)
    return known.name if known is not None else ""
