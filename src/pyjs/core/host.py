"""The node as its sessions see it: the seams, the settings, and methods to report events.

Node (node.py) is the only implementation; this base class keeps core independent of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.clock import NS_PER_S, Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.auth.users import Authenticator
from pyjs.core.sink import Turn

if TYPE_CHECKING:
    from pyjs.config.exchange.declared import Exchange
    from pyjs.config.options import AccountOptions
    from pyjs.core.account import Account
    from pyjs.core.faults import Faults
    from pyjs.core.link import Peer
    from pyjs.core.session import ClientSession
    from pyjs.core.tracing.trace import Trace
    from pyjs.core.trust.accounts import TrustedAccounts
    from pyjs.core.trust.callouts import Callouts


@dataclass(eq=False, repr=False, slots=True)
class SessionSettings:
    """Limits and options of every client connection; changed by a reload."""

    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    max_subscriptions: int = 0  # 0: unlimited
    max_sub_tokens: int = 0
    ping_max: int = 2
    write_deadline_ns: int = 10 * NS_PER_S
    headers: bool = True
    stall_producers: bool = True


class Entrance(NamedTuple):
    """The login rules and intervals for one kind of client; all clients of a kind connect to the same port."""

    authenticator: Authenticator
    auth_timeout_ns: int
    ping_interval_ns: int


class SessionEvents(ABC):
    """A listener for logins and disconnects. Called in the middle of other work, so it may only record events."""

    @abstractmethod
    def entered(self, session: ClientSession) -> None:
        """Record that `session` is bound to a user."""

    @abstractmethod
    def closed(self, session: ClientSession) -> None:
        """Record that `session` has ended; its `closed_reason` is set."""

    @abstractmethod
    def account_added(self) -> None:
        """Record that an account was added."""

    @abstractmethod
    def announce(self, what: str) -> None:
        """Publish the event `what` (SHUTDOWN or LAMEDUCK) before returning."""

    @abstractmethod
    def traced(self, trace: Trace) -> None:
        """Publish `trace`; if a stream stores the traced message, wait until the stream has written the message."""


class Host(ABC):
    """The node as its sessions see it."""

    clock: Clock
    rng: Rng
    log: Log
    timers: Timers
    turn_state: Turn
    faults: Faults
    settings: SessionSettings
    authenticator: Authenticator
    accounts: dict[str, Account]
    sessions: dict[int, ClientSession]  # by cid, oldest first
    system_account: Account | None
    trust: TrustedAccounts | None  # None: accounts and users come from the configuration file
    callouts: Callouts | None  # None: no service decides about clients
    server_name: str
    slow_consumers: int
    stale_connections: int
    stalled_clients: int
    server_id: str

    @abstractmethod
    def entrance(self, peer: Peer) -> Entrance:
        """Return the login rules and intervals for clients that connect as `peer` does."""

    @abstractmethod
    def info_fields(self, session: ClientSession, connected: bool) -> dict[str, object]:
        """Return the fields of an INFO line for `session`.

        If `connected` is true, the line is the one that follows the first PONG.
        """

    @abstractmethod
    def refusal(self, session: ClientSession) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if the server accepts no more clients, or None."""

    @abstractmethod
    def account_refusal(self, session: ClientSession, account: Account) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if `account` accepts no more clients, or None."""

    @abstractmethod
    def clients_came_elsewhere(self, account: Account) -> None:
        """Enforce the connection limit of `account` after another server accepted one of its clients."""

    @abstractmethod
    def apply_account(self, options: AccountOptions, tag: str) -> None:
        """Add an account, or change its limits and JetStream; `tag` is its display name."""

    @abstractmethod
    def share(self, name: str, exchange: Exchange) -> None:
        """Apply the checked exports, imports and mappings of an account.

        This must be called first for the accounts from which the account imports.
        """

    @abstractmethod
    def disable_account(self, name: str) -> None:
        """Stop JetStream of an account, and refuse its clients."""

    @abstractmethod
    def server_fields(self) -> dict[str, object]:
        """Return the description of the server for an authorization service."""

    @abstractmethod
    def session_entered(self, session: ClientSession, previous: Account) -> None:
        """Report that `session` was bound to a user; it was in the account `previous` before."""

    @abstractmethod
    def session_closed(self, session: ClientSession) -> None:
        """Remove `session` from the node; must be called exactly once, before its subscriptions are removed."""

    @abstractmethod
    def send_trace(self, trace: Trace) -> None:
        """Publish the trace of a message."""

    @abstractmethod
    def relieve(self, now_ns: int) -> None:
        """Write queued output; a session calls this in the middle of a read when buffers are full."""
