"""Connections that carry the batches of replicated groups: one to each server that has such groups.

They are separate from the routes, so that a large batch does not delay messages of clients, and messages do
not delay a vote. If a connection closes or heartbeats are missing, this server learns at once that the other node
does not respond.

Consensus identifies servers by numbers derived from their names; two servers with the same number refuse each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs import __version__
from pyjs.cluster import forwarded
from pyjs.cluster.awaited import Awaited
from pyjs.cluster.batches import Batches
from pyjs.cluster.hello import BadHello
from pyjs.cluster.interest import Interest
from pyjs.consensus.names import number_of, same_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.forwarded import Forwarded
    from pyjs.cluster.hello import PeerInfo
    from pyjs.cluster.route import Route
    from pyjs.core.account import Account
    from pyjs.core.sink import Sink

PENDING_MAX = 160 << 20  # bytes: two batches of the maximum size, and some small ones
# The first byte of a note, and of a message that is forwarded; the first byte of a batch is its version.
NOTE, FORWARDED = b"N", b"F"


class Replicas(Protocol):
    """The receiver of batches: consensus.Consensus, or its owner."""

    @property
    def rests(self) -> bool:
        """Whether all groups are idle, so that only their heartbeats at long intervals are sent."""

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch.

        Raises:
            ValueError: the batch is damaged.
        """

    def node_silent(self, node: int) -> None:
        """Handle a node that does not answer."""

    def node_heard(self, node: int) -> None:
        """Handle the return of a node that was silent."""


