"""One client connection: carries bytes between a transport of the event loop and a ClientSession.

Decides nothing of the protocol. Input goes to the session as it comes; output comes from the session once per
turn. When the peer reads slowly, the transport's buffer passes BUFFER_HIGH and the session is told to keep its
output to itself, where the pending limit counts it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pyjs.core.link import Link, Peer
from pyjs.server.addresses import plain_ip

if TYPE_CHECKING:
    from pyjs.core.session import ClientSession
    from pyjs.server.driver import Driver
    from pyjs.server.trace import Tracer

BUFFER_HIGH = 1024 * 1024  # bytes in the transport above which the session keeps its output
BUFFER_LOW = 256 * 1024
LINGER_S = 2.0  # a closed connection has this long to take the rest of its output


class Connection(asyncio.Protocol, Link):
    """A transport and its session."""

    def __init__(self, driver: Driver, connections: set[Connection]) -> None:
        self._driver = driver
        self._connections = connections  # the server's open connections; this one is in it while open
        self._tracers: tuple[Tracer, Tracer] | None = None  # in and out; made when tracing is on
        self._transport: asyncio.Transport
        self.session: ClientSession

    # -- called by the event loop ------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a session; its INFO leaves in this iteration's turn."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._transport.set_write_buffer_limits(BUFFER_HIGH, BUFFER_LOW)
        ip, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._connections.add(self)
        self.session = self._driver.node.open_session(Peer(plain_ip(ip), port), self)
        self._driver.wake()

    def data_received(self, data: bytes) -> None:
        """Give the session its input; what follows from it happens in the turn."""
        if self._driver.node.log.trace_on:
            self._trace(0, data)
        self.session.receive_data(data)
        self._driver.wake()

    def pause_writing(self) -> None:
        """Tell the session that the peer does not keep up."""
        self.session.output_paused()

    def resume_writing(self) -> None:
        """Tell the session that there is room again."""
        self.session.output_resumed()
        self._driver.wake()

    def eof_received(self) -> bool:
        """Close the session behind the turn that answers what was received before."""
        self._driver.wake()
        self._driver.loop.call_soon(self.session.close, "Client Closed")
        return True  # the transport stays open for that answer

    def connection_lost(self, error: Exception | None) -> None:
        """Close the session; nothing can be sent any more."""
        self._connections.discard(self)
        self.session.connection_lost()
        self._driver.wake()

    # -- called by the session (Link) --------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Hand `data` to the transport."""
        if self._driver.node.log.trace_on and self._tracers is not None:
            self._trace(1, data)
        self._transport.write(data)

    def close(self) -> None:
        """Close when everything written is sent, or after LINGER_S."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._driver.loop.call_later(LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def pending_size(self) -> int:
        """Return how many bytes the transport holds."""
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Take no more input."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take input again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

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
