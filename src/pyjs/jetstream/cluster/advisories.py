"""The advisories of groups: who leads, who has no majority, who was removed.

Source: nats.docs "JetStream advisories"; subjects, fields and their order probed on three nats-servers 2.15.1,
tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

PREFIX = "$JS.EVENT.ADVISORY"
KIND = "advisory.v1"


class Advisory(NamedTuple):
    """One advisory without what all of them have (jetstream/advisories.publish)."""

    subject: str
    kind: str
    fields: dict[str, Any]


def stream_leader(account: str, stream: str, leader: str, replicas: list[dict[str, Any]]) -> Advisory:
    """Return the advisory of a stream's new leader."""
    fields = {"account": account, "stream": stream, "leader": leader, "replicas": replicas}
    return Advisory(f"{PREFIX}.STREAM.LEADER_ELECTED.{stream}", f"{KIND}.stream_leader_elected", fields)


def stream_quorum_lost(account: str, stream: str, replicas: list[dict[str, Any]]) -> Advisory:
    """Return the advisory of a stream whose leader no longer reaches a majority."""
    fields = {"account": account, "stream": stream, "replicas": replicas}
    return Advisory(f"{PREFIX}.STREAM.QUORUM_LOST.{stream}", f"{KIND}.stream_quorum_lost", fields)


def meta_leader(leader: str, replicas: list[dict[str, Any]], cluster: str) -> Advisory:
    """Return the advisory of the metadata's new leader."""
    fields = {"leader": leader, "replicas": replicas, "cluster": cluster}
    return Advisory(f"{PREFIX}.DOMAIN.LEADER_ELECTED", f"{KIND}.domain_leader_elected", fields)


def server_removed(server: str, server_id: str, cluster: str) -> Advisory:
    """Return the advisory of a removed server."""
    fields = {"server": server, "server_id": server_id, "cluster": cluster}
    return Advisory(f"{PREFIX}.SERVER.REMOVED", f"{KIND}.server_removed", fields)
