"""Heartbeats between servers, by which silent servers are detected.

Heartbeats have a separate connection, so that they do not wait behind messages. Each side sends one every
BEAT_NS. A server that is silent for SILENT_NS gets no message of a queue group that another server can
accept. After DEAD_NS its route is closed, which removes its interest. If this server itself was stopped for a
while, that time is not counted against the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.route import Route

BEAT_NS = 50 * NS_PER_MS
SILENT_NS = 300 * NS_PER_MS
DEAD_NS = 2000 * NS_PER_MS
MEASURED_BEAT = 20  # only each twentieth beat is answered: answers cost as much as the beats


class Pulse:
    """The heartbeats between one server and all others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._host = cluster.host
        self.connections: dict[str, Route] = {}  # by the id of the other server
        self._timer: Timer | None = None
        self._beaten_ns = 0  # time of the last beat
        self._beats = 0

    def opened(self, connection: Route) -> None:
        """Send and expect heartbeats on a connection."""
        assert connection.info is not None
        self.connections[connection.info.server_id] = connection
        if self._timer is None:
            self._beaten_ns = self._host.clock.now_ns()
            self._arm()

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

    def _arm(self) -> None:
        self._timer = self._host.timers.at(self._host.clock.now_ns() + BEAT_NS, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now_ns = self._host.clock.now_ns()
        # During this time, heartbeats from the others were not read.
        stopped_ns = max(0, now_ns - self._beaten_ns - 2 * BEAT_NS)
        self._beaten_ns = now_ns
        self._beats += 1
        text = now_ns.to_bytes(8, "little")
        for server_id, connection in list(self.connections.items()):
            if self._beats % MEASURED_BEAT:
                connection.send_beat()
            else:
                connection.send_ping(text)  # its answer has the round-trip time
            if stopped_ns:
                connection.heard_at(now_ns)
            self._judge(server_id, now_ns - connection.last_activity_ns)
        if self.connections:
            self._arm()

    def _judge(self, server_id: str, quiet_ns: int) -> None:
        """Mark the route to a silent server, or close it."""
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
