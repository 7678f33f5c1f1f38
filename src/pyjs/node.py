"""The node: accounts, sessions and JetStream, run turn by turn. Its inputs are bytes and times, its output is bytes.

All work is either the handling of a read or a part of a turn. To handle a read, a session parses it, routes its
messages and appends a bounded amount of data. The effects of a turn have a fixed order (core/scheduler.pyx): stores
commit, and then their PubAcks are sent; API requests run; consumers deliver; chores do a step; every connection with
output writes once. Each kind of work has a share of the turn; the rest waits for the next turn.

Long because it creates and ends each part of a server, and applies reloads to it.

This module knows nothing of sockets, threads or clocks: `server/` runs it on an event loop, tests run it with a
virtual clock.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import pyjs
from pyjs.base.clock import Clock
from pyjs.base.errors import PyjsError
from pyjs.base.gotext import duration_text
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.config.options import AccountLimits, AccountOptions
from pyjs.config.ports.advertised import advertised_address
from pyjs.core.account import Account
from pyjs.core.auth.permissions import Permissions, ResponsePermission
from pyjs.core.auth.proxies import TrustedProxies
from pyjs.core.auth.users import GLOBAL_ACCOUNT, Authenticator, User, is_bcrypt
from pyjs.core.chore import Chore
from pyjs.core.closed import ClosedSessions
from pyjs.core.faults import Faults
from pyjs.core.host import Entrance, Host, SessionEvents, SessionSettings
from pyjs.core.link import Link, Peer, shown_reason
from pyjs.core.scheduler import Scheduler, Turns
from pyjs.core.session import ClientSession
from pyjs.core.sink import Turn
from pyjs.subjects.routes import RouteCache
from pyjs.wire.nkeys import ACCOUNT as NKEY_ACCOUNT
from pyjs.wire.nkeys import USER as NKEY_USER
from pyjs.wire.nkeys import public_key

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.disk import Disk
    from pyjs.cluster.cluster import Cluster
    from pyjs.config.exchange.declared import Exchange
    from pyjs.config.options import Options, PermissionOptions, UserOptions
    from pyjs.core.tracing.trace import Trace
    from pyjs.core.trust.accounts import TrustedAccounts
    from pyjs.core.trust.callouts import Callouts
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.server import JetStreamServer
    from pyjs.jetstream.spread.spread_node import SpreadNode

PEER_VERSION = "2.15.1"  # the nats-server version whose behaviour is implemented; shown to clients
# nats-server shows its Go version in the field `go`.
PYTHON_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
API_LEVEL = 5
# ns; a smaller change of the skew does not count as a step, since clocks are also adjusted gradually
STEP_NS = 1_000_000_000
# -ERR text and close reason
ACCOUNT_FULL = "maximum account active connections exceeded", "Maximum Account Connections Exceeded"
TOO_MANY_SUBSCRIPTIONS = "maximum subscriptions exceeded"
WORKER_CIDS = 1_000_000_000  # size of the range of connection ids reserved for each worker
BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"  # RFC 4648


class NotStarted(PyjsError):
    """Raised when JetStream cannot start in this cluster; the exception's message states the reason."""


