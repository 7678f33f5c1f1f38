"""Advisories of one server in a cluster about new leaders, lost majorities and removed servers.

The account of a stream gets the advisories about the stream. The system account gets them too, with the name of the
account added. A new leader announces itself, and a leader that has lost its majority announces the loss. An advisory
is sent only to accounts that have a subscriber. The leader of a consumer is the leader of its stream.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.nuid import short_hash
from pyjs.jetstream import advisories
from pyjs.jetstream.cluster.advisories import (
    Advisory,
    consumer_leader,
    consumer_quorum_lost,
    meta_leader,
    server_removed,
    stream_leader,
    stream_quorum_lost,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.jetstream.cluster.advisories import Rows
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.stream.stream import Stream


def _name_in(row: dict[str, Any]) -> str:
    return str(row["name"])


def _consumers(stream: Stream) -> list[str]:
    """Return the names of the replicated consumers of a stream."""
    if stream.replica is None:
        return []
    committed = stream.replica.consumers.committed
    return [name for name, each in committed.items() if each.config.num_replicas != 1]


class Announcer:
    """The sender of one server's advisories about leaders, lost majorities and removed servers."""

    def __init__(self, member: MemberNode, host: Host) -> None:
        self._member = member
        self._host = host

    def leads_metadata(self) -> None:
        """Announce that this server has become the leader of the metadata group."""
        name = self._member.options.cluster.name
        rows = self._with_me(self._member.reports.meta().get("replicas", []))
        self._send(self._host.system_account, meta_leader(self._host.server_name, rows, name))

    def leads_stream(self, stream: Stream) -> None:
        """Send the advisories that this server has become the leader of a stream and of its replicated consumers."""
        leader = self._host.server_name
        self._tell(stream, lambda rows, of: stream_leader(stream.name, leader, rows, of))
        for name in _consumers(stream):
            self._tell_consumer_leader(stream, name)

    def leads_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> None:
        """Send the advisory that this server leads a new consumer, unless the consumer has one replica."""
        if config.num_replicas != 1:
            self._tell_consumer_leader(stream, name)

    def _tell_consumer_leader(self, stream: Stream, name: str) -> None:
        leader = self._host.server_name
        self._tell(stream, lambda rows, of: consumer_leader(stream.name, name, leader, rows, of))

    def lost_stream(self, stream: Stream) -> None:
        """Send the advisories that a stream and its replicated consumers have lost their quorum.

        Send nothing if a leader of the stream is known, or if more than half of the stream's servers are online.
        """
        machine = None if self._member.replicated is None else self._member.replicated.machine_of(stream)
        if machine is None or machine.leader:
            return
        replicas = machine.assignment.nodes
        if 2 * sum(node == self._member.node or node in self._member.online for node in replicas) > len(
            replicas
        ):
            return
        self._tell(stream, lambda rows, of: stream_quorum_lost(stream.name, rows, of))
        for name in _consumers(stream):
            self._tell(stream, partial(consumer_quorum_lost, stream.name, name))

    def removed_server(self, name: str) -> None:
        """Announce that a server was removed from the cluster."""
        removed = server_removed(name, short_hash(name), self._member.options.cluster.name)
        self._send(self._host.system_account, removed)

    def _with_me(self, rows: Rows) -> Rows:
        """Return `rows`, sorted by server name, with a row for this server added if there is none."""
        name = self._host.server_name
        mine = [{"name": name, "current": True, "active": 0, "peer": short_hash(name)}]
        return sorted([*rows, *([] if any(row["name"] == name for row in rows) else mine)], key=_name_in)

    def _tell(self, stream: Stream, make: Callable[[Rows, str], Advisory]) -> None:
        """Send an advisory to a stream's account and, with the name of this account added, to the system account.

        Send nothing if there is no subscriber, or if the stream has been closed.
        """
        account, system = stream.account, self._host.system_account
        js, subject = self._member.accounts.get(account.name), make([], "").subject.encode()
        is_heard = account.has_interest(subject) or (system is not None and system.has_interest(subject))
        if not is_heard or js is None or js.streams.get(stream.name) is not stream:
            return  # no subscriber, or the stream was closed meanwhile
        rows = self._with_me(self._member.reports.stream(js, stream).get("replicas", []))
        if account is not system:
            self._send(account, make(rows, ""))
        self._send(system, make(rows, account.name))

    def _send(self, account: Account | None, advisory: Advisory) -> None:
        subject = advisory.subject.encode()
        if account is None or not account.has_interest(subject):
            return
        now_ns = self._host.turn_state.now + self._host.turn_state.skew
        domain = self._member.options.jetstream.domain
        advisories.publish(account, self._host.rng, subject, advisory.kind, now_ns, advisory.fields, domain)
