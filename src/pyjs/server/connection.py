"""One client connection: a socket of the loop and a ClientSession.

Decides nothing of the protocol. Input goes to the session as it comes; output comes from the session once per
turn. When the peer reads slowly, more than BUFFER_HIGH waits for the kernel and the session is told to keep its
output to itself, where the pending limit counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.link import Link, Peer
from pyjs.server.addresses import plain_ip
from pyjs.server.transport import Transport

if TYPE_CHECKING:
    import socket

    from pyjs.server.driver import Driver
    from pyjs.server.trace import Tracer

BUFFER_HIGH = 1024 * 1024  # bytes waiting for the kernel above which the session keeps its output
BUFFER_LOW = 256 * 1024
LINGER_S = 2.0  # a closed connection has this long to take the rest of its output


class Connection(Transport, Link):
    """A socket and its session; open until `lost`."""

    def __init__(
        self, driver: Driver, connections: set[Connection], sock: socket.socket, address: tuple[str, int]
    ) -> None:
        super().__init__(driver.loop, sock, BUFFER_HIGH, BUFFER_LOW)
        self._driver = driver
        self._connections = connections  # the server's open connections; this one is in it while open
        self._tracers: tuple[Tracer, Tracer] | None = None  # in and out; made when tracing is on
        connections.add(self)
        self.session = driver.node.open_session(Peer(plain_ip(address[0]), address[1]), self)
        self.start()
        driver.wake()

    # -- called by the transport -------------------------------------------------------------------------------
    def received(self, data: bytes) -> None:
        """Give the session its input; what follows from it happens in the turn."""
        if self._driver.node.log.trace_on:
            self._trace(0, data)
        self.session.receive_data(data)
        self._driver.wake()

    def filled(self) -> None:
        """Tell the session that the peer does not keep up."""
        self.session.output_paused()

    def drained(self) -> None:
        """Tell the session that there is room again."""
        self.session.output_resumed()
        self._driver.wake()

    def ended(self) -> None:
        """Close the session behind the turn that answers what was received before."""
        self._driver.wake()
        self._driver.loop.call_soon(self.session.close, "Client Closed")

    def lost(self) -> None:
        """Close the session; nothing can be sent any more."""
        self._connections.discard(self)
        self.session.connection_lost()
        self._driver.wake()

    # -- called by the session ---------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Send `data`, now or when the kernel takes it."""
        if self._driver.node.log.trace_on and self._tracers is not None:
            self._trace(1, data)
        super().write(data)

    def write_all(self, pieces: list[bytes]) -> None:
        """Send each of `pieces`, now or when the kernel takes it."""
        if self._driver.node.log.trace_on and self._tracers is not None:
            self._trace(1, b"".join(pieces))
        super().write_all(pieces)

    def close(self) -> None:
        """Close when everything written is sent, or after LINGER_S."""
        super().close()
        if self.pending_size():
            self._driver.loop.call_later(LINGER_S, self.abort)

    def _trace(self, direction: int, data: bytes) -> None:
        node = self._driver.node
        if self.session.account is node.system_account and not node.options.trace_verbose:
            return
        if self._tracers is None:
            from pyjs.server.trace import IN, OUT, Tracer

            size_max = node.options.max_traced_msg_len
            self._tracers = (
                Tracer(self.session, node.log, IN, size_max),
                Tracer(self.session, node.log, OUT, size_max),
            )
        self._tracers[direction].trace(data)
