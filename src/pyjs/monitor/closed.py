"""Connections that ended: what is kept of each, and the counters they leave behind.

A ring: the newest `limit` connections are kept for /connz?state=closed. What they sent and received stays in the
totals for ever, so that /varz never counts backwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.subjects.sublist import Subscription

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.auth import User
    from pyjs.core.handshake import ConnectOptions
    from pyjs.core.link import Peer
    from pyjs.core.session import ClientSession


@dataclass(slots=True)
class Totals:
    """Messages and bytes to and from clients."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def add(self, session: ClientSession) -> None:
        """Add what `session` counted."""
        self.in_msgs += session.in_msgs
        self.in_bytes += session.in_bytes
        self.out_msgs += session.out_msgs
        self.out_bytes += session.out_bytes


@dataclass(frozen=True, slots=True)
class ClosedConnection:
    """A session's last state, under the attribute names of ClientSession."""

    cid: int
    peer: Peer
    account: Account
    user: User | None
    options: ConnectOptions
    subscriptions: Mapping[bytes, Subscription]
    started_at_ns: int
    last_activity_ns: int
    closed_at_ns: int
    closed_reason: str
    rtt_ns: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int

    def pending_size(self) -> int:
        """Return what waits to be sent: nothing any more."""
        return 0


class ClosedConnections:
    """The ring and the totals."""

    def __init__(self, limit: int) -> None:
        self.ring: deque[ClosedConnection] = deque(maxlen=max(limit, 0))
        self.totals = Totals()
        self.by_account: dict[str, Totals] = {}

    def add(self, session: ClientSession) -> None:
        """Keep the last state of `session`."""
        self.totals.add(session)
        self.by_account.setdefault(session.account.name, Totals()).add(session)
        self.ring.append(
            ClosedConnection(
                session.cid,
                session.peer,
                session.account,
                session.user,
                session.options,
                dict(session.subscriptions),
                session.started_at_ns,
                session.last_activity_ns,
                session.closed_at_ns,
                session.closed_reason,
                session.rtt_ns,
                session.in_msgs,
                session.in_bytes,
                session.out_msgs,
                session.out_bytes,
                session.stalls,
            )
        )
