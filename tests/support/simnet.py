"""Several nodes of a cluster on one virtual clock, and a network between them that delays, cuts and partitions.

Everything happens in `run`, in the order of time: bytes arrive, deadlines pass, turns run. Random numbers come from
the seed, so that a run can be repeated exactly. A connection keeps the order of its bytes, as TCP does: bytes that a
partition delays arrive after it, or the connection breaks.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from pyjs.base.clock import NS_PER_MS, VirtualClock
from pyjs.base.disk import Disk, OsDisk
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.cluster.mesh import Dial
from pyjs.config.options import Options, RouteUrl
from pyjs.core.link import Link, Peer
from pyjs.node import Node
from pyjs.server.system.scratch import UnsyncedDisk
from pyjs.testing.node import CONNECT, RawClient, VirtualNode

PORT = 6222
LATENCY_NS = 200_000
LONG_NS = 20 * NS_PER_MS  # enough time for anything to be sent through the network and answered
TURNS_MAX = 10_000


class Wire(Link):
    """One end of a connection between two servers."""

    def __init__(self, net: SimNet, owner: SimServer) -> None:
        self.net = net
        self.owner = owner
        self.other: Wire
        self.session: Any = None
        self.arrives_ns = 0  # when the last written bytes arrive at the other end
        self.open = True
        self.held: list[bytes] = []  # data that arrived while reading was paused
        self.reading = True
        self.in_flight = 0

    def write(self, data: bytes) -> None:
        """Send `data`; it arrives after everything that was sent before."""
        if not self.open:
            return
        self.in_flight += len(data)
        self.net.deliver(self, data)

    def close(self) -> None:
        """Close once everything sent so far has arrived."""
        if self.open:
            self.open = False
            self.net.deliver(self, None)

    def abort(self) -> None:
        """Close at once."""
        self.close()

    def pending_size(self) -> int:
        """Return the number of bytes in transit."""
        return self.in_flight

    def pause_reading(self) -> None:
        """Hold arriving data back."""
        self.reading = False

    def resume_reading(self) -> None:
        """Process the data that was held back."""
        self.reading = True
        self.net.after(0, self._take_held)

    def arrive(self, data: bytes | None) -> None:
        """Process data from the other end; None: the other end has closed."""
        if not self.owner.alive or self.session is None:
            return
        if data is None:
            self.open = False
            self.session.lose_link()
            self.session.end_input()
        elif self.reading:
            self.session.receive_data(data)
        else:
            self.held.append(data)
            return
        self.owner.wake()

    def _take_held(self) -> None:
        while self.held and self.reading and self.owner.alive:
            self.session.receive_data(self.held.pop(0))
            self.owner.wake()


class SimServer:
    """One server of the network."""

    def __init__(self, net: SimNet, name: str, options: Options) -> None:
        self.net, self.name = net, name
        self.host = net.hosts.setdefault(name, f"10.0.0.{len(net.hosts) + 1}")
        self.options = options
        self.alive = True
        self.paused = False  # as SIGSTOP does
        self.log = ListLog()
        self.wires: list[Wire] = []
        self.late: list[Callable[[], None]] = []  # callbacks of events that arrived while it was paused
        self.node = Node(options, net.clock, SeededRng(net.rng.getrandbits(32)), OsDisk(), self.log)
        assert self.node.cluster is not None
        self.cluster = self.node.cluster
        self.cluster.set_own_urls((f"{self.host}:4222",))

    def wake(self) -> None:
        """Run turns of the node until nothing is left to do, and open the connections that it requests."""
        if self.paused or not self.alive:
            return
        for _ in range(TURNS_MAX):
            self.node.turn(self.net.clock.now_ns())
            if not self.node.has_work:
                break
        for dial in self.cluster.take_dials():
            self.net.connect(self, dial)
        self.net.arm(self)

    turn = wake  # for RawClient

    def client(self) -> RawClient:
        """Return a client of this server."""
        return RawClient(cast("VirtualNode", self), CONNECT)


class SimNet:
    """The network, its clock, and its servers."""

    def __init__(self, seed: int = 0, jitter_ns: int = 0) -> None:
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.jitter_ns = jitter_ns
        self.servers: dict[str, SimServer] = {}
        self.hosts: dict[str, str] = {}  # addresses, by server name; a killed server keeps its address
        self.cuts: set[tuple[str, str]] = set()  # (from, to): connections on which nothing arrives
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._waiting: dict[tuple[str, str], list[tuple[Wire, bytes | None]]] = {}

    def start(self, name: str, *routes: str, cluster: str = "SIM", login: str = "") -> SimServer:
        """Start a server with routes to the named ones."""
        options = Options(server_name=name)
        options.cluster.name, options.cluster.port = cluster, PORT
        options.cluster.routes = tuple(
            RouteUrl(self.servers[each].host if each in self.servers else each, PORT, login, login)
            for each in routes
        )
        options.cluster.authorization.user = options.cluster.authorization.password = login
        server = self.servers[name] = SimServer(self, name, options)
        server.cluster.options.host = server.host
        server.cluster.start()
        server.wake()
        return server

    def disk(self) -> Disk:
        """Return the disk of a server with a store that is being started."""
        return UnsyncedDisk()

    def kill(self, name: str) -> SimServer:
        """End a server as kill -9 does: the other ends of its connections notice it."""
        server = self.servers.pop(name)
        server.alive = False
        for wire in server.wires:
            if wire.open:
                wire.close()
        return server

    def pause(self, name: str) -> None:
        """Stop a server as SIGSTOP does."""
        self.servers[name].paused = True

    def resume(self, name: str) -> None:
        """Continue a paused server."""
        server = self.servers[name]
        server.paused = False
        late, server.late = server.late, []
        for call in late:
            call()
        server.wake()

    def cut(self, one: str, other: str) -> None:
        """Hold everything that `one` sends to `other`, until `heal`."""
        self.cuts.add((one, other))

    def heal(self) -> None:
        """End all partitions; data that they delayed arrives."""
        self.cuts.clear()
        waiting, self._waiting = self._waiting, {}
        for held in waiting.values():
            for wire, data in held:
                self.deliver(wire, data)

    def after(self, ns: int, call: Callable[[], None]) -> None:
        """Call at a later time."""
        heapq.heappush(self._events, (self.clock.now_ns() + ns, next(self._order), call))

    def run(self, ns: int) -> None:
        """Let time pass."""
        end_ns = self.clock.now_ns() + ns
        while self._events and self._events[0][0] <= end_ns:
            at_ns, _, call = heapq.heappop(self._events)
            self.clock.advance(max(0, at_ns - self.clock.now_ns()))
            call()
        self.clock.advance(max(0, end_ns - self.clock.now_ns()))

    def run_until(self, reached: Callable[[], bool], seconds: float = 10) -> None:
        """Let time pass until `reached` returns true, in steps of a millisecond."""
        for _ in range(int(seconds * 1000)):
            if reached():
                return
            self.run(NS_PER_MS)
        raise AssertionError(f"not reached in {seconds} s")

    def whole(self) -> bool:
        """Return whether every server has a route to every other server and knows its interest."""
        alive = [server for server in self.servers.values() if server.alive]
        return all(
            len(server.cluster.routes) == len(alive) - 1
            and all(route.synced for route in server.cluster.routes.values())
            for server in alive
        )

    def arm(self, server: SimServer) -> None:
        """Wake a server at its next deadline."""
        due_ns = server.node.next_deadline_ns()
        if due_ns is not None:
            self.after(max(1, due_ns - self.clock.now_ns()), lambda: self._due(server, due_ns))

    def _due(self, server: SimServer, due_ns: int) -> None:
        if server.alive and server.node.next_deadline_ns() == due_ns:
            server.wake()

    def connect(self, server: SimServer, dial: Dial) -> None:
        """Connect to the server at an address, after a delay."""
        self.after(self._latency_ns(), lambda: self._connected(server, dial))

    def _connected(self, server: SimServer, dial: Dial) -> None:
        if not server.alive:
            return
        other = next((each for each in self.servers.values() if each.host == dial.host and each.alive), None)
        if other is None or {(server.name, other.name), (other.name, server.name)} & self.cuts:
            server.cluster.dial_failed(dial, f"dial tcp {dial}: connect: connection refused")
            server.wake()
            return
        near, far = Wire(self, server), Wire(self, other)
        near.other, far.other = far, near
        server.wires.append(near)
        other.wires.append(far)
        far.session = other.cluster.open_route(Peer(server.host, 40000), far)
        near.session = server.cluster.open_route(Peer(other.host, PORT), near, dial)
        other.wake()
        server.wake()

    def deliver(self, wire: Wire, data: bytes | None) -> None:
        """Deliver data that one end of a connection sends to the other end."""
        way = (wire.owner.name, wire.other.owner.name)
        if way in self.cuts or way in self._waiting:
            self._waiting.setdefault(way, []).append((wire, data))
            return
        now_ns = self.clock.now_ns()
        wire.arrives_ns = max(wire.arrives_ns, now_ns + self._latency_ns())
        self.after(wire.arrives_ns - now_ns, lambda: self._arrive(wire, data))

    def _arrive(self, wire: Wire, data: bytes | None) -> None:
        wire.in_flight -= len(data or b"")
        other = wire.other
        if other.owner.paused:
            other.owner.late.append(lambda: other.arrive(data))
        else:
            other.arrive(data)

    def _latency_ns(self) -> int:
        return LATENCY_NS + (self.rng.randrange(self.jitter_ns) if self.jitter_ns else 0)


def three(net: SimNet) -> tuple[SimServer, SimServer, SimServer]:
    """Start a cluster of three."""
    servers = net.start("a"), net.start("b", "a"), net.start("c", "a")
    net.run_until(net.whole)
    return servers


def say(net: SimNet, client: RawClient, text: bytes) -> None:
    """Send `text`, and wait until none of its consequences is in transit."""
    client.send(text)
    net.run(LONG_NS)
