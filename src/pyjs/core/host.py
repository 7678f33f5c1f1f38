"""The interface of the node for its sessions: the seams, the settings, and reports.

Node (node.py) is the only implementation; this base class keeps core independent of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S, Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.auth.users import Authenticator
from pyjs.core.sink import Turn

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.session import ClientSession


@dataclass(slots=True)
class SessionSettings:
    """Limits and intervals of every client connection; changed by a reload."""

    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    max_subscriptions: int = 0  # 0: unlimited
    max_sub_tokens: int = 0
    ping_interval_ns: int = 120 * NS_PER_S
    ping_max: int = 2
    write_deadline_ns: int = 10 * NS_PER_S
    auth_timeout_ns: int = 2 * NS_PER_S
    headers: bool = True
    stall_producers: bool = True


class SessionEvents:
    """What wants to know who comes and goes; called in the middle of other work, so it may only take notes."""

    def entered(self, session: ClientSession) -> None:
        """Take note that `session` is bound to a user."""

    def closed(self, session: ClientSession) -> None:
        """Take note that `session` has ended, for the reason that it has."""


class Host:
    """The node as its sessions see it."""

    clock: Clock
    rng: Rng
    log: Log
    timers: Timers
    turn_state: Turn
    settings: SessionSettings
    authenticator: Authenticator
    accounts: dict[str, Account]
    system_account: Account | None
    slow_consumers: int
    stale_connections: int
    stalled_clients: int

    def info_fields(self, session: ClientSession, connected: bool) -> dict[str, object]:
        """Return the fields of INFO for `session`; `connected` for the copy after the first PONG."""
        raise NotImplementedError("Node supplies INFO")

    def refusal(self, session: ClientSession) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if the server takes no more clients; None: accepted."""
        raise NotImplementedError("Node counts the connections")

    def account_refusal(self, session: ClientSession, account: Account) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if `account` takes no more clients; None: accepted."""
        raise NotImplementedError("Node knows the accounts' limits")

    def session_entered(self, session: ClientSession) -> None:
        """Take note of a session that was bound to a user."""
        raise NotImplementedError("Node tells who came")

    def session_closed(self, session: ClientSession) -> None:
        """Forget `session`; called once, after its subscriptions are gone."""
        raise NotImplementedError("Node keeps the sessions")

    def relieve(self, now_ns: int) -> None:
        """Write the queued output; a session calls it in the middle of a read when buffers are full."""
        raise NotImplementedError("Node has the turn")
