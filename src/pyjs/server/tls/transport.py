"""The transport of a client whose port speaks TLS: between the loop's transport and the Connection.

It stands above asyncio's own TLS because a NATS client is greeted before it is encrypted, and the first bytes decide
whether it is at all. Both take the same time for each byte (uvloop's is a wrapper of the same OpenSSL object); this
one lets the handshake run in a thread, one step of one connection at a time, in the order in which they asked.

    WAITING -> SHAKING -> OPEN -> CLOSED      WAITING -> CLOSED (plain: the Connection gets the loop's transport)

Source: tests/conformance/test_tls.py says what nats-server does.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from typing import TYPE_CHECKING, cast

from pyjs.server.tls.channel import TlsChannel, TlsEnded

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyjs.server.connection import Connection
    from pyjs.server.tls.context import TlsSettings
    from pyjs.server.tls.port import TlsPort

HANDSHAKE_RECORD = 0x16  # the first byte of a client that speaks TLS
NO_TLS = "first record does not look like a TLS handshake"


class Phase(enum.Enum):
    """How far the encryption is."""

    WAITING = enum.auto()  # for the first bytes of the client
    SHAKING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """A protocol for the transport below, a transport for the Connection above."""

    def __init__(self, port: TlsPort, settings: TlsSettings, connection: Connection) -> None:
        asyncio.Transport.__init__(self)
        self._port = port
        self._settings = settings
        self._connection = connection
        self._phase = Phase.WAITING
        self._greets = False  # INFO leaves before the handshake
        self._greeted = False  # and has left
        self._held: list[bytes] = []  # output that waits for the handshake
        self._read: list[bytes] = []  # input that came before INFO has left, or while a step runs
        self._stepping = False
        self._ended = False  # no input follows
        self._timers: list[asyncio.TimerHandle] = []
        self._channel: TlsChannel
        self._below: asyncio.Transport

    # -- called by the transport below -------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the Connection greet the client; the handshake has its time from now on."""
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
            self._connection.session.close(
                "Maximum Connections Exceeded", "Connection throttling is active. Please try again later."
            )

    def data_received(self, data: bytes) -> None:
        """Take input; it may be anything until the handshake is over."""
        if self._phase is Phase.WAITING and self._greets and not self._greeted:
            self._read.append(data)  # a client that does not wait for INFO reads it all the same
        elif self._phase is Phase.WAITING:
            self._begin(data)
        elif self._phase is Phase.OPEN:
            self._channel.feed(data)
            self._deliver()
        elif self._phase is Phase.SHAKING:
            self._read.append(data)
            self._step()

    def eof_received(self) -> bool:
        """Tell the Connection once it is open; before, the client has given up."""
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
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything; a step that runs ends for nobody."""
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.connection_lost(error)

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
        """Take what came before INFO had left."""
        if self._phase is Phase.WAITING and self._read:
            data = b"".join(self._read)
            self._read.clear()
            self._begin(data)

    def _go_plain(self) -> None:
        """Step aside: the Connection and the transport below talk to each other."""
        self._greet()
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.transport = self._below
        self._connection.ready = True
        self._below.set_protocol(self._connection)

    def _greet(self) -> None:
        """Send INFO now: the client has not begun by itself."""
        self._greets = self._greeted = True
        if self._phase is Phase.WAITING and self._held:
            held, self._held = self._held, []
            self._below.write(b"".join(held))

    # -- the handshake -----------------------------------------------------------------------------------------
    def _step(self) -> None:
        """Have a thread go on with what has come."""
        if self._stepping:
            return
        self._stepping = True
        self._below.pause_reading()
        self._channel.feed(b"".join(self._read))
        self._read.clear()
        self._port.thread.submit(self._channel.shake_hands, self._stepped)

    def _stepped(self, failure: Exception | None) -> None:
        self._stepping = False
        if self._phase is not Phase.SHAKING:
            return
        output = self._channel.take_output()
        if output:
            self._below.write(output)
        if failure is not None:
            self._fail(failure_text(failure))
        elif self._channel.shaken:
            self._open()
        elif self._ended:
            self._fail("EOF")
        elif self._read:
            self._step()
        else:
            self._below.resume_reading()

    def _open(self) -> None:
        """Let the Connection talk to the client."""
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
        """End a connection that never became one, without a word to the client but TLS's own."""
        self._phase = Phase.CLOSED
        self._cancel_timers()
        self._connection.handshake_failed(cause, expected=cause in (NO_TLS, "timeout"))

    def _timed_out(self) -> None:
        if self._phase in (Phase.WAITING, Phase.SHAKING):
            self._fail("timeout")

    def _after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self._timers.append(self._port.loop.call_later(delay_ns / 1e9, call))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- the open stream ---------------------------------------------------------------------------------------
    def _deliver(self) -> None:
        """Give the Connection what whole records hold."""
        try:
            while data := self._channel.unseal():
                self._connection.data_received(data)
        except TlsEnded:
            self._connection.eof_received()
        except ssl.SSLError as error:
            self._connection.note(f"TLS error: {failure_text(error)}")
            self._below.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send `data`: as records, or when the handshake is over; plain before it, if clients are greeted so."""
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
        """Send `pieces` in their order."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._phase is Phase.OPEN:
            self._below.write(self._channel.end())
        self._phase = Phase.CLOSED
        self._below.close()

    def abort(self) -> None:
        """Close now."""
        self._phase = Phase.CLOSED
        self._below.abort()

    # -- passed on ---------------------------------------------------------------------------------------------
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport below knows."""
        return self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether no input comes any more."""
        return self._below.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of the transport below."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._below.get_write_buffer_size() + sum(map(len, self._held))

    def pause_reading(self) -> None:
        """Take no more input, once there is a stream."""
        if self._phase is Phase.OPEN:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Take input again, once there is a stream."""
        if self._phase is Phase.OPEN:
            self._below.resume_reading()


def failure_text(error: Exception) -> str:
    """Return why OpenSSL refused, in words: "certificate verify failed: self-signed certificate"."""
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = (error.reason or "failed").lower().replace("_", " ")
    detail = getattr(error, "verify_message", "")
    return f"{reason}: {detail}" if detail else reason
