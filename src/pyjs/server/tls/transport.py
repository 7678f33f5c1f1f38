"""The transport of a connection to a TLS port, between the loop's transport and the connection.

It is used instead of asyncio's own TLS, because a NATS client gets INFO before the handshake, and the client's first
bytes may decide whether TLS is used. It takes as much time per byte as asyncio's (uvloop wraps the same OpenSSL
object). The handshake runs in a thread, one step of one connection at a time, in order of arrival; a short last
step runs on the loop.

    WAITING -> SHAKING -> OPEN -> CLOSED      WAITING -> CLOSED (no TLS: the Connection gets the loop's transport)

Source: behaviour of nats-server, in tests/conformance/test_tls.py.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from typing import TYPE_CHECKING, Protocol, cast

from pyjs.server.threads.io_thread import result_of
from pyjs.server.tls.channel import TlsAbused, TlsChannel, TlsEnded

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyjs.core.link import TlsPeer
    from pyjs.server.tls.context import TlsSettings
    from pyjs.server.tls.port import Cancellable, TlsPort

HANDSHAKE_RECORD = 0x16  # first byte of a TLS handshake
NO_TLS = "first record does not look like a TLS handshake"
NOT_ENCRYPTED = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Phase(enum.Enum):
    """The state of the encryption."""

    WAITING = enum.auto()  # until the first bytes of the client arrive
    SHAKING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class EncryptedConnection(Protocol):
    """A protocol that uses a TlsTransport: a Connection, a WebSocketTransport or an HttpsConnection."""

    ready: bool  # set after the handshake
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the transport; before the handshake, the only output may be a greeting."""

    def data_received(self, data: bytes) -> None:
        """Handle decrypted bytes."""

    def eof_received(self) -> bool:
        """Handle the end of the input; return True if output may follow."""

    def pause_writing(self) -> None:
        """Pause output."""

    def resume_writing(self) -> None:
        """Resume output."""

    def connection_lost(self, error: Exception | None) -> None:
        """Release all resources, since the transport is closed."""

    def encrypted(self, peer: TlsPeer) -> None:
        """Store the parameters of a completed handshake."""

    def handshake_failed(self, cause: str, *, expected: bool) -> None:
        """Close after a failed handshake; `expected` marks failures that any client can cause."""

    def throttled(self) -> None:
        """Close the connection, because too many connections were opened in this second."""

    def note(self, text: str) -> None:
        """Log an event of the handshake."""


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The TLS layer of one connection: a protocol for the loop's transport, and a transport for the Connection."""

    def __init__(self, port: TlsPort, settings: TlsSettings, connection: EncryptedConnection) -> None:
        asyncio.Transport.__init__(self)
        self._port = port
        self._settings = settings
        self._connection = connection
        self._phase = Phase.WAITING
        self._greets = False  # INFO is to be sent before the handshake
        self._greeted = False  # INFO was sent before the handshake
        self._held: list[bytes] = []  # output that waits for the handshake
        self._read: list[bytes] = []  # input received before INFO was sent, or during a step
        self._stepping = False
        self._ended = False  # the client has closed its side
        self._timers: list[Cancellable] = []
        self._channel: TlsChannel
        self._below: asyncio.Transport

    # -- called by the transport below -------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the Connection, apply the rate limit, and start the time limit of the handshake.

        If clients without TLS are allowed, the time limit starts only when the handshake begins.
        """
        self._below = cast("asyncio.Transport", transport)
        self._channel = TlsChannel(self._settings.context)
        options = self._settings.options
        self._greets = options.handshake_first_ns < 0
        self._connection.ready = False
        if options.handshake_first_ns > 0:
            self._after(options.handshake_first_ns, self._greet)
        if not self._settings.options.allow_plain:
            self._after(options.timeout_ns, self._timed_out)
        self._connection.connection_made(self)
        if not self._port.admit(options.connection_rate_limit):
            self._connection.throttled()

    def data_received(self, data: bytes) -> None:
        """Handle input; before the end of the handshake, it may be plain text or TLS."""
        if self._phase is Phase.WAITING and self._greets and not self._greeted:
            self._read.append(data)  # INFO is sent first, even if the client does not wait for it
        elif self._phase is Phase.WAITING:
            self._begin(data)
        elif self._phase is Phase.OPEN:
            self._channel.feed(data)
            self._deliver()
        elif self._phase is Phase.SHAKING:
            self._read.append(data)
            self._step()

    def eof_received(self) -> bool:
        """Pass the end of the input to the Connection; if a handshake is incomplete, close."""
        self._ended = True
        if self._phase is Phase.WAITING and self._settings.options.allow_plain:
            self._go_plain()
            return self._connection.eof_received()
        if self._phase is Phase.OPEN:
            return self._connection.eof_received()
        if not self._stepping:
            self._fail("EOF")
        return False

    def pause_writing(self) -> None:
        """Pause the Connection, because the socket's buffer is full."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Resume the Connection, because the buffer has drained."""
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Release all resources; the result of a running step is ignored."""
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.connection_lost(error)
        del self._connection  # break the cycle, which would hold 50 KB of OpenSSL
        self._held.clear()
        self._read.clear()
        if not self._stepping:
            del self._channel

    # -- before the handshake ----------------------------------------------------------------------------------
    def _begin(self, data: bytes) -> None:
        if data[0] == HANDSHAKE_RECORD:
            self._phase = Phase.SHAKING
            if self._settings.options.allow_plain:
                self._after(self._settings.options.timeout_ns, self._timed_out)
            self._connection.note("Starting TLS client connection handshake")
            self._read.append(data)
            self._step()
        elif self._settings.options.allow_plain:
            self._go_plain()
            self._connection.data_received(data)
        else:
            self._fail(NO_TLS)

    def _begin_late(self) -> None:
        """Handle the input received before INFO was sent."""
        if self._phase is Phase.WAITING and self._read:
            data = b"".join(self._read)
            self._read.clear()
            self._begin(data)

    def _go_plain(self) -> None:
        """Send INFO, and connect the Connection directly to the loop's transport."""
        self._greet()
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.transport = self._below
        self._connection.ready = True
        self._below.set_protocol(cast("asyncio.Protocol", self._connection))

    def _greet(self) -> None:
        """Send INFO unencrypted, unless the handshake has begun."""
        self._greets = self._greeted = True
        if self._phase is Phase.WAITING and self._held:
            held, self._held = self._held, []
            self._below.write(b"".join(held))

    # -- the handshake -----------------------------------------------------------------------------------------
    def _step(self) -> None:
        """Continue the handshake with the received input, in the thread or, if the rest is short, on the loop."""
        if self._stepping:
            return
        self._channel.feed(b"".join(self._read))
        self._read.clear()
        if self._channel.is_short:
            self._stepped(result_of(self._channel.continue_handshake))
            return
        self._stepping = True
        self._below.pause_reading()
        self._port.thread.submit(self._shake, self._stepped)

    def _shake(self) -> None:
        """Continue the handshake, in the thread.

        This may run long after the client has left or timed out.
        """
        if self._phase is Phase.SHAKING:
            self._channel.continue_handshake()

    def _stepped(self, failure: Exception | None) -> None:
        self._stepping = False
        if not hasattr(self, "_connection"):
            del self._channel
            return
        if self._phase is not Phase.SHAKING:
            return
        if failure is not None or not self._channel.has_tickets_only:
            output = self._channel.take_output()
            if output:
                self._below.write(output)
        if failure is not None:
            self._fail(failure_text(failure))
        elif self._channel.handshake_done:
            self._open()
        elif self._ended:
            self._fail("EOF")
        elif self._read:
            self._step()
        else:
            self._below.resume_reading()

    def _open(self) -> None:
        """Open the encrypted stream for the Connection, unless the client's certificate is refused."""
        peer = self._channel.peer(first=not self._greets)
        problem = self._settings.objection(peer)
        if problem:
            self._fail(problem)
            return
        self._cancel_timers()
        self._phase = Phase.OPEN
        self._connection.encrypted(peer)
        if self._held:
            held, self._held = self._held, []
            self.write(b"".join(held))
        self._below.resume_reading()
        self._deliver()
        if self._ended and self._phase is Phase.OPEN:
            self._connection.eof_received()

    def _fail(self, cause: str) -> None:
        """Report a failed handshake to the Connection, which then closes."""
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.handshake_failed(cause, expected=cause in (NO_TLS, "timeout"))

    def _timed_out(self) -> None:
        if self._phase in (Phase.WAITING, Phase.SHAKING):
            self._fail("timeout")

    def _after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self._timers.append(self._port.after(delay_ns / 1e9, call))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- the open stream ---------------------------------------------------------------------------------------
    def _deliver(self) -> None:
        """Pass the bytes of complete records to the Connection; abort after a TLS error."""
        try:
            while data := self._channel.unseal():
                self._connection.data_received(data)
        except TlsEnded:
            self._connection.eof_received()
        except (ssl.SSLError, TlsAbused) as error:
            self._connection.note(f"TLS error: {failure_text(error)}")
            self._below.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send `data` encrypted, or queue it until the end of the handshake.

        Before the handshake, INFO is sent unencrypted, unless the options require that the handshake comes first.
        """
        if self._phase is Phase.OPEN:
            self._below.write(self._channel.seal(bytes(data)))
        elif self._phase is Phase.WAITING and self._greets:
            self._below.write(data)
            if not self._greeted:
                self._greeted = True
                self._port.loop.call_soon(self._begin_late)
        elif self._phase is not Phase.CLOSED:
            self._held.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        """Send `pieces` in order."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Close the connection after all written bytes have been sent."""
        if self._phase is Phase.OPEN:
            self._below.write(self._channel.end())
        self._phase = Phase.CLOSED
        self._below.close()

    def close_plainly(self, text: bytes) -> None:
        """Send `text` unencrypted, then close; for clients that do not use TLS."""
        self._phase = Phase.CLOSED
        self._below.write(text)
        self._below.close()

    def abort(self) -> None:
        """Close the connection now; unsent output is dropped."""
        self._phase = Phase.CLOSED
        self._below.abort()

    def can_write_eof(self) -> bool:
        """Return False: TLS cannot close one direction only."""
        return False

    # -- forwarded ---------------------------------------------------------------------------------------------
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the information of the loop's transport."""
        return self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the transport is closing."""
        return self._below.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the loop's transport."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return self._below.get_write_buffer_size() + sum(map(len, self._held))

    def pause_reading(self) -> None:
        """Pause reading; do nothing unless the handshake is complete and the transport is open."""
        if self._phase is Phase.OPEN:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading; do nothing unless the handshake is complete and the transport is open."""
        if self._phase is Phase.OPEN:
            self._below.resume_reading()


def failure_text(error: Exception) -> str:
    """Return the message of an error, such as "certificate verify failed: self-signed certificate"."""
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = (error.reason or "failed").lower().replace("_", " ")
    detail = getattr(error, "verify_message", "")
    return f"{reason}: {detail}" if detail else reason


def end_http(transport: asyncio.Transport, cause: str) -> str:
    """Close an HTTP connection after a failed handshake, and return the message to log.

    If the client did not use TLS, it gets a plain HTTP answer first.
    """
    if cause != NO_TLS:
        transport.close()
        return cause
    assert isinstance(transport, TlsTransport)
    transport.close_plainly(NOT_ENCRYPTED)
    return "client sent an HTTP request to an HTTPS server"
