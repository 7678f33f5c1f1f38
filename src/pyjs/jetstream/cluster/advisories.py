"""The advisories about groups: a new leader, a lost majority, a removed server.

Source: nats.docs "JetStream advisories"; subjects, fields and their order probed on three nats-servers 2.15.1,
tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyjs.base.nuid import short_hash

if TYPE_CHECKING:
    from typing import Any

Rows: TypeAlias = "list[dict[str, Any]]"  # as returned by reports.replica_rows

PREFIX = "$JS.EVENT.ADVISORY"
KIND = "advisory.v1"


class Advisory(NamedTuple):
    """One advisory, without the fields common to all advisories (jetstream/advisories.publish)."""

    subject: str
    kind: str
    fields: dict[str, Any]


def stream_leader(stream: str, leader: str, replicas: Rows, account: str = "") -> Advisory:
    """Return the advisory about the new leader of a stream.

    If `account` is given, the advisory is for the system account and has the name of the stream's account. Otherwise
    the advisory is for the account of the stream.
    """
    fields = {"stream": stream, "leader": leader, "replicas": replicas}
    subject = f"{PREFIX}.STREAM.LEADER_ELECTED.{stream}"
    return Advisory(subject, f"{KIND}.stream_leader_elected", _for(account) | fields)


def stream_quorum_lost(stream: str, replicas: Rows, account: str = "") -> Advisory:
    """Return the advisory about a stream whose leader has lost its majority; arguments as in `stream_leader`."""
    fields = {"stream": stream, "replicas": replicas}
    subject = f"{PREFIX}.STREAM.QUORUM_LOST.{stream}"
    return Advisory(subject, f"{KIND}.stream_quorum_lost", _for(account) | fields)


def consumer_leader(stream: str, consumer: str, leader: str, replicas: Rows, account: str = "") -> Advisory:
    """Return the advisory about the new leader of a consumer and of its stream; arguments as in `stream_leader`."""
    fields = {"stream": stream, "consumer": consumer, "leader": leader, "replicas": replicas}
    subject = f"{PREFIX}.CONSUMER.LEADER_ELECTED.{stream}.{consumer}"
    return Advisory(subject, f"{KIND}.consumer_leader_elected", _for(account) | fields)


def consumer_quorum_lost(stream: str, consumer: str, replicas: Rows, account: str = "") -> Advisory:
    """Return the advisory about a consumer whose stream has lost its majority; arguments as in `stream_leader`."""
    fields = {"stream": stream, "consumer": consumer, "replicas": replicas}
    subject = f"{PREFIX}.CONSUMER.QUORUM_LOST.{stream}.{consumer}"
    return Advisory(subject, f"{KIND}.consumer_quorum_lost", _for(account) | fields)


def meta_leader(leader: str, replicas: Rows, cluster: str) -> Advisory:
    """Return the advisory about the new leader of the metadata group, for the system account."""
    # nats-server shows the digest of the leader's name here, but the name itself in the advisories of streams.
    fields = {"leader": short_hash(leader), "replicas": replicas, "cluster": cluster}
    return Advisory(f"{PREFIX}.DOMAIN.LEADER_ELECTED", f"{KIND}.domain_leader_elected", fields)


def server_removed(server: str, server_id: str, cluster: str) -> Advisory:
    """Return the advisory about a removed server, for the system account."""
    fields = {"server": server, "server_id": server_id, "cluster": cluster}
    return Advisory(f"{PREFIX}.SERVER.REMOVED", f"{KIND}.server_removed", fields)


def _for(account: str) -> dict[str, Any]:
    return {"account": account} if account else {}
