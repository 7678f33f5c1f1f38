"""Advisories of this server's part in the cluster: it leads the metadata, or a stream.

The account of a stream gets the advisory; so does the system account, with the name of the account added. The new
leader sends them, each only while it has a subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.nuid import short_hash
from pyjs.jetstream import advisories
from pyjs.jetstream.cluster.advisories import Advisory, meta_leader, stream_leader

if TYPE_CHECKING:
    from typing import Any

    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.stream.stream import Stream


class Announcer:
    """Sends the advisories of one server."""

    def __init__(self, member: MemberNode, host: Host) -> None:
        self._member = member
        self._host = host

    def leads_metadata(self) -> None:
        """Announce that this server leads the metadata."""
        name = self._member.options.cluster.name
        rows = self._with_leader(self._member.reports.meta().get("replicas", []))
        self._send(self._host.system_account, meta_leader(self._host.server_name, rows, name))

    def leads_stream(self, stream: Stream) -> None:
        """Announce that this server leads a stream."""
        js = self._member.accounts.get(stream.account.name)
        if js is None or js.streams.get(stream.name) is not stream:
            return
        rows = self._with_leader(self._member.reports.stream(js, stream).get("replicas", []))
        leader, account = self._host.server_name, stream.account
        self._send(account, stream_leader(stream.name, leader, rows))
        self._send(self._host.system_account, stream_leader(stream.name, leader, rows, account.name))

    def _with_leader(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of all members: those of the others, and this server's."""
        name = self._host.server_name
        mine = {"name": name, "current": True, "active": 0, "peer": short_hash(name)}
        return sorted([*rows, mine], key=lambda row: str(row["name"]))

    def _send(self, account: Account | None, advisory: Advisory) -> None:
        subject = advisory.subject.encode()
        if account is None or not account.has_interest(subject):
            return
        now_ns = self._host.turn_state.now + self._host.turn_state.skew
        domain = self._member.options.jetstream.domain
        advisories.publish(account, self._host.rng, subject, advisory.kind, now_ns, advisory.fields, domain)