class FramesReceiver(Protocol):
    """The receiver of batches with frames of the engine: consensus.Consensus."""

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch.

        Raises:
            ValueError: the batch is damaged.
        """


class Notes(Protocol):
    """The receiver of notes: jetstream.member.member_node."""

    def take_note(self, node: int, data: bytes) -> None:
        """Handle a note.

        Raises:
            ValueError: the note is damaged.
        """


class Replication(Batches):
    """This server's connections for consensus to other servers; implements `Peers` of consensus."""

    def __init__(self, cluster: Cluster, *, heeds_silence: bool = True) -> None:
        """Begin without connections.

        If `heeds_silence` is False, a server counts as silent only after its connection has closed. This is for
        workers: a worker that sends no heartbeats is busy, and one that ends closes its connections.
        """
        self._cluster = cluster
        self._heeds_silence = heeds_silence
        self._consensus: Replicas | None = None
        self._notes: Notes | None = None
        self._frames: FramesReceiver | None = None
        self._nodes: dict[Route, int] = {}  # the reverse mapping of `connections`
        self._is_stopped = False  # this server has left all groups
        self._has_sent = False  # a note or a message was sent since the last call of `is_busy`

    def begin(
        self, consensus: Replicas, notes: Notes | None = None, frames: FramesReceiver | None = None
    ) -> None:
        """Pass batches to `consensus` and notes to `notes`; must be called before the first route.

        If `frames` is given, it gets the batches with frames of the engine.
        """
        self._consensus, self._notes, self._frames = consensus, notes, frames
        self._cluster.replication = self

    @property
    def receiver(self) -> Notes | None:
        """The receiver of notes."""
        return self._notes

    def clash(self, info: PeerInfo) -> str:
        """Return the reason why the server that `info` describes cannot be in the cluster, or "" if there is none."""
        if not info.replicates:
            return ""
        others = [route.info for route in self._cluster.routes.values() if route.info is not None]
        names = {each.server_name for each in others if each.replicates and each.server_id != info.server_id}
        names.add(self._cluster.host.server_name)
        return next((why for name in sorted(names) if (why := same_number(info.server_name, name))), "")

    def lacks(self, info: PeerInfo) -> bool:
        """Return whether a connection to the server that `info` describes is needed and does not exist."""
        return not self._is_stopped and number_of(info.server_name) not in self.connections

    def opened(self, route: Route) -> None:
        """Use a new connection for batches."""
        assert route.info is not None
        node = number_of(route.info.server_name)
        route.allow(PENDING_MAX)
        before = self.connections.get(node)
        if before is not None:
            del self._nodes[before]
            before.carry(node, None)
        self.connections[node] = route
        self._nodes[route] = node
        route.carry(node, self._frames)
        if self._consensus is not None:
            self._consensus.node_heard(node)

    def closed(self, route: Route) -> None:
        """Handle the end of a connection; its node counts as silent, unless a newer connection exists."""
        if route.info is None:
            return
        node = number_of(route.info.server_name)
        if self.connections.get(node) is route:
            del self.connections[node], self._nodes[route]
            route.carry(node, None)
            if self._consensus is not None:
                self._consensus.node_silent(node)

    def connection_to(self, info: PeerInfo) -> Route | None:
        """Return the connection to the server that `info` describes, or None if there is none."""
        return self.connections.get(number_of(info.server_name))

    def note_silence(self, route: Route, silent: bool) -> None:
        """Report to consensus that the server at the other end of a route is silent, or is heard again."""
        if self._consensus is None or route.info is None or not self._heeds_silence:
            return
        node = number_of(route.info.server_name)
        if silent:
            self._consensus.node_silent(node)
        elif node in self.connections:
            self._consensus.node_heard(node)

    def receive(self, route: Route, data: bytes) -> None:
        """Handle a batch, a note or a forwarded message.

        Raises:
            BadHello: the data is damaged, or the connection has another purpose.
        """
        node = self._nodes.get(route)
        if node is None or self._consensus is None:
            raise BadHello("a batch of replicated groups on a connection for something else")
        try:
            if data.startswith(FORWARDED):
                forwarded.deliver(self._cluster.host.accounts, forwarded.decode(data[len(FORWARDED) :]))
            elif self._notes is not None and data[:1] == NOTE:
                self._notes.take_note(node, data[len(NOTE) :])
            else:
                self._consensus.receive(node, data)
        except ValueError as error:
            raise BadHello(f"a batch of replicated groups: {error}") from None

    def is_busy(self) -> bool:
        """Return whether groups have work, or notes or messages were sent since the last call."""
        has_sent, self._has_sent = self._has_sent, False
        return has_sent or not (self._consensus is None or self._consensus.rests)

    def own_routes(self) -> int:
        """Return the number of configured addresses known to lead to this server itself."""
        return self._cluster.own_routes()

    def hold_messages(self, is_awaited: Callable[[str, bytes], bool]) -> None:
        """From now on, hold each message that has no receiver, if a stream with its subject may soon have a leader.

        `is_awaited(account, subject)` must return whether there is such a stream.
        """
        self._cluster.hold_messages(Awaited(self._cluster.host, is_awaited))

    def withdraw(self, account: Account, keys: Iterable[tuple[bytes, bytes]]) -> None:
        """Withdraw interest of an account, so that other servers stop sending messages for it."""
        if isinstance(account.interest, Interest):
            account.interest.withdraw(keys)

    def fence(self, passed: Callable[[], None]) -> None:
        """Call `passed` when every other server has applied the interest sent so far, see `Cluster.fence`."""
        self._cluster.fence(passed)

    def quiet_ns(self, node: int) -> int:
        """Return the time in ns since the last bytes from a node; 0 if there is no connection to the node."""
        route = self.connections.get(node)
        if route is None or route.info is None:
            return 0
        pulse = self._cluster.pulse.connections.get(route.info.server_id, route)
        return max(0, self._cluster.host.clock.now_ns() - pulse.last_activity_ns)

    def reached(self) -> set[int]:
        """Return the node numbers of the servers whose subscriptions are known to this server."""
        routes = self._cluster.routes.values()
        return {number_of(each.info.server_name) for each in routes if each.synced and each.info is not None}

    def send_note(self, node: int, note: bytes) -> None:
        """Send a note over the connection for batches, or drop the note if there is no connection."""
        self._has_sent = True
        self.send(node, [NOTE, note])

    def send_request(self, node: int, note: bytes, session: Sink | None) -> bool:
        """Send a worker a note with a request of the client `session`.

        `session` is None if the server itself makes the request. The worker gets the note after all messages that
        were sent to the worker so far. Return False if there is no connection, or the note is too large.
        """
        beside = self.connections.get(node)
        info = None if beside is None else beside.info
        route = None if info is None else self._cluster.routes.get(info.server_id)
        return route is not None and route.send_request(note, session)

    def receive_request(self, route: Route, note: bytes) -> None:
        """Handle a note with a request, which another worker has sent on a route.

        Raises:
            BadHello: the note is damaged.
        """
        assert self._notes is not None
        assert route.info is not None  # holds, since the route is open
        try:
            self._notes.take_note(number_of(route.info.server_name), note)
        except ValueError as error:
            raise BadHello(f"a request of another worker: {error}") from None

    def forward(self, info: PeerInfo, message: Forwarded) -> bool:
        """Send a message to the server that `info` describes, for certain subscriptions there; see `Forwarded`.

        Return False if there is no connection, or the server has another version.
        """
        route = self.connection_to(info)
        if route is None or info.version != __version__:
            return False
        self._has_sent = True
        route.send_batch([FORWARDED, *forwarded.encode(message)])
        return True

    # -- Peers -------------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Close all connections and accept no more, since other nodes must not rely on this node."""
        self._is_stopped = True
        for route in list(self.connections.values()):
            route.close(reason)
