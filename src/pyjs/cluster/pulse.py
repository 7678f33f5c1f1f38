"""Heartbeats between servers, by which silent servers are detected.

Heartbeats have a separate connection, so that they do not wait behind messages. Each side sends one every BEAT_NS. A
server that receives a heartbeat sends its own at once, unless it has just sent one. All servers of a cluster
therefore wake up at the same time, once per BEAT_NS, and idle servers use less processor time.

A server that is silent for SILENT_NS gets no message of a queue group that another server can accept. After
DEAD_NS its route is closed, which removes its interest. If this server itself was stopped for a while, this time
does not count as silence of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.route import Route

BEAT_NS = 100 * NS_PER_MS
WAIT_NS = (
    150 * NS_PER_MS
)  # after a beat caused by another server, whose next beat should come earlier than this server's own
SILENT_NS = 350 * NS_PER_MS
DEAD_NS = 2000 * NS_PER_MS
MEASURED_BEAT = 10  # only each tenth heartbeat is answered: an answer takes as much work as a heartbeat


class Pulse:
    """The heartbeats between one server and all others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._host = cluster.host
        self.connections: dict[str, Route] = {}  # by the id of the other server
        self._timer: Timer | None = None
        self._beaten_ns = 0  # time of this server's last heartbeat
        self._beats = 0

    def opened(self, connection: Route) -> None:
        """Send and expect heartbeats on a connection."""
        assert connection.info is not None
        self.connections[connection.info.server_id] = connection
        if self._timer is None:
            self._beaten_ns = self._host.clock.now_ns()
            self._arm(BEAT_NS)

    def closed(self, connection: Route) -> None:
        """Forget a connection."""
        info = connection.info
        if info is not None and self.connections.get(info.server_id) is connection:
            del self.connections[info.server_id]

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def came(self, connection: Route) -> None:
        """Handle a heartbeat: send this server's own heartbeats at once, unless they were sent a moment ago."""
        info = connection.info
        if info is None or self.connections.get(info.server_id) is not connection or self._timer is None:
            return
        if self._host.turn_state.now - self._beaten_ns >= BEAT_NS // 2:
            self._timer.cancel()
            self._beat(WAIT_NS)

    def _arm(self, wait_ns: int) -> None:
        """Set the timer to the next heartbeat, or to the time when a server counts as silent if that is earlier."""
        due_ns = self._beaten_ns + wait_ns
        for server_id, connection in self.connections.items():
            route = self._cluster.routes.get(server_id)
            if route is not None and not route.silent:
                due_ns = min(due_ns, connection.last_activity_ns + SILENT_NS)
        self._timer = self._host.timers.at(due_ns, self._due)

    def _due(self) -> None:
        self._beat(BEAT_NS)

    def _beat(self, wait_ns: int) -> None:
        """Send heartbeats, and check for silent servers; the next heartbeat is due after `wait_ns`."""
        self._timer = None
        now_ns = self._host.clock.now_ns()
        # During this time, this server was stopped and read no heartbeats.
        stopped_ns = max(0, now_ns - self._beaten_ns - 2 * BEAT_NS)
        self._beaten_ns = now_ns
        self._beats += 1
        for server_id, connection in list(self.connections.items()):
            connection.send_beat()
            if self._beats % MEASURED_BEAT == 0:
                # the answer to this one gives the round-trip time
                connection.send_ping(now_ns.to_bytes(8, "little"))
            if stopped_ns:
                connection.heard_at(now_ns)
            self._judge(server_id, now_ns - connection.last_activity_ns)
        if self.connections:
            self._arm(wait_ns)

    def _judge(self, server_id: str, quiet_ns: int) -> None:
        """Mark the route to a server as silent or as heard, or close it, after `quiet_ns` without a heartbeat."""
        route = self._cluster.routes.get(server_id)
        if route is None:
            self.connections[server_id].close("Stale Connection")
        elif quiet_ns >= DEAD_NS:
            self._host.log.warn(f"{route} - no heartbeat for {quiet_ns / 1e9:.1f} s: the route is closed")
            route.close("Stale Connection")
        elif quiet_ns >= SILENT_NS and not route.silent:
            self._cluster.note_silence(route, True)
            self._host.log.warn(f"{route} - no heartbeat for {quiet_ns // NS_PER_MS} ms")
        elif quiet_ns < SILENT_NS and route.silent:
            self._cluster.note_silence(route, False)
            self._host.log.info(f"{route} - the heartbeat is back")
