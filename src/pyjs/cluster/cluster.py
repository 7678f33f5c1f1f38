"""The cluster as one server sees it: its routes, their frames, and the data received from other servers.

Every server has a route to every other server. On a new route, a server first sends all its interest, in steps. After
that, it sends the changes, normally once a turn. Servers also send each other the addresses of their peers, so one
configured address is enough to reach all servers.

Source: nats.docs "Clustering"; visible behaviour equals nats-server 2.15.1 (tests/conformance/test_cluster.py).
"""

from __future__ import annotations

import hmac
from collections import deque
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import orjson

from pyjs import __version__
from pyjs.cluster.headcount import Headcount
from pyjs.cluster.hello import BULK, CONSENSUS, MESSAGES, PULSE, BadHello, PeerInfo, read_object, read_urls
from pyjs.cluster.interest import Interest
from pyjs.cluster.mesh import Dial, Mesh
from pyjs.cluster.pulse import Pulse
from pyjs.cluster.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pyjs.cluster.awaited import Awaited
    from pyjs.cluster.replication import Replication
    from pyjs.config.options import ClusterOptions
    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.core.link import Link, Peer

ROUTES_MAX = 63  # Msg.told has 64 bits; one is unused, so that the bits are never all set (EVERYWHERE)
INFOS_STEP = 20  # sessions that get INFO in one step
SYNC_STEP = 200  # subscriptions sent in one step
ALREADY = "there is a route already"
FENCE = bytes(8) + b"F"  # body of a PING that is sent as a fence and does not measure time
PEERS_MAX = 256  # maximum number of addresses sent by one server


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a route: the close reason, and the error message sent to the other side."""

    reason: str
    text: str


@dataclass(slots=True)
class _Fence:
    """A callback that waits until other servers have answered."""

    awaited: int  # servers that have not answered
    passed: Callable[[], None]


class Cluster:
    """The cluster as one server sees it: its routes, and the data received over them."""

    def __init__(self, host: Host, options: ClusterOptions) -> None:
        self.host = host
        self.options = options
        self.routes: dict[str, Route] = {}  # open routes by the id of the other server
        self.greeting: set[Route] = set()  # connections whose greeting is not complete
        # by server id: routes for which CONNECT was sent but not answered
        self.dials_made: dict[str, Route] = {}
        self.port = options.port  # port for routes; replaced by the actual port once the server listens
        self.lame_duck = False
        self._mesh = Mesh(self)
        self.dials = self._mesh.due  # addresses to connect to now; `take_dials` empties the list
        self._ids = count(1)
        self.pulse = Pulse(self)
        self.headcount = Headcount(self.routes)
        self.replication: Replication | None = None  # set before the first route; None: no replicated groups
        self.awaited: Awaited | None = None  # None: no message waits for a subscriber
        self._fences: dict[
            str, deque[_Fence]
        ] = {}  # by server id: those that wait for its answer, oldest first
        self._changed: list[Interest] = []
        self._closed_counters = (0, 0, 0, 0)
        self._peers: dict[str, tuple[str, ...]] = {}  # by server id: its URLs for clients
        self._urls: tuple[str, ...] = ()  # this server's addresses for clients, host:port
        # The numbers of this server's requests differ from those of other servers, and from those before a restart.
        host.turn_state.last_number = int.from_bytes(host.rng.randbytes(8), "little") >> 1
        self._infos_due = False  # addresses have changed, and clients must get an INFO
        # server id -> ids of the servers to which that server has routes
        self._told: dict[str, set[str]] = {}
        for account in host.accounts.values():
            self.account_added(account)

    # -- routes ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the servers in the configuration."""
        self._mesh.apply_routes(self.options.routes)

    def stop(self) -> None:
        """Close every connection to other servers, and make no more."""
        self._mesh.stop()
        self.pulse.stop()
        for route in [*self.routes.values(), *self.pulse.connections.values(), *self.greeting]:
            route.close("Server Shutdown")

    def apply_options(self, options: ClusterOptions) -> None:
        """Apply changed addresses and logins of routes.

        A route that this server opened is closed if its address was removed. Other routes stay open.
        """
        self.options = options
        for account in self.host.accounts.values():  # a reload may have moved clients to another account
            self.clients_changed(account)
        for server_id in self._mesh.apply_routes(options.routes):
            route = self.routes.get(server_id)
            if route is not None and route.dial is not None:
                route.close("Route Removed")

    def take_dials(self) -> list[Dial]:
        """Return the addresses to connect to now; the caller must call `open_route` or `dial_failed` for each."""
        return self._mesh.take_dials()

    def dial_failed(self, dial: Dial, cause: str) -> None:
        """Record that a connection attempt failed; `cause` is the reason in the log."""
        self._mesh.failed(dial, cause)

    def open_route(self, peer: Peer, link: Link, dial: Dial | None = None) -> Route:
        """Begin a route on a new connection; `dial` is given if this server opened the connection."""
        self.host.turn_state.now = self.host.clock.now_ns()
        route = Route(self, peer, link, next(self._ids), dial)
        self.greeting.add(route)
        self.host.log.debug(f"{route} - Route connection created")
        route.start()
        return route

    def mend(self, owner: object) -> bool:
        """Close a route after a fault, since its state may be half changed.

        Return False if `owner` is not a route.
        """
        if not isinstance(owner, Route):
            return False
        owner.link.abort()
        owner.connection_lost()
        return True

    def own_routes(self) -> int:
        """Return the number of configured addresses that were found to lead to this server itself."""
        return self._mesh.own_routes()

    def has_route(self, server_id: str) -> bool:
        """Return whether there is a route to a server."""
        return server_id in self.routes

    def is_settled(self) -> bool:
        """Return whether every address was tried, and the subscriptions of every connected server are known."""
        return self._mesh.is_settled() and all(route.synced for route in self.routes.values())

    def is_told(self, server_id: str) -> bool:
        """Return whether another server has reported its own route to `server_id`."""
        return any(server_id in told for told in self._told.values())

    def me(self, route: Route) -> PeerInfo:
        """Return the description of this server for a peer, with the login if this server opened the connection."""
        options = self.options
        host, port = options.advertised or ("" if options.is_wildcard else options.host, 0)
        info = PeerInfo(
            self.host.server_id,
            self.host.server_name,
            options.name,
            host,
            port or self.port,
            self._own_urls(),
            bool(options.authorization.user),
            __version__,
            rid=route.rid,
            replicates=self.replication is not None,
        )
        dial = route.dial
        if dial is None:
            return info
        return replace(info, user=dial.user, password=dial.password, purpose=dial.purpose, beside=dial.beside)

    def refusal(self, route: Route, info: PeerInfo) -> Refusal | None:
        """Return the reason to refuse a route to the server that `info` describes, or None to allow the route."""
        if info.server_id == self.host.server_id:
            if route.dial is not None:
                self._mesh.is_self(route.dial)
            return Refusal("Duplicate Route", "this is the server itself")
        if info.cluster and self.options.name and info.cluster != self.options.name:
            self.host.log.error(
                f'{route} - the server "{info.server_name}" is in the cluster "{info.cluster}", not in'
                f' "{self.options.name}": write the same cluster.name on both'
            )
            return Refusal("Cluster Name Conflict", f"cluster name {self.options.name} expected")
        if route.dial is None and not self._may_enter(info):
            self.host.log.error(f"{route} - Authorization Violation: the route has another user or password")
            return Refusal("Authentication Failure", "Authorization Violation")
        existing = self.routes.get(info.server_id)
        purpose = _purpose(route, info)
        clash = self.replication.clash(info) if self.replication is not None else ""
        if clash:
            self.host.log.error(f"{route} - {clash}")
            return Refusal("Duplicate Server Name", clash)
        if purpose == CONSENSUS and (self.replication is None or not self.replication.lacks(info)):
            return Refusal("No Route", "no connection for replicated groups is missing")
        if purpose != MESSAGES:
            return (
                None
                if self._main_of(route, info) is not None
                else Refusal("No Route", "no route that lacks it")
            )
        ours = self.dials_made.get(info.server_id)
        first = ours is not None and ours is not route and self.host.server_id < info.server_id
        if existing is not None or (route.dial is None and first):
            if route.dial is not None:
                self._mesh.connected(route.dial, info.server_id)
            return Refusal("Duplicate Route", ALREADY)
        if len(self.routes) >= ROUTES_MAX:
            self.host.log.error(f"{route} - a cluster has at most {ROUTES_MAX + 1} servers")
            return Refusal("Maximum Routes Exceeded", f"a cluster has at most {ROUTES_MAX + 1} servers")
        return None

    def _may_enter(self, info: PeerInfo) -> bool:
        login = self.options.authorization
        if not login.user and not login.password:
            return True
        same_user = hmac.compare_digest(info.user.encode(), login.user.encode())
        return hmac.compare_digest(info.password.encode(), login.password.encode()) and same_user

    def connecting(self, route: Route, info: PeerInfo) -> None:
        """Record that CONNECT was sent to the server that `info` describes."""
        route.info = info
        if route.dial is not None and route.dial.purpose == MESSAGES:
            self.dials_made[info.server_id] = route

    def refused_by(self, route: Route, text: str) -> None:
        """Handle the refusal of a route by the other side, and close the route."""
        # the other side's own attempt continues, or it has not noticed yet that the old route is lost
        if ALREADY in text:
            info = route.info
            if route.dial is not None and info is not None and self.has_route(info.server_id):
                self._mesh.connected(route.dial, info.server_id)
            route.close("Duplicate Route")
            return
        # a refused route is tried again later
        is_known = route.dial is None or route.dial.purpose != MESSAGES
        log = self.host.log.debug if is_known else self.host.log.error
        log(f"{route} - the other side refuses: {text}")
        route.close("Refused")

    def route_opened(self, route: Route, info: PeerInfo) -> None:
        """Open a connection for frames, after its greeting.

        On a route, this server then sends all its interest and the addresses of the known servers.
        """
        self.greeting.discard(route)
        purpose = _purpose(route, info)
        if purpose != MESSAGES:
            main = self._main_of(route, info)
            if main is None:  # the route has ended in the meantime, or another connection was faster
                route.close("No Route")
                return
            route.open(info, 0)
            if purpose == PULSE:
                self.pulse.opened(route)
            elif purpose == BULK:
                route.serve(main)
            elif self.replication is not None:
                self.replication.opened(route)
            return
        if self.dials_made.get(info.server_id) is route:
            del self.dials_made[info.server_id]
        self.routes[info.server_id] = route
        route.open(info, self._free_bit())
        if route.dial is not None:
            self._mesh.connected(route.dial, info.server_id)
            self._mesh.beside(route.dial, info.rid)
            if self.replication is not None and info.replicates:
                self._mesh.beside(route.dial, info.rid, (CONSENSUS,))
        self._log(f'{route} - Route to the server "{info.server_name}" is open')
        self._peers[info.server_id] = info.client_urls
        self.host.turn_state.go_on(self._sync_steps(route))
        route.send_ping(self.host.clock.now_ns().to_bytes(8, "little"))
        self._tell_peers()
        self._urls_changed()

    def _main_of(self, route: Route, info: PeerInfo) -> Route | None:
        """Return the route to which an additional connection belongs.

        Return None if this route has ended. Also return None if the connection is for large messages, and the route
        already has such a connection.
        """
        main = self.routes.get(info.server_id)
        if main is None or main.info is None or (_purpose(route, info) == BULK and main.aside is not None):
            return None
        if route.dial is None:
            return main if main.rid == info.beside else None
        return main if main.info.rid == route.dial.beside else None

    def _free_bit(self) -> int:
        used = 0
        for route in self.routes.values():
            used |= route.told_bit
        bit = 1
        while used & bit:
            bit <<= 1
        return bit

    def route_closed(self, route: Route) -> None:
        """Remove a closed connection, and connect again later if its address is known.

        After the end of a route, its additional connections are closed too.
        """
        self.greeting.discard(route)
        self.pulse.closed(route)
        if self.replication is not None:
            self.replication.closed(route)
        info = route.info
        main = None if info is None else self.routes.get(info.server_id)
        if main is not None and main.aside is route:
            main.close("Route Closed")  # large messages were lost
        if info is not None and self.dials_made.get(info.server_id) is route:
            del self.dials_made[info.server_id]
        if info is None or self.routes.get(info.server_id) is not route:
            if route.dial is not None:
                self._mesh.failed(route.dial, route.closed_reason)
            return
        del self.routes[info.server_id]
        while self._fences.get(info.server_id):
            self._passed(info.server_id)
        self._fences.pop(info.server_id, None)
        self._closed_counters = _added(self._closed_counters, route)
        replicas = None if self.replication is None else self.replication.connection_to(info)
        for beside in (self.pulse.connections.get(info.server_id), route.aside, replicas):
            if beside is not None:
                beside.close("Route Closed")
        self._peers.pop(info.server_id, None)
        self._told.pop(info.server_id, None)
        self._log(f'{route} - Route to the server "{info.server_name}" is closed: {route.closed_reason}')
        self._mesh.route_lost(info.server_id)
        self._tell_peers()
        self._urls_changed()

    def _log(self, text: str) -> None:
        """Log an event at info level, or at debug level if the cluster consists of the workers of one server."""
        (self.host.log.debug if self.options.local else self.host.log.info)(text)

    def counters(self) -> tuple[int, int, int, int]:
        """Return the sums of in_msgs, in_bytes, out_msgs and out_bytes over all routes since the start."""
        sums = self._closed_counters
        for route in self.routes.values():
            sums = _added(sums, route)
        return sums

    def num_remote(self, account: Account) -> int:
        """Return the number of subscriptions that other servers have reported for an account."""
        remotes = (route.remote.get(account.name) for route in self.routes.values())
        return sum(len(remote.subscriptions) for remote in remotes if remote is not None)

    def note_silence(self, route: Route, silent: bool) -> None:
        """Record that the server at the other end of a route has been silent for a while, or is heard again."""
        route.set_silent(silent)
        if self.replication is not None:
            self.replication.note_silence(route, silent)

    # -- interest ----------------------------------------------------------------------------------------------

    def account_added(self, account: Account) -> None:
        """Report the subscriptions of a new account to other servers, and apply the interest of those servers."""
        account.interest = interest = Interest(account, self._interest_changed)
        interest.awaited = self.awaited
        if interest.counts:
            interest.take_changes()
            self._changed = [each for each in self._changed if each is not interest]
        for route in self.routes.values():
            route.account_added(account)
            if interest.counts:
                self.host.turn_state.go_on(self._account_steps(route, interest))

    def hold_messages(self, awaited: Awaited) -> None:
        """From now on, let `awaited` hold the messages that have no receiver."""
        self.awaited = awaited
        for account in self.host.accounts.values():
            if isinstance(account.interest, Interest):
                account.interest.awaited = awaited

    def fence(self, passed: Callable[[], None]) -> None:
        """Call `passed` when every other server has applied all interest that this server has sent so far.

        At that time, the messages that another server sent before it applied the interest have arrived, except
        messages on the connection for large messages. A server whose route closes is no longer awaited.
        """
        self.tell_interest()
        fence = _Fence(len(self.routes), passed)
        for server_id, route in self.routes.items():
            self._fences.setdefault(server_id, deque()).append(fence)
            route.send_ping(FENCE)
        if not self.routes:
            passed()

    def _passed(self, server_id: str) -> None:
        """Record the answer of a server to its oldest fence, and call `passed` after the last awaited answer."""
        fences = self._fences.get(server_id)
        if fences:
            fence = fences.popleft()
            fence.awaited -= 1
            if not fence.awaited:
                fence.passed()

    def _interest_changed(self, interest: Interest) -> None:
        if not self.routes:
            interest.take_changes()
            return
        self._changed.append(interest)
        self._have_news()

    def clients_changed(self, account: Account) -> None:
        """Send the other servers, in this turn, the number of clients that an account has here."""
        if self.routes:
            self.headcount.note(account)
            self._have_news()

    def _have_news(self) -> None:
        if not self.host.turn_state.news:
            self.host.turn_state.news = True
            next(iter(self.routes.values())).wake()

    def tell_interest(self) -> None:
        """Send, on all open routes, the interest and the numbers of clients that have changed since the last call."""
        self.host.turn_state.news = False
        self.headcount.tell()
        changed, self._changed = self._changed, []
        for interest in changed:
            for key in interest.take_changes():
                weight = interest.weight(key)
                for route in self.routes.values():
                    route.send_interest(interest.account, *key, weight)

    def _sync_steps(self, route: Route) -> Iterator[None]:
        """Send all interest on a new route; yields between steps."""
        for account in list(self.host.accounts.values()):
            if isinstance(account.interest, Interest):
                yield from self._account_steps(route, account.interest)
        if route.is_open:
            route.send_synced()

    def _account_steps(self, route: Route, interest: Interest) -> Iterator[None]:
        if interest.account.sessions and route.is_open:
            route.send_clients(interest.account)
        for number, key in enumerate(list(interest.counts)):
            if number % SYNC_STEP == SYNC_STEP - 1:
                yield
            if not route.is_open:
                return
            weight = interest.weight(key)
            if weight:
                route.send_interest(interest.account, *key, weight)

    # -- input of peers ----------------------------------------------------------------------------------------

    def _own_urls(self) -> tuple[str, ...]:
        return () if self.options.no_advertise or self.lame_duck else self._urls

    def client_urls(self) -> list[str]:
        """Return the addresses for clients of all servers, beginning with this server's."""
        urls = dict.fromkeys(self._own_urls())
        for each in self._peers.values():
            urls |= dict.fromkeys(each)
        return list(urls)

    def start_lame_duck(self) -> None:
        """Inform the other servers that this server accepts no more clients."""
        self.lame_duck = True
        self._tell_peers()

    def set_own_urls(self, urls: tuple[str, ...]) -> None:
        """Set this server's addresses for clients; if they have changed, send them to clients and other servers."""
        if self._urls == urls:
            return
        self._urls = urls
        self._tell_peers()
        self._urls_changed()

    def _urls_changed(self) -> None:
        """Send INFO to every client, in steps, since the list of servers has changed."""
        if not self._infos_due and not self.options.no_advertise:
            self._infos_due = True
            self.host.turn_state.go_on(self._info_steps())

    def _info_steps(self) -> Iterator[None]:
        yield  # the list may change again in the same turn
        self._infos_due = False
        for number, session in enumerate(list(self.host.sessions.values())):
            if session.connected and session.options.protocol >= 1:
                session.send_info()
            if number % INFOS_STEP == INFOS_STEP - 1:
                yield

    def _tell_peers(self) -> None:
        peers = [
            {"id": info.server_id, "host": info.route_host or route.peer.ip, "port": info.route_port}
            for route in self.routes.values()
            if (info := route.info) is not None and not self.options.local
        ]
        text = orjson.dumps({"connect_urls": list(self._own_urls()), "peers": peers})
        for route in self.routes.values():
            route.send_info(text)

    def peer_says(self, route: Route, body: bytes) -> None:
        """Apply the description that another server sent of itself and its peers.

        Raises:
            BadHello: the body is not valid JSON, or has an invalid field.
        """
        given = read_object(body, "the description of the other side")
        urls = read_urls(given.get("connect_urls"))
        peers = given.get("peers") or []
        if not isinstance(peers, list) or len(peers) > PEERS_MAX:
            raise BadHello(f"the other side's peers are no list of at most {PEERS_MAX}")
        assert route.info is not None  # holds, since the route is open
        server_id = route.info.server_id
        self._told[server_id] = {self._learn(peer) for peer in peers}
        if self._peers.get(server_id) != urls:
            self._peers[server_id] = urls
            self._urls_changed()

    def _learn(self, peer: Any) -> str:
        """Connect to a server whose address a peer sent, unless there is a route to it; return the server's id.

        Raises:
            BadHello: the description of the server is invalid.
        """
        if not isinstance(peer, dict):
            raise BadHello("one of the other side's peers is not a JSON object")
        server_id, host, port = peer.get("id"), peer.get("host"), peer.get("port")
        if not isinstance(server_id, str) or not isinstance(host, str) or type(port) is not int:
            raise BadHello("one of the other side's peers has no id, host or port")
        known = server_id == self.host.server_id or server_id in self.routes
        if not known and host and 0 < port <= 65535:
            self._mesh.learned(host, port, server_id)
        return server_id

    def route_synced(self, route: Route) -> None:
        """Log that the other side has sent all of its interest."""
        self.host.log.debug(f"{route} - all interest of the other server is known")

    def pong(self, route: Route, body: bytes) -> None:
        """Handle a PONG: a heartbeat, the answer to a fence, or an answer that repeats the send time of its PING."""
        self.pulse.came(route, body)
        if body == FENCE and route.info is not None:
            self._passed(route.info.server_id)
        sent_ns = int.from_bytes(body[:8], "little")
        now_ns = self.host.clock.now_ns()
        if route.info is not None and 0 < sent_ns <= now_ns:
            # a connection for heartbeats measures the time of its route
            self.routes.get(route.info.server_id, route).note_rtt(now_ns - sent_ns)


def _purpose(route: Route, info: PeerInfo) -> str:
    """Return the purpose of a connection; the side that opened the connection has declared it."""
    return info.purpose if route.dial is None else route.dial.purpose


def _added(sums: tuple[int, int, int, int], route: Route) -> tuple[int, int, int, int]:
    """Return `sums` with the counters of `route` added."""
    in_msgs, in_bytes, out_msgs, out_bytes = sums
    return (
        in_msgs + route.in_msgs,
        in_bytes + route.in_bytes,
        out_msgs + route.out_msgs,
        out_bytes + route.out_bytes,
    )