class Node(Turns, Host):
    """The accounts, the sessions and JetStream of one server, without sockets and threads."""

    def __init__(self, options: Options, clock: Clock, rng: Rng, disk: Disk, log: Log) -> None:
        self.options = options
        self.clock = clock
        self.rng = rng
        self.disk = disk
        self.log = log
        self.timers = Timers()
        self.turn_state = Turn()
        self.turn_state.skew = clock.skew_ns()
        self.faults = Faults(log)
        scheduler = Scheduler(self.turn_state, self.timers, clock, self.faults)
        self.begin_turns(scheduler, RouteCache())
        self.server_id, self.xkey = _public_key(rng, b"N"), _public_key(rng, b"X")
        self.trust: TrustedAccounts | None = None
        self.callouts: Callouts | None = None
        if options.operator_keys or options.authorization.auth_callout is not None:
            self._take_keys(options)
        self.server_name = options.server_name or self.server_id
        self.started_at_ns = clock.now_ns()
        self.host, self.port = options.host, options.port
        self.websocket_port = options.websocket.port
        self.lame_duck = False
        self.jetstream: JetStreamServer | None = None
        self.sessions: dict[int, ClientSession] = {}
        self.events: SessionEvents | None = None
        self.closed = ClosedSessions(options.limits.max_closed_clients)
        self.total_connections = 0
        self.slow_consumers = self.stale_connections = self.stalled_clients = 0
        # in_msgs, in_bytes, out_msgs, out_bytes of closed sessions, by account.
        self._closed_counters: dict[str, tuple[int, int, int, int]] = {}
        self._last_cid = 4  # nats-server's own internal clients take the first ids
        if options.worker is not None:  # the workers of a server use different connection ids
            self._last_cid += (options.worker.number - 1) * WORKER_CIDS
        self.accounts: dict[str, Account] = {}
        self.exchanges: dict[str, Exchange] = {}  # exports, imports and mappings of accounts, by name
        self.settings = SessionSettings()
        self.cluster: Cluster | None = None
        self.apply_options(options)
        if options.cluster.port:
            from pyjs.cluster.cluster import Cluster  # imported lazily: most servers are not in a cluster

            self.cluster = Cluster(self, options.cluster)

    # -- configuration -------------------------------------------------------------------------------------

    def _take_keys(self, options: Options) -> None:
        """Create the keys for signing and decrypting, and the parts of the server that need them."""
        # Imported lazily, since only servers with tokens need cryptography.
        from pyjs.core.trust.accounts import TrustedAccounts
        from pyjs.core.trust.callouts import Callouts
        from pyjs.core.trust.resolvers import resolver_from
        from pyjs.wire.nkeys import SERVER, KeyPair
        from pyjs.wire.xkeys import CurveKeyPair

        key, xkey = KeyPair(self.rng.randbytes(32), SERVER), CurveKeyPair(self.rng.randbytes(32))
        self.server_id, self.xkey = key.public, xkey.public
        self.callouts = Callouts(self, key, xkey, options.authorization.auth_callout)
        if options.operator_keys:
            resolver = resolver_from(options, self.disk, self.clock, self.log)
            self.trust = self.callouts.trust = TrustedAccounts(self, options, resolver)

    def apply_options(self, options: Options) -> None:
        """Apply limits, accounts and users; called at the start and after a reload."""
        claimed: dict[str, AccountOptions] = {}
        if self.trust is not None:  # in operator mode, tokens define the accounts
            claimed = {
                name: each for name, each in self.options.accounts.items() if name in self.trust.accounts
            }
        self.options = replace(options, accounts={**options.accounts, **claimed})
        self.settings = settings_from(options)
        for name in (GLOBAL_ACCOUNT, options.system_account, *options.accounts):
            if name:
                self._add_account(name)
        for name, account_options in options.accounts.items():
            self.accounts[name].limits = account_options.limits
            self.accounts[name].trace_dest = account_options.msg_trace
        for account in self.accounts.values():
            self._name_api(account)
        self._share(self.options)
        self.system_account = self.accounts.get(options.system_account)
        self.authenticator = authenticator_from(options, self.rng)
        self._entrance = Entrance(
            self.authenticator, options.authorization.timeout_ns, options.limits.ping_interval_ns
        )
        self._websocket_entrance = websocket_entrance(options, self.rng, self._entrance)
        if self.trust is not None:
            self.trust.apply_options(self.options)
        for session in self.sessions.values():
            session.apply_settings()
        if self.cluster is not None:
            self.cluster.apply_options(options.cluster)
        if self.jetstream is not None:
            self.turn_state.now = self.clock.now_ns()
            self.jetstream.apply_options()

    def _share(self, options: Options) -> None:
        """Apply the changed imports, exports and mappings of all accounts."""
        self.system_account = self.accounts.get(options.system_account)
        if not self.exchanges and not options.shares():
            return
        # Imported lazily, in 8 ms: most servers have no exports, imports or mappings.
        from pyjs.config.exchange.declared import Exchange

        declared = {name: Exchange() for name in self.accounts} | options.exchanges()
        if self.trust is not None:  # in operator mode, `share` does this
            declared |= {name: self.exchanges.get(name, Exchange()) for name in self.trust.accounts}
        changed = [
            name for name, exchange in declared.items() if self.exchanges.get(name, Exchange()) != exchange
        ]
        self.exchanges = declared
        if changed:
            from pyjs.core.exchange.account_exchange import apply, importers

            self.turn_state.now = self.clock.now_ns()
            apply(self, declared, [*changed, *importers(declared, changed)])

    def share(self, name: str, exchange: Exchange) -> None:
        """Apply the imports, exports and mappings that the token of the account `name` defines."""
        from pyjs.core.exchange.account_exchange import apply

        self.exchanges[name] = exchange
        self.turn_state.now = self.clock.now_ns()
        apply(self, self.exchanges, (name,))

    def _add_account(self, name: str) -> Account:
        """Return the account `name`; create it if it is missing."""
        account = self.accounts.get(name)
        if account is None:
            seed = int.from_bytes(self.rng.randbytes(8), "little")
            account = self.accounts[name] = Account(name, self.turn_state, seed, self.routes)
            if self.options.disable_sublist_cache:
                account.subs.caching = False
            if self.cluster is not None:
                self.cluster.account_added(account)
            if self.events is not None:
                self.events.account_added()
        return account

    def _name_api(self, account: Account) -> None:
        """Set the prefix of an account's JetStream API subjects.

        The prefix is empty if the account has no JetStream, or JetStream has no domain.
        """
        jetstream = self.options.jetstream
        named = jetstream.enabled and jetstream.domain and self.options.jetstream_of(account.name) is not None
        account.api_prefix = f"$JS.{jetstream.domain}.API.".encode() if named else b""

    def apply_account(self, options: AccountOptions, tag: str) -> None:
        """Add an account, or change its limits and JetStream; `tag` is its display name.

        The system account may not have JetStream, so its `options.jetstream` is set to None.
        """
        account = self._add_account(options.name)
        account.tag = tag or options.name
        account.limits = options.limits
        account.trace_dest = options.msg_trace
        self.options.accounts[options.name] = options
        if options.name == self.options.system_account:
            self.system_account = account
            options.jetstream = None  # this account may not have JetStream
        self._name_api(account)
        if self.jetstream is not None:
            self.jetstream.apply_account(account)

    def disable_account(self, name: str) -> None:
        """Stop JetStream and the imports of an account, and refuse its clients."""
        self.apply_account(AccountOptions(name, limits=AccountLimits(0, 0, 0)), self.accounts[name].tag)
        if name in self.exchanges:
            self.share(name, replace(self.exchanges[name], imports=()))

    def start_trust(self) -> None:
        """Load the accounts that must be known before clients connect.

        These are the system account and the accounts with stored streams.

        Raises:
            TokenFault: there is no system account.
        """
        assert self.trust is not None
        self.trust.start()
        stored = self.options.jetstream.store_dir if self.options.jetstream.enabled else ""
        for name in self.disk.list_dir(stored) if stored else ():
            if name not in self.trust.accounts and public_key(name, NKEY_ACCOUNT) is not None:
                self.trust.load(name)

    def server_fields(self) -> dict[str, object]:
        """Return the description of the server for an authorization service."""
        fields: dict[str, object] = {
            "name": self.server_name,
            "host": self.host,
            "id": self.server_id,
            "version": PEER_VERSION,
        }
        tags = [*self.options.server_tags]
        return fields | {"tags": tags} if tags else fields

    def start_jetstream(self) -> None:
        """Run all steps of `start_jetstream_steps`. Raises the same errors."""
        for _ in self.start_jetstream_steps():
            pass

    def start_jetstream_steps(self) -> Generator[None, None, None]:
        """Open the store directory and recover every stream, if the options enable JetStream.

        No turn may run before the last step. If the iterator is closed or fails, JetStream is off.

        Raises, at any step:
            NotStarted: JetStream cannot start in this cluster.
            StoreForeign, StoreLocked, StoreShared, OSError: as in `JetStreamServer.start_steps`.
        """
        if not self.options.runs_jetstream:
            return
        from pyjs.jetstream.server import JetStreamServer

        self.jetstream = JetStreamServer(self, self._member(), self._spread())
        self.turn_state.now = self.clock.now_ns()
        try:
            yield from self.jetstream.start_steps()
        except BaseException:
            failed, self.jetstream = self.jetstream, None  # without the lock, JetStream must not be used
            failed.stop()
            raise

    def _member(self) -> MemberNode | None:
        """Return this server's part in a JetStream cluster, or None if it is in no such cluster.

        Raises:
            NotStarted: the engine is missing, or the server already has routes.
        """
        cluster = self.cluster
        if cluster is None or self.options.cluster.local:
            return None
        if cluster.routes or cluster.greeting:
            raise NotStarted("the server is in a cluster and has connections already: restart it")
        from pyjs.cluster.replication import Replication

        try:
            from pyjs.jetstream.member.member_node import MemberNode
        except ImportError as error:
            raise NotStarted(f"in a cluster it replicates streams, and {error}") from None
        return MemberNode(self, self.options, Replication(cluster))

    def _spread(self) -> SpreadNode | None:
        """Return this worker's part in sharing the streams, or None if the workers do not share them."""
        worker, cluster = self.options.worker, self.cluster
        if worker is None or cluster is None or not self.options.jetstream.spread_workers:
            return None
        from pyjs.cluster.replication import Replication
        from pyjs.jetstream.spread.spread_node import SpreadNode

        known = None if cluster.replication is None else cluster.replication.receiver
        if isinstance(known, SpreadNode):
            return known  # JetStream was off for a while
        name = self.server_name.removesuffix(f"-{worker.number}")
        return SpreadNode(self, name, worker, Replication(cluster, heeds_silence=False))

    def stop(self) -> None:
        """Close every session and store; a stopped node cannot be used again."""
        if self.events is not None:
            self.events.announce("SHUTDOWN")
        for session in list(self.sessions.values()):
            session.close("Server Shutdown")
        if self.jetstream is not None:
            self.jetstream.stop()

    # -- sessions ------------------------------------------------------------------------------------------

    def open_session(self, peer: Peer, link: Link) -> ClientSession:
        """Open a session for a new connection; the next turn writes its INFO or its refusal."""
        self._last_cid += 1
        self.total_connections += 1
        self.turn_state.now = self.clock.now_ns()
        session = ClientSession(self, self.accounts[GLOBAL_ACCOUNT], peer, link, self._last_cid)
        self.sessions[session.cid] = session
        if self.log.debug_on:
            self.log.debug(f"{session} - Client connection created")
        session.start()
        return session

    def was_opened(self, cid: int) -> bool:
        """Return whether a client connection had the id `cid` since the start; ids are not used again."""
        return self._last_cid - self.total_connections < cid <= self._last_cid

    def entrance(self, peer: Peer) -> Entrance:
        """Return the login rules and ping intervals of the port that `peer` uses."""
        return self._websocket_entrance if peer.kind == "websocket" else self._entrance

    def session_entered(self, session: ClientSession, previous: Account) -> None:
        """Report that `session`, which was in the account `previous`, was bound to a user."""
        if self.cluster is not None:
            for account in {previous: None, session.account: None}:
                self.cluster.clients_changed(account)
        if self.events is not None:
            self.events.entered(session)

    def send_trace(self, trace: Trace) -> None:
        """Publish the trace of a message, if there is a system account."""
        if self.events is not None and self.system_account is not None:
            self.events.traced(trace)

    def session_closed(self, session: ClientSession) -> None:
        """Remove a closed session; a copy remains for monitoring."""
        self.sessions.pop(session.cid, None)
        for sessions in (self.sessions, session.account.sessions):
            if not sessions:
                sessions.clear()  # frees the memory of the table, which would otherwise never shrink
        self.closed.add(session)
        if self.cluster is not None:
            self.cluster.clients_changed(session.account)
        if self.events is not None:
            self.events.closed(session)
        name, (a, b, c, d) = session.account.name, _counts(session)
        sums = self._closed_counters.get(name, (0, 0, 0, 0))
        self._closed_counters[name] = (sums[0] + a, sums[1] + b, sums[2] + c, sums[3] + d)
        if self.log.debug_on:
            self.log.debug(f"{session} - Client connection closed: {shown_reason(session.closed_reason)}")

    def counters(self, account: Account | None = None) -> tuple[int, int, int, int]:
        """Return in_msgs, in_bytes, out_msgs, out_bytes since the start, of all clients or of those of `account`."""
        sums = [0, 0, 0, 0]
        for name, counts in self._closed_counters.items():
            if account is None or name == account.name:
                sums = [total + count for total, count in zip(sums, counts, strict=True)]
        for session in self.sessions.values():
            if account is None or session.account is account:
                sums = [total + count for total, count in zip(sums, _counts(session), strict=True)]
        return sums[0], sums[1], sums[2], sums[3]

    def closed_counters(self) -> dict[str, tuple[int, int, int, int]]:
        """Return in_msgs, in_bytes, out_msgs, out_bytes of closed clients, by the name of their account."""
        return dict(self._closed_counters)

    def refusal(self, session: ClientSession) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if the server has more than max_connections sessions, or None."""
        if len(self.sessions) > max(0, self.options.limits.max_connections):
            return "maximum connections exceeded", "Maximum Connections Exceeded"
        return None

    def account_refusal(self, session: ClientSession, account: Account) -> tuple[str, str] | None:
        """Return (-ERR text, close reason) if the account already has its maximum number of connections, or None."""
        limits = account.limits
        if not isinstance(limits, AccountLimits) or limits.max_connections < 0:
            return None
        others = len(account.sessions - {session}) + self._clients_elsewhere(account)
        return ACCOUNT_FULL if others >= limits.max_connections else None

    def _clients_elsewhere(self, account: Account) -> int:
        return 0 if self.cluster is None else self.cluster.headcount.elsewhere(account)

    def clients_came_elsewhere(self, account: Account) -> None:
        """Close the newest clients of `account` on this server, if the cluster has more of them than are allowed."""
        limits = account.limits
        if not isinstance(limits, AccountLimits) or limits.max_connections < 0:
            return
        allowed = max(0, limits.max_connections - self._clients_elsewhere(account))
        if allowed < len(account.sessions):
            self._close_newest(account, allowed)

    def _close_newest(self, account: Account, remaining: int) -> None:
        oldest_first = sorted(
            (session for session in self.sessions.values() if session.account is account),
            key=attrgetter("cid"),
        )
        for session in oldest_first[remaining:]:
            self.log.error(f"{session} - {ACCOUNT_FULL[0]}")
            session.close(ACCOUNT_FULL[1], ACCOUNT_FULL[0])

    def enforce_account_limits(self) -> None:
        """After a reload, close the newest clients beyond the limits of accounts, and report excess subscriptions."""
        for account in self.accounts.values():
            self.clients_came_elsewhere(account)
        for session in self.sessions.values():
            # the session keeps its excess subscriptions
            if session.num_subscriptions > session.subscriptions_max:
                self.log.error(f"{session} - {TOO_MANY_SUBSCRIPTIONS}")
                session.send_error(TOO_MANY_SUBSCRIPTIONS)

    def info_fields(self, session: ClientSession, connected: bool) -> dict[str, object]:
        """Return the fields of INFO in nats-server's order, followed by `pyjs_version`."""
        host, port, tls = self.host, self.port, tls_fields(self.options)
        authenticator = self.entrance(session.peer).authenticator
        if session.peer.kind == "websocket":
            host, port = self.options.websocket.host, self.websocket_port
            tls = websocket_tls_fields(self.options)
        elif self.options.client_advertise:
            host, port = advertised_address(self.options.client_advertise, port)
        fields: dict[str, object] = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": PEER_VERSION,
            "proto": 1,
            "go": PYTHON_VERSION,
            "host": host,
            "port": port,
            "headers": self.settings.headers,
        }
        # As in nats-server, no_auth_user hides auth_required before the first PONG, except from WebSocket clients.
        shown = connected or authenticator.no_auth_user is None or session.peer.kind == "websocket"
        if authenticator.required and shown:
            fields["auth_required"] = True
        fields |= tls
        fields["max_payload"] = self.settings.max_payload
        if self.options.jetstream.enabled:
            fields["jetstream"] = True
        fields["client_id"] = session.cid
        if not session.peer.disguised:
            fields["client_ip"] = session.peer.ip
        if self.options.jetstream.enabled and self.options.jetstream.domain:
            fields["domain"] = self.options.jetstream.domain
        if session.nonce and not connected:
            fields["nonce"] = session.nonce
        if self.cluster is not None and not self.options.cluster.local:
            fields["cluster"] = self.options.cluster.name
            if not self.options.cluster.no_advertise:
                fields["connect_urls"] = self.cluster.client_urls()
        if self.lame_duck:
            fields["ldm"] = True
        if connected:
            fields["connect_info"] = True
            fields["remote_account"] = session.account.name
            if session.account is self.system_account:
                fields["acc_is_sys"] = True
        fields["api_lvl"] = API_LEVEL
        fields["xkey"] = self.xkey
        fields["pyjs_version"] = pyjs.__version__
        return fields

    def start_lame_duck(self) -> None:
        """Enter lame duck mode, and send INFO with `ldm` to every client that accepts a later INFO."""
        self.lame_duck = True
        if self.cluster is not None:
            self.cluster.start_lame_duck()
        if self.events is not None:
            self.events.announce("LAMEDUCK")
        for session in self.sessions.values():
            if session.connected and session.options.protocol >= 1:
                session.send_info()

    # -- the turn ------------------------------------------------------------------------------------------

    def read_wall_clock(self) -> None:
        """Read the skew of the wall clock.

        After a step of the wall clock, reset all timers that wait for a wall time.
        """
        step_ns = self.clock.skew_ns() - self.turn_state.skew
        self.turn_state.skew += step_ns
        if abs(step_ns) < STEP_NS:
            return
        way = "forward" if step_ns > 0 else "back"
        self.log.warn(
            f"The wall clock was set {way} by {duration_text(abs(step_ns))};"
            " new messages get its time, deadlines keep theirs"
        )
        if self.jetstream is not None:
            self.turn_state.chores.append(Chore(self.jetstream.clock_stepped(), (None, None)))

    def end_turn(self) -> None:
        """Expire consumers, mend objects after faults, report changes, and hasten heartbeats.

        Called if a turn has left any of these, and after each turn while the heartbeats are slow.
        """
        state = self.turn_state
        if state.expired:
            consumers = state.take("expired")
            if self.jetstream is not None:
                self.jetstream.expire(consumers)
        if state.faulted:
            self._mend()
        state.reports = False
        if self.jetstream is not None:
            try:
                self.jetstream.end_turn()
            except Exception:
                state.reports = True  # it is called again after the next turn
                raise
        if self.cluster is not None and self.cluster.pulse.is_idle:
            self.cluster.pulse.look()
            state.reports |= self.cluster.pulse.is_idle  # so that it looks after the next turn, too

    def _mend(self) -> None:
        """Close each session or route, and reopen each stream or consumer, in which a fault occurred.

        A fault may have left the state of its object half changed.
        """
        for owner, _ in self.turn_state.take("faulted"):
            if isinstance(owner, ClientSession):
                owner.link.abort()
                owner.connection_lost()  # its output is incomplete, so nothing more is sent
            elif self.cluster is not None and self.cluster.mend(owner):
                pass
            elif self.jetstream is not None:
                self.jetstream.mend(owner)

    def next_deadline_ns(self) -> int | None:
        """Return the time of the earliest timer, or None if there is none.

        If `has_work` is set, the next turn is due at once.
        """
        return self.timers.next_deadline_ns()


