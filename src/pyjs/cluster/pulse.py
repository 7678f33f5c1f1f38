"""Heartbeats between servers, by which silent servers are detected.

Heartbeats have a separate connection, so that they do not wait behind messages. A server that receives a heartbeat
sends its own at once, unless it has just sent one. All servers of a cluster therefore wake up at the same time, and
idle servers use less processor time.

A server is active while it exchanges messages with other servers, or while replicated groups have work, and for
ACTIVE_NS after that. While a server is active, it and all others send a heartbeat every BEAT_NS, so that it detects
silence after SILENT_NS. While no server is active, each sends a heartbeat only every IDLE_BEAT_NS. A heartbeat
states the interval until the next one of its sender, and the interval that the sender wants from the others. A
server that becomes active sends a heartbeat at once, and each other server must answer within SILENT_NS. So a
server that hangs is detected SILENT_NS after the first message at the latest, even if the cluster was idle.

A server that is silent gets no message of a queue group that another server can accept. After DEAD_NS its route is
closed, which removes its interest. If this server itself was stopped for a while, this time does not count as
silence of the others.

The body of a heartbeat has eight zero bytes and two numbers in ms (two bytes each, little-endian): the interval of
the sender, and the interval that it wants. Until the first such body, both count as BEAT_NS.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.clock import NS_PER_MS

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.route import Route

BEAT_NS = 100 * NS_PER_MS
IDLE_BEAT_NS = 300 * NS_PER_MS
ACTIVE_NS = 2000 * NS_PER_MS
SLACK_NS = 50 * NS_PER_MS
SILENT_NS = 3 * BEAT_NS + SLACK_NS
DEAD_NS = 2000 * NS_PER_MS
MEASURED_BEAT = (
    30  # number of heartbeats of which one is answered: an answer takes as much work as a heartbeat
)
_BODY = Struct("<8xHH")


class Pace(NamedTuple):
    """The contents of a heartbeat."""

    interval_ns: int = BEAT_NS  # time between two heartbeats of its sender
    wanted_ns: int = BEAT_NS  # time between two heartbeats of the receiver

    def encode(self) -> bytes:
        """Return the body of the heartbeat."""
        return _BODY.pack(self.interval_ns // NS_PER_MS, self.wanted_ns // NS_PER_MS)


@lru_cache(maxsize=16)  # most heartbeats have the same contents
def decode(body: bytes) -> Pace:
    """Return the contents of a body of the right size; an interval outside the known range becomes its limit."""
    return Pace(*(min(max(each * NS_PER_MS, BEAT_NS), IDLE_BEAT_NS) for each in _BODY.unpack(body)))


EARLIER = Pace()  # of a server before its first heartbeat that states it


class Pulse:
    """The heartbeats between one server and all others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._host = cluster.host
        self.connections: dict[str, Route] = {}  # by the id of the other server
        self._paces: dict[str, Pace] = {}  # by the same id: the last heartbeat received
        self._timer: Timer | None = None
        self._beaten_ns = 0  # time of this server's last heartbeat
        self._beats = 0
        self._interval_ns = BEAT_NS  # the interval in the last heartbeat
        self._frames = 0  # number of frames of all routes, when `_is_busy` was last called
        self._busy_ns = 0  # time at which this server was last found busy
        self._active_ns = 0  # time at which this server became active
        self.is_idle = False  # this server is not active; the node then calls `look` after each turn

    def opened(self, connection: Route) -> None:
        """Send and expect heartbeats on a connection."""
        assert connection.info is not None
        server_id = connection.info.server_id
        self.connections[server_id] = connection
        self._paces[server_id] = EARLIER
        self._become_active()

    def closed(self, connection: Route) -> None:
        """Forget a connection."""
        info = connection.info
        if info is not None and self.connections.get(info.server_id) is connection:
            del self.connections[info.server_id], self._paces[info.server_id]

    def stop(self) -> None:
        """Send no more heartbeats."""
        self.is_idle = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def came(self, connection: Route, body: bytes) -> None:
        """Handle a heartbeat: send this server's own heartbeats at once, unless they were sent a moment ago."""
        info = connection.info
        if info is None or self.connections.get(info.server_id) is not connection or self._timer is None:
            return
        if len(body) == _BODY.size:
            self._paces[info.server_id] = decode(body)
        now_ns = self._host.turn_state.now
        interval_ns = self._next_pace().interval_ns
        if interval_ns < self._interval_ns or now_ns - self._beaten_ns >= interval_ns // 2:
            self._beat(is_answer=True)

    def look(self) -> None:
        """Become active if this server has exchanged messages with others, or replicated groups have work."""
        if self._is_busy():
            self._become_active()

    def _become_active(self) -> None:
        """Send heartbeats at once if this server was idle, and expect the others to answer in time."""
        self._busy_ns = now_ns = self._host.clock.now_ns()
        if self._timer is None:
            self._beaten_ns, self.is_idle = now_ns, False
            self._arm(BEAT_NS)
        elif self.is_idle:
            self._beat()

    def _is_busy(self) -> bool:
        """Return whether routes had frames since the last call, or replicated groups have work."""
        frames = sum([route.frame_count for route in self._cluster.routes.values()])
        is_new, self._frames = frames != self._frames, frames
        replication = self._cluster.replication
        return is_new or (replication is not None and replication.is_busy())

    def _next_pace(self) -> Pace:
        """Return the contents of this server's next heartbeat."""
        wanted_ns = IDLE_BEAT_NS if self.is_idle else BEAT_NS
        return Pace(min([wanted_ns, *[pace.wanted_ns for pace in self._paces.values()]]), wanted_ns)

    def _silent_at(self, server_id: str, last_ns: int) -> int:
        """Return the time at which a server counts as silent; `last_ns` is the time of its last heartbeat."""
        interval_ns = self._paces[server_id].interval_ns
        silent_at_ns = last_ns + 3 * interval_ns + SLACK_NS
        if interval_ns > BEAT_NS and not self.is_idle:
            # this server has asked for heartbeats every BEAT_NS, which the other may not have read
            return min(silent_at_ns, max(last_ns, self._active_ns) + SILENT_NS)
        return silent_at_ns

    def _arm(self, wait_ns: int) -> None:
        """Set the timer to the next heartbeat, or to the time when a server counts as silent if that is earlier."""
        due_ns = self._beaten_ns + wait_ns
        for server_id, connection in self.connections.items():
            route = self._cluster.routes.get(server_id)
            if route is not None and not route.silent:
                due_ns = min(due_ns, self._silent_at(server_id, connection.last_activity_ns))
        self._timer = self._host.timers.at(due_ns, self._beat)

    def _beat(self, *, is_answer: bool = False) -> None:
        """Send heartbeats, check for silent servers, and set the timer for the next heartbeat."""
        if self._timer is not None:
            self._timer.cancel()  # it may be the one that is calling
            self._timer = None
        now_ns = self._host.clock.now_ns()
        # During this time, this server was stopped and read no heartbeats.
        stopped_ns = max(0, now_ns - self._beaten_ns - 2 * self._interval_ns)
        self._beaten_ns = now_ns
        self._beats += 1
        if self._is_busy():
            self._busy_ns = now_ns
        was_idle, self.is_idle = self.is_idle, now_ns - self._busy_ns >= ACTIVE_NS
        if was_idle and not self.is_idle:
            self._active_ns = now_ns
        self._host.turn_state.reports |= self.is_idle
        pace = self._next_pace()
        self._interval_ns, body = pace.interval_ns, pace.encode()
        for server_id, connection in list(self.connections.items()):
            connection.send_beat(body)
            if self._beats % MEASURED_BEAT == 0:
                # the answer to this one gives the round-trip time
                connection.send_ping(now_ns.to_bytes(8, "little"))
            if stopped_ns:
                connection.heard_at(now_ns)
            if self.connections.get(server_id) is connection:  # otherwise it was closed in the meantime
                self._judge(server_id, connection.last_activity_ns, now_ns)
        if self.connections:
            # After a heartbeat of another server, its next one should come earlier than this server's own.
            self._arm(self._interval_ns * 3 // 2 if is_answer else self._interval_ns)

    def _judge(self, server_id: str, last_ns: int, now_ns: int) -> None:
        """Mark the route to a server as silent or as heard, or close it; `last_ns` is the time of its heartbeat."""
        route = self._cluster.routes.get(server_id)
        quiet_ns, is_silent = now_ns - last_ns, now_ns >= self._silent_at(server_id, last_ns)
        if route is None:
            self.connections[server_id].close("Stale Connection")
        elif quiet_ns >= DEAD_NS:
            self._host.log.warn(f"{route} - no heartbeat for {quiet_ns / 1e9:.1f} s: the route is closed")
            route.close("Stale Connection")
        elif is_silent and not route.silent:
            self._cluster.note_silence(route, True)
            self._host.log.warn(f"{route} - no heartbeat for {quiet_ns // NS_PER_MS} ms")
        elif not is_silent and route.silent:
            self._cluster.note_silence(route, False)
            self._host.log.info(f"{route} - the heartbeat is back")
