"""A closed connection as monitoring remembers it: the counters of its session, without its buffers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING

from pyjs.core.handshake import ConnectOptions
from pyjs.core.link import Peer

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.auth import User
    from pyjs.core.session import ClientSession
    from pyjs.subjects.sublist import Subscription

SHOWN_MAX = 256  # subscriptions of a closed connection that are remembered


@dataclass(frozen=True, slots=True)
class ClosedSubscription:
    """The attributes of a Subscription at the moment its session ended; same names. Does not hold the session."""

    subject: bytes
    queue: bytes
    sid: bytes
    delivered: int
    max: int

    @classmethod
    def of(cls, sub: Subscription) -> ClosedSubscription:
        """Return what is kept of `sub`."""
        return cls(sub.subject, sub.queue, sub.sid, sub.delivered, sub.max)


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """The attributes of a ClientSession at the moment it ended; same names."""

    cid: int
    peer: Peer
    account: Account
    user: User | None
    options: ConnectOptions
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
    num_subscriptions: int
    subscriptions: dict[bytes, ClosedSubscription]  # the first SHOWN_MAX; the last field: see `of`

    @classmethod
    def of(cls, session: ClientSession) -> ClosedSession:
        """Return what is kept of `session`."""
        values = [getattr(session, each.name) for each in fields(cls)]
        shown = islice(session.subscriptions.items(), SHOWN_MAX)
        values[-1] = {sid: ClosedSubscription.of(sub) for sid, sub in shown}
        return cls(*values)

    def pending_size(self) -> int:
        """Return 0: nothing waits for a closed connection."""
        return 0
