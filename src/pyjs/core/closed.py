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
    def of(cls, sub: Subscription, before: ClosedSubscription | None = None) -> ClosedSubscription:
        """Return what is kept of `sub`; it shares what is equal with one of another client."""
        subject = before.subject if before is not None and before.subject == sub.subject else sub.subject
        sid = before.sid if before is not None and before.sid == sub.sid else sub.sid
        return cls(subject, sub.queue, sid, sub.delivered, sub.max)


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
    shown: tuple[ClosedSubscription, ...]  # the first SHOWN_MAX subscriptions

    @classmethod
    def of(cls, session: ClientSession, before: ClosedSession | None = None) -> ClosedSession:
        """Return what is kept of `session`; it shares what is equal with the one that ended before it."""
        values = {each.name: getattr(session, each.name) for each in fields(cls) if each.name != "shown"}
        first = before.shown[0] if before is not None and before.shown else None
        subs = islice(session.subscriptions.values(), SHOWN_MAX)
        values["shown"] = tuple(ClosedSubscription.of(sub, first) for sub in subs)
        if before is not None:
            if before.options == session.options:
                values["options"] = before.options
            if before.peer.ip == session.peer.ip:
                values["peer"] = Peer(before.peer.ip, session.peer.port, session.peer.kind)
        return cls(**values)

    @property
    def subscriptions(self) -> dict[bytes, ClosedSubscription]:
        """Return the subscriptions by sid, as a session has them."""
        return {sub.sid: sub for sub in self.shown}

    def pending_size(self) -> int:
        """Return 0: nothing waits for a closed connection."""
        return 0