def _counts(session: ClientSession) -> tuple[int, int, int, int]:
    return session.in_msgs, session.in_bytes, session.out_msgs, session.out_bytes


def tls_fields(options: Options) -> dict[str, object]:
    """Return the fields of INFO and /varz about TLS."""
    if not options.tls.certificates:
        return {}
    if options.tls.allow_plain:
        return {"tls_available": True}
    required: dict[str, object] = {"tls_required": True}
    return required | {"tls_verify": True} if options.tls.verify else required


def websocket_tls_fields(options: Options) -> dict[str, object]:
    """Return the fields of INFO about TLS for a WebSocket client."""
    verify = {"tls_verify": True} if tls_fields(options).get("tls_verify") else {}
    if not options.websocket.tls.certificates:
        return {**verify}
    return {"tls_required": True, **verify, "tls_available": True}


def settings_from(options: Options) -> SessionSettings:
    """Return the settings of client connections from `options`."""
    limits = options.limits
    return SessionSettings(
        max_payload=limits.max_payload if limits.max_payload >= 0 else (1 << 31) - 1,
        max_control_line=limits.max_control_line,
        max_pending=limits.max_pending,
        max_subscriptions=limits.max_subscriptions,
        max_sub_tokens=limits.max_sub_tokens,
        ping_max=limits.ping_max,
        write_deadline_ns=limits.write_deadline_ns,
        headers=not limits.no_header_support,
        stall_producers=not options.no_fast_producer_stall,
    )


