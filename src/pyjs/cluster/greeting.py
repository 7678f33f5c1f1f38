"""The greeting of one route: the lines that precede the first frame, and the time limit for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.cluster.hello import BadHello, connect_line, info_line, read_hello, shown

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.cluster.hello import PeerInfo
    from pyjs.cluster.route import Route


class Greeting:
    """The exchange of the first lines of one route, until the route is open."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._cluster = route.cluster
        self._info: PeerInfo | None = None  # from the side that listens; None: not received yet
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Start the time limit, and send INFO if the other side opened the connection."""
        route, cluster = self._route, self._cluster
        host = cluster.host
        deadline_ns = host.clock.now_ns() + cluster.options.authorization.timeout_ns
        self._timer = host.timers.at(deadline_ns, self._timeout, route)
        if route.dial is None:
            route.send_line(info_line(cluster.me(route)))

    def cancel(self) -> None:
        """Cancel the time limit."""
        if self._timer is not None:
            self._timer.cancel()

    def take(self, line: bytes) -> None:
        """Handle one line from the other side.

        Raises:
            BadHello: the line is invalid or not allowed here.
        """
        if line.startswith(b"-ERR"):
            self._cluster.refused_by(self._route, shown(line[4:].strip().strip(b"'")))
        elif self._route.dial is None:
            self._admit(read_hello(line, "CONNECT"))
        elif self._info is None:
            self._answer(read_hello(line, "INFO"))
        elif line == b"+OK":
            self._open(self._info)
        else:
            raise BadHello(f"+OK or -ERR expected, not {shown(line)}")

    def _admit(self, info: PeerInfo) -> None:
        refusal = self._cluster.refusal(self._route, info)
        if refusal:
            self._route.close(refusal.reason, refusal.text)
            return
        self._route.send_line(b"+OK\r\n")
        self._open(info)

    def _answer(self, info: PeerInfo) -> None:
        """Send CONNECT to the listening side, or close the route if that side is refused."""
        refusal = self._cluster.refusal(self._route, info)
        if refusal:
            self._route.close(refusal.reason, refusal.text)
            return
        self._info = info
        self._cluster.connecting(self._route, info)
        self._route.send_line(connect_line(self._cluster.me(self._route)))

    def _open(self, info: PeerInfo) -> None:
        self.cancel()
        self._cluster.route_opened(self._route, info)

    def _timeout(self) -> None:
        cause = "Authentication Timeout"
        if self._route.dial is not None and self._info is None:
            cause = "the other server sent no INFO in time; if it has cluster.tls, this one needs it too"
        self._cluster.host.log.error(f"{self._route} - {cause}")
        self._route.close("Authentication Timeout", "Authentication Timeout")
