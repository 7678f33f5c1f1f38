"""One client connection: an asyncio protocol with a ClientSession.

This module knows nothing of NATS. Input is passed to the session as it arrives; the session writes output once per
turn. If a client reads slowly and the transport holds more than BUFFER_HIGH bytes, further output stays in the
session, where it counts towards the pending limit.

Source: https://docs.python.org/3/library/asyncio-protocol.html
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pyjs.core.link import Link, Peer, TlsPeer
from pyjs.core.session import ClientSession
from pyjs.server.addresses import plain_ip
from pyjs.server.failures import log_exception
from pyjs.server.trace import IN, OUT, ConnectionTrace, Tracer

if TYPE_CHECKING:
    from pyjs.base.log import Log
    from pyjs.base.timers import Timer
    from pyjs.cluster.route import Route
    from pyjs.core.link import TraceLimits
    from pyjs.server.driver import Driver
    from pyjs.server.listener import Listener
    from pyjs.server.open_connections import OpenConnections

# Equal to FLUSH_AT of core/outbuf.pxd: the unaccepted part of a write may wait in the transport.
BUFFER_HIGH = 256 * 1024  # bytes that the kernel did not accept; above it, output waits in the session
BUFFER_LOW = 64 * 1024
FULL_READ = 250_000  # after a read of this many bytes the kernel may have more; the buffer is slightly larger
LATE_MAX = 1 << 20  # bytes: if more input than this arrives after `hang_up`, reading ends
LINGER_S = 2.0  # seconds that a closed connection has to send the rest of its output


class Connection(asyncio.BufferedProtocol, Link):
    """The asyncio protocol of one connection, with the session that handles its input."""

    def __init__(
        self,
        driver: Driver,
        connections: OpenConnections[Connection],
        listener: Listener,
        behind_proxy: bool = False,  # `came_from` will be called
    ) -> None:
        self._driver = driver
        self._log: Log = driver.node.log  # a ConnectionTrace while this connection alone is traced
        self._trace_end: Timer | None = None  # ends that trace
        self._connections = connections  # the server's open connections; includes this one while it is open
        self._listener = listener
        self._behind_proxy = behind_proxy
        # for input and for output; created when tracing is on
        self._tracers: tuple[Tracer, Tracer] | None = None
        self._held = False  # reading is paused by the session
        self._gave_way = False  # reading is paused until the next turn has run (`_read_on`)
        self._linger: asyncio.TimerHandle | None = None
        self._is_over = False  # the client has closed its side
        self._parked = False  # reading is paused, whatever the session requests
        self._late: list[bytes] | None = None  # input after `hang_up`
        self._late_size = 0
        self.transport: asyncio.Transport
        self.session: ClientSession | Route  # from connection_made on

    # -- called by the transport -------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a session and request a turn; if the session cannot be opened, abort the connection."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop has its own classes
        self.transport.set_write_buffer_limits(high=BUFFER_HIGH, low=BUFFER_LOW)
        address = transport.get_extra_info("peername")
        if address is None:
            address = ("", 0)  # the socket is closed already: connection_lost follows
        elif not isinstance(address, tuple):  # a Unix socket: the client is another worker
            address = ("local", 0)
        peer = transport.get_extra_info("peer") or Peer(
            plain_ip(address[0]), address[1], disguised=self._behind_proxy
        )
        self._listener.accepted(transport)
        self._connections.add(self)
        try:
            self.session = self._open(peer)
        except Exception as error:
            log_exception(self._log, f"Cannot take a connection from {address[0]}", error)
            self.transport.abort()
        self._driver.wake()

    def _open(self, peer: Peer) -> ClientSession | Route:
        """Return the session of the connection."""
        return self._driver.node.open_session(peer, self)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer for a read; all connections share it, since `buffer_updated` follows immediately."""
        return self._driver.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the first `nbytes` bytes of the shared buffer to the session, or hold them after `hang_up`."""
        if self._log.trace_on:
            self._trace(0, bytes(self._driver.buffer[:nbytes]))
        if nbytes >= FULL_READ:
            self._give_way()
        if self._late is not None:
            self._late.append(bytes(self._driver.buffer[:nbytes]))
            self._late_size += nbytes
            if self._late_size > LATE_MAX:
                self.transport.pause_reading()
            return
        try:
            self.session.receive_buffer(self._driver.buffer, nbytes)
        except Exception as error:
            self._break(error)
        self._driver.wake_for_input()

    def data_received(self, data: bytes) -> None:
        """Pass input to the session; this is called by transports that decode input, such as TLS."""
        if self._log.trace_on:
            self._trace(0, data)
        if len(data) >= FULL_READ:
            self._give_way()
        try:
            self.session.receive_data(data)
        except Exception as error:
            self._break(error)
        self._driver.wake_for_input()

    def _break(self, error: Exception) -> None:
        """Close the connection after an unexpected exception in its session."""
        log_exception(self._log, f"{self.session} - Cannot go on with this connection", error)
        self.session.close("Internal Error", "Internal Server Error")

    def _give_way(self) -> None:
        """Pause reading until the next turn, since libuv may read a connection up to 32 times in one iteration."""
        self._gave_way = True
        self.transport.pause_reading()
        self._driver.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._gave_way = False
        if not self._held:
            self.resume_reading()

    # -- called when this server leaves its cluster ------------------------------------------------------------
    def park(self, *, on: bool) -> None:
        """Pause reading if `on` is true; otherwise resume it, unless the session has paused it too.

        While `on` is true, the session cannot resume reading.
        """
        self._parked = on
        if on and not self.transport.is_closing():
            self.transport.pause_reading()
        elif not self._held:
            self.resume_reading()

    def hang_up(self) -> None:
        """Close the output side, end the subscriptions, and hold further input for `hear_out`.

        The client then connects to another server. If the client reads slowly or has not logged in, or if the
        transport cannot close only its output side, the session is closed instead.
        """
        assert isinstance(self.session, ClientSession)
        is_slow = self.session.pending_size() > 0 or self._held
        if is_slow or self.is_stranger or not self.transport.can_write_eof():
            self.session.close("Server Shutdown")
            return
        self._late = []
        self.session.drop_subscriptions()
        self.session.lose_link()
        self.transport.write_eof()
        self.park(on=False)

    @property
    def has_hung_up(self) -> bool:
        """Whether `hang_up` has closed the output side, and `hear_out` was not called since."""
        return self._late is not None

    @property
    def is_over(self) -> bool:
        """Whether the client has closed its side, or the connection is lost."""
        return self._is_over

    @property
    def has_more(self) -> bool:
        """Whether input for `hear_out` is held or may still arrive; False unless `has_hung_up`."""
        return self._late is not None and (bool(self._late) or not self._is_over)

    def hear_out(self) -> None:
        """Pass the input held since `hang_up` to the session, and close the connection."""
        late, self._late = self._late or [], None
        if hasattr(self, "session"):
            for data in late:
                self.session.receive_data(data)
            self._driver.endings.add(self.session.end_input)
            self._driver.wake_for_input()
        self.transport.close()

    def eof_received(self) -> bool:
        """After the next turn, end the input of the session; if `hang_up` was called, leave this to `hear_out`.

        Return True, so that asyncio keeps the transport open for the last output.
        """
        self._is_over = True
        if self._late is not None:
            return True
        self._driver.endings.add(self.session.end_input)
        return True

    def input_failed(self, cause: str) -> None:
        """Close the connection, because the transport cannot read the input."""
        self._log.error(f"{self.session} - read error: {cause}")
        self.session.close("Read Error")
        self._driver.wake()

    def pause_writing(self) -> None:
        """Hold further output in the session, because the client reads slowly."""
        self.session.output_paused()

    def resume_writing(self) -> None:
        """Allow the session to write again."""
        self.session.output_resumed()
        self._driver.wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Detach the session from the link and end it after the next turn.

        After `hang_up`, the session stays until `hear_out`.
        """
        self._connections.discard(self)
        self.stop_trace()
        if self._linger is not None:
            self._linger.cancel()
        self._is_over = True
        if isinstance(error, (ConnectionError, TimeoutError)):
            self.end_reason = "Read Error"
        if self._late is not None:
            return  # `hear_out` follows
        if hasattr(self, "session"):  # connection_made succeeded
            session = self.session
            del self.session  # break the cycle: the session refers to this connection
            self._tracers = None
            session.lose_link()
            self._driver.endings.add(session.end_input)

    @property
    def is_stranger(self) -> bool:
        """Whether the client must log in and has not done so."""
        return hasattr(self, "session") and self.session.awaiting_auth

    # -- called by a PROXY header ------------------------------------------------------------------------------
    def came_from(self, ip: str, port: int) -> None:
        """Store the client's address from the PROXY header; if `ip` is "", keep the address of the transport."""
        if hasattr(self, "session"):
            own = self.session.peer
            self.session.peer = Peer(ip or own.ip, port if ip else own.port, own.kind)

    def header_failed(self, cause: str) -> None:
        """Log `cause` and close the connection, because the PROXY header cannot be read."""
        if hasattr(self, "session") and not self.session.closed_reason:
            self._log.warn(cause)
            self.session.close("Protocol Violation")
            self._driver.wake()

    # -- called by an encrypting transport -------------------------------------------------------------------
    def encrypted(self, peer: TlsPeer) -> None:
        """Keep `peer`, which has the TLS parameters, and mark the connection as ready after the TLS handshake."""
        self.tls = peer
        self.ready = True
        self.note("TLS handshake complete")
        self.note(f"TLS version {peer.version}, cipher suite {peer.cipher_suite}")

    def handshake_failed(self, cause: str, *, expected: bool) -> None:
        """Log a failed TLS handshake, and close the connection.

        With `expected`, the log level is debug, since any port scan can cause the failure; otherwise it is error.
        """
        if hasattr(self, "session") and not self.session.closed_reason:
            log = self._log.debug if expected else self._log.error
            log(f"{self.session} - TLS handshake error: {cause}")
            self.session.close("TLS Handshake Failure")
            self._driver.wake()

    def throttled(self) -> None:
        """Close the connection, because too many connections were opened in this second."""
        self.session.close(
            "Maximum Connections Exceeded", "Connection throttling is active. Please try again later."
        )

    def note(self, text: str) -> None:
        """Write a debug log line about this connection."""
        if self._log.debug_on:
            self._log.debug(f"{self.session} - {text}")

    # -- called by the session ---------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Send `data` now, or when the kernel accepts it."""
        if self._log.trace_on and self._tracers is not None:
            self._trace(1, data)
        self.transport.write(data)

    def write_all(self, pieces: list[bytes]) -> None:
        """Send `pieces` in order, each as `write` would."""
        if self._log.trace_on and self._tracers is not None:
            self._trace(1, b"".join(pieces))
        self.transport.writelines(pieces)

    def close(self) -> None:
        """Close when all written output has been sent, at the latest after LINGER_S seconds."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._linger = self._driver.loop.call_later(LINGER_S, self.transport.abort)

    def abort(self) -> None:
        """Close now; unsent output is dropped."""
        self.transport.abort()

    def pending_size(self) -> int:
        """Return the number of bytes of unsent output in the transport."""
        return self.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Pause reading."""
        self._held = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless `park` or a large read has paused it."""
        self._held = False
        if not self._gave_way and not self._parked and not self.transport.is_closing():
            self.transport.resume_reading()

    # -- tracing -----------------------------------------------------------------------------------------------
    @property
    def is_traced(self) -> bool:
        """Whether this connection alone is traced."""
        return self._trace_end is not None

    def start_trace(self, limits: TraceLimits) -> bool:
        """Start a trace of this connection that ends at one of `limits`; a running trace is replaced.

        Return False if the connection is lost or does not belong to a client.
        """
        self.stop_trace()
        if not hasattr(self, "session") or not isinstance(self.session, ClientSession):
            return False  # the connection is lost, and its session about to end
        self._log = trace = ConnectionTrace(self.session, self._log, limits, self.stop_trace)
        self._tracers = trace.tracers
        self._trace_end = self._driver.after(limits.seconds, self.stop_trace)
        return True

    def stop_trace(self) -> bool:
        """End the trace of this connection, and return whether there was one."""
        trace = self._log
        if not isinstance(trace, ConnectionTrace) or self._trace_end is None:
            return False
        self._trace_end.cancel()
        self._trace_end = self._tracers = None
        self._log = self._driver.node.log
        trace.end()
        return True

    def _trace(self, direction: int, data: bytes) -> None:
        if isinstance(self.session, ClientSession):
            self._trace_client(self.session, direction, data)

    def _trace_client(self, session: ClientSession, direction: int, data: bytes) -> None:
        node = self._driver.node
        of_all = not self.is_traced
        if of_all and session.account is node.system_account and not node.options.log.trace_verbose:
            return
        if self._tracers is None:
            size_max = node.options.log.max_traced_msg_len
            self._tracers = (
                Tracer(session, node.log, IN, size_max),
                Tracer(session, node.log, OUT, size_max),
            )
        self._tracers[direction].trace(data)