def permissions_from(options: PermissionOptions | None) -> Permissions | None:
    """Return the permissions from `options`, or None if everything is allowed."""
    if options is None:
        return None
    publish, subscribe, responses = options.publish, options.subscribe, options.allow_responses
    return Permissions(
        publish_allow=None if publish is None else publish.allow,
        publish_deny=() if publish is None else publish.deny,
        subscribe_allow=None if subscribe is None else subscribe.allow,
        subscribe_deny=() if subscribe is None else subscribe.deny,
        responses=None if responses is None else ResponsePermission(responses.max_msgs, responses.expires_ns),
    )


def user_from(options: UserOptions, account: str, default: Permissions | None) -> User:
    """Return the user for an entry of `users`.

    `default` has the permissions of a user whose entry has none.
    """
    permissions = permissions_from(options.permissions) or default
    key = public_key(options.nkey, NKEY_USER) or b""
    types = frozenset(options.connection_types)
    return User(
        options.nkey or options.user,
        options.password,
        account,
        permissions,
        key,
        types,
        proxy_required=options.proxy_required,
    )


def authenticator_from(options: Options, rng: Rng) -> Authenticator:
    """Return the authenticator with all users of the authorization block and of every account."""
    auth = options.authorization
    default = permissions_from(auth.default_permissions)
    users = [user_from(user, GLOBAL_ACCOUNT, default) for user in auth.users]
    if auth.user:
        users.append(User(auth.user, auth.password, GLOBAL_ACCOUNT, None))
    for name, account in options.accounts.items():
        account_default = permissions_from(account.default_permissions)
        users.extend(user_from(user, name, account_default) for user in account.users)
    hashed = any(is_bcrypt(secret) for secret in (auth.token, *(user.secret for user in users)))
    # As in nats-server, a single user needs a password even with verify_and_map.
    by_certificate = options.tls.verify_and_map and not (auth.user or auth.token)
    return Authenticator(
        users,
        auth.token,
        options.no_auth_user,
        rng.randbytes(32) if hashed else b"",
        by_certificate,
        bool(options.operator_keys),
        TrustedProxies(options.proxies.keys),
        auth.proxy_required,
    )


def websocket_entrance(options: Options, rng: Rng, common: Entrance) -> Entrance:
    """Return the login rules of WebSocket clients.

    These are the general rules with the changes in the block `websocket`.
    """
    block = options.websocket
    authenticator = common.authenticator
    if block.has_logins:
        own = block.authorization
        single = replace(options.authorization, user=own.user, password=own.password, token=own.token)
        options = replace(options, authorization=single, no_auth_user=block.no_auth_user, tls=block.tls)
        authenticator = authenticator_from(options, rng)
    elif block.port and block.tls.verify_and_map != options.tls.verify_and_map:
        authenticator = authenticator_from(replace(options, tls=block.tls), rng)
    return Entrance(
        authenticator,
        block.authorization.timeout_ns or common.auth_timeout_ns,
        block.ping_interval_ns or common.ping_interval_ns,
    )


def _public_key(rng: Rng, prefix: bytes) -> str:
    """Return a random key in the form of an nkey's public key: `prefix` and 55 base-32 digits."""
    number = int.from_bytes(rng.randbytes(35), "big")
    return prefix.decode() + "".join(BASE32[number >> shift & 31] for shift in range(275, 0, -5))
