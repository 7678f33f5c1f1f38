"""A closed connection as monitoring remembers it: the counters of its session, without its buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.core.handshake import ConnectOptions
from pyjs.core.link import Peer

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.auth import User
    from pyjs.core.session import ClientSession
    from pyjs.subjects.sublist import Subscription


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
    subscriptions: dict[bytes, Subscription]

    @classmethod
    def of(cls, session: ClientSession) -> ClosedSession:
        """Return what is kept of `session`."""
        return cls(**{name: getattr(session, name) for name in cls.__slots__})

    def pending_size(self) -> int:
        """Return 0: nothing waits for a closed connection."""
        return 0
