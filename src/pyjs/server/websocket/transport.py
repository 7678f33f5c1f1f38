"""The transport of a WebSocket client; it is between the transport of the loop or of TLS, and the Connection.

It is a protocol for the transport below, and a transport for the Connection above. The Connection is created after
the upgrade and sees only the payloads of frames, so HTTP never reaches the Connection. The work per iteration of the
loop is bounded: frames that take extra work (control frames, compressed messages) are handled in alternation with
those of other connections.

    REQUEST -> OPEN -> ENDING -> CLOSED      OPEN -> CLOSED      REQUEST -> CLOSED (the request was refused)

Source: RFC 6455; behaviour of nats-server, in tests/conformance/test_websocket.py.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from pyjs.core.link import Peer, TlsPeer, shown_reason
from pyjs.server.addresses import host_port, plain_ip
from pyjs.server.tls.transport import end_http
from pyjs.server.websocket.closing import PROTOCOL_ERROR, BadClose, answer_to_close, close_frame, reason_frame
from pyjs.server.websocket.inflate import InflateFailed, Inflater, packed_max
from pyjs.server.websocket.outgoing import COMPRESSED_MAX, FIN, PONG, Terms, frame_head
from pyjs.server.websocket.upgrade import NotHttp, Upgrade, UpgradeRefused, upgrade
from pyjs.wire.frames import CLOSE, FAULT, NEED, PACKED, PING, PLAIN, TOO_LARGE, FrameReader

if TYPE_CHECKING:
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.server.connection import Connection
    from pyjs.server.websocket.port import WebSocketPort

HEAD_END = b"\r\n\r\n"
HEAD_SIZE_MAX = 64 * 1024  # bytes of a request
# Maximum bytes of a compressed message before the login: a stranger could fill the memory with endless messages.
ENTRY_PACKED_MAX = 64 * 1024
EVENTS_MAX = 128  # control frames and pieces of compressed messages in one iteration
INFLATE_COST = 32  # a piece counts as this many events
TOO_LARGE_TEXT = "maximum payload exceeded"


class Phase(enum.Enum):
    """The state of a WebSocket connection."""

    REQUEST = enum.auto()
    OPEN = enum.auto()
    ENDING = enum.auto()  # no more frames are read; queued output is still sent
    CLOSED = enum.auto()


class WebSocketTransport(asyncio.Protocol, asyncio.Transport):
    """The WebSocket layer of one connection.

    It is a protocol for the transport below, and a transport for the Connection above.
    """

    def __init__(self, port: WebSocketPort) -> None:
        asyncio.Transport.__init__(self)
        self.ready = True  # for a TlsTransport
        self.transport: asyncio.Transport  # the transport below
        self._port = port
        self._phase = Phase.REQUEST
        self._tls: TlsPeer | None = None
        self._connection: Connection | None = None  # the connection above; None before the upgrade
        self._head = bytearray()  # the received part of the request
        self._terms = Terms()
        self._frames: FrameReader
        self._inflater = Inflater()
        self._packed_max = 0  # maximum bytes of a compressed message after the login
        self._waiting: deque[bytes] = deque()  # reads that are not in `_frames` yet; b"": the end
        self._reading = True  # False: the session has paused reading
        self._running = False  # `_run` will be called
        self._paused = False  # the transport below is paused
        self._full = False  # the client does not read
        self._pong = b""  # a Pong frame to send when the client reads again
        self._closing = b""  # the close frame, unless it depends on the session
        self._timer: Timer | None = None
        self._peer: Peer | None = None

    # -- called by the transport below -------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a request, with a time limit."""
        self.transport = cast("asyncio.Transport", transport)
        self._timer = self._port.driver.after(self._port.handshake_s, self._timed_out)
        self._port.opened(self)

    def data_received(self, data: bytes) -> None:
        """Handle a part of the request, or frames."""
        if self._phase is Phase.OPEN:
            self._waiting.append(data)
            if not self._running:
                self._run()
        elif self._phase is Phase.REQUEST:
            self._take_head(data)

    def eof_received(self) -> bool:
        """Pass the end of the input to the Connection after the queued frames; before the upgrade, close."""
        if self._connection is None:
            return False
        self.data_received(b"")
        return True

    def pause_writing(self) -> None:
        """Pause the Connection, because the client does not read."""
        self._full = True
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Send a waiting Pong, and resume the Connection."""
        self._full = False
        if self._pong:
            self.transport.write(self._pong)
            self._pong = b""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Release all resources, since the transport is closed."""
        self._phase = Phase.CLOSED
        self._port.closed(self)
        self._release_head()
        self._cancel_timer()
        self._waiting.clear()
        if self._connection is not None:
            self._connection.connection_lost(error)
            self._connection = None

    # -- called by a TlsTransport ------------------------------------------------------------------------------
    def encrypted(self, peer: TlsPeer) -> None:
        """Store the parameters of the handshake."""
        self.ready = True
        self._tls = peer._replace(first=False)  # the field does not apply here

    def handshake_failed(self, cause: str, *, expected: bool) -> None:
        """Log the failed handshake and close the connection; a plain HTTP request is answered first."""
        cause = end_http(self.transport, cause)
        self._port.log.error(f"websocket: TLS handshake error from {self._address}: {cause}")

    def throttled(self) -> None:
        """Close the connection now, because too many connections were opened in this second."""
        self.transport.abort()

    def note(self, text: str) -> None:
        """Ignore `text`, since there is no client yet."""

    # -- the request -------------------------------------------------------------------------------------------
    def _take_head(self, data: bytes) -> None:
        """Append a part of the request: queue a complete request, and refuse one that is too large."""
        start = max(0, len(self._head) - len(HEAD_END))
        self._head += data
        self._port.held_size += len(data)
        if self._head.find(HEAD_END, start) >= 0:
            self._read_below(on=False)
            self._cancel_timer()  # the request is complete: the server causes any further delay
            self._port.enqueue(self)
        elif len(self._head) > HEAD_SIZE_MAX:
            self._refuse_text("431 Request Header Fields Too Large")
        elif self._port.is_full:
            self._refuse_text("503 Service Unavailable")

    def _release_head(self) -> bytes:
        """Return the received request, and free its memory."""
        head = bytes(self._head)
        self._port.held_size -= len(head)
        self._head.clear()
        return head

    def answer_request(self) -> None:
        """Answer the complete request; the port calls this in the order in which requests became complete."""
        if self._phase is not Phase.REQUEST or self.transport.is_closing():
            return
        head, _, rest = self._release_head().partition(HEAD_END)
        try:
            accepted = upgrade(head + HEAD_END, self._port.options, encrypted=self._tls is not None)
        except NotHttp:
            self._refuse_text("400 Bad Request")
            return
        except UpgradeRefused as refused:
            self._port.log.error(f"{self._address} - websocket handshake error: {refused}")
            self._refuse(refused.status)
            return
        if rest:
            cause = "client sent data before handshake is complete"
            self._port.log.error(f"{self._address} - websocket handshake error: {cause}")
            self._end()
        elif accepted.is_leafnode:
            self.transport.write(accepted.answer)
            self._port.log.error("Not configured to accept leaf node connections")
            self._end()
        else:
            self._open(accepted)

    def _open(self, accepted: Upgrade) -> None:
        """Create the Connection for the upgraded client, and start to read frames."""
        self._cancel_timer()
        self._phase = Phase.OPEN
        self._terms = accepted.terms
        ip, port = self._ip_port
        self._peer = Peer(plain_ip(ip), port, "websocket", accepted.forwarded_for, accepted.credentials)
        self._packed_max = packed_max(self._port.max_payload)
        self._frames = FrameReader(accepted.terms.masked, bool(accepted.terms.window_bits), self._packed_max)
        connection = self._connection = self._port.new_connection()
        connection.tls = self._tls
        connection.portion = COMPRESSED_MAX if accepted.terms.window_bits else 0
        self.transport.write(accepted.answer)
        self._port.upgraded(self)
        connection.connection_made(self)
        if connection.is_stranger:
            self._frames.packed_max = min(self._packed_max, ENTRY_PACKED_MAX)
        self._read_below(on=True)

    def _refuse(self, status: int) -> None:
        """Answer with `status`, in the form of Go's http.Error, and close."""
        phrase = HTTPStatus(status).phrase
        self.transport.write(
            f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Sec-Websocket-Version: 13\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
            f"Content-Length: {len(phrase) + 1}\r\n\r\n{phrase}\n".encode()
        )
        self._end()

    def _refuse_text(self, reason: str) -> None:
        """Answer with the status line `reason`, in the form of Go's HTTP server, and close."""
        self.transport.write(
            f"HTTP/1.1 {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Connection: close\r\n\r\n{reason}".encode()
        )
        self._end()

    def _end(self) -> None:
        self._phase = Phase.CLOSED
        self._release_head()
        self.transport.close()

    def _timed_out(self) -> None:
        self._phase = Phase.CLOSED
        self.transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _ip_port(self) -> tuple[str, int]:
        address = self.transport.get_extra_info("peername") or ("", 0)
        return address[0], address[1]

    @property
    def _address(self) -> str:
        ip, port = self._ip_port
        return host_port(plain_ip(ip), port)

    # -- input -------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        """Handle queued input, up to the limit for one iteration of the loop."""
        self._running = False
        budget = EVENTS_MAX
        while self._phase is Phase.OPEN and self._reading:
            if self._inflater.busy:
                self._inflate()
                budget -= INFLATE_COST
            else:
                event = self._frames.next()
                if event != NEED:
                    self._handle(event)
                    budget -= 1
                elif self._waiting:
                    self._take_read(self._waiting.popleft())
                else:
                    self._read_below(on=True)
                    return
            if budget <= 0:
                break
        if self._phase is not Phase.CLOSED:
            self._read_below(on=False)
            if self._phase is Phase.OPEN and self._reading:
                self._run_later()

    def _take_read(self, data: bytes) -> None:
        """Pass `data` to the frame reader; b"" is the end of the input, which is passed to the Connection."""
        assert self._connection is not None
        if not data:
            self._connection.eof_received()
            return
        if self._frames.packed_max < self._packed_max and not self._connection.is_stranger:
            self._frames.packed_max = self._packed_max
        self._frames.begin(data)

    def _read_below(self, *, on: bool) -> None:
        """Resume reading from the transport below if `on` is true, otherwise pause it."""
        if on == self._paused:
            self._paused = not on
            if on:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _run_later(self) -> None:
        if not self._running:
            self._running = True
            self._port.loop.call_soon(self._run)

    def _handle(self, event: int) -> None:
        frames, connection = self._frames, self._connection
        assert connection is not None
        if event == PLAIN:
            connection.data_received(frames.payload)
        elif event == PACKED:
            self._inflater.begin(frames.payload, self._port.max_payload)
        elif event == PING:
            pong = frame_head(FIN | PONG, len(frames.payload)) + frames.payload
            if self._full:
                self._pong = pong
            else:
                self.transport.write(pong)
        elif event == CLOSE:
            self._close_received(frames.payload)
        elif event == FAULT:
            self._fail(frames.fault, close_frame(PROTOCOL_ERROR, frames.fault))
        elif event == TOO_LARGE:
            self._fail(TOO_LARGE_TEXT, b"")

    def _inflate(self) -> None:
        assert self._connection is not None
        try:
            piece = self._inflater.next()
        except InflateFailed as failure:
            self._fail(str(failure), b"")
            return
        if piece:
            self._connection.data_received(piece)

    def _close_received(self, payload: bytes) -> None:
        """Prepare the answer to the client's close frame; it is sent after the output for earlier input."""
        assert self._connection is not None
        try:
            self._closing = answer_to_close(payload)
        except BadClose as bad:
            self._fail(str(bad), close_frame(PROTOCOL_ERROR, str(bad)))
            return
        self._phase = Phase.ENDING
        self._connection.eof_received()

    def _fail(self, cause: str, frame: bytes) -> None:
        """Close the connection of a client whose frames are invalid."""
        assert self._connection is not None
        self._closing = frame
        self._phase = Phase.ENDING
        self._connection.input_failed(cause)

    # -- the transport of the Connection -----------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send `data` in one or more messages."""
        self.writelines([bytes(data)])

    def writelines(self, pieces: Any) -> None:
        """Send `pieces` in one or more messages."""
        if self._phase in (Phase.OPEN, Phase.ENDING) and any(pieces):
            self.transport.writelines(self._port.packer.frames_of(pieces, self._terms))

    def close(self) -> None:
        """Send a close frame, unless the upgrade is incomplete, and close after all output has been sent."""
        if self._phase in (Phase.OPEN, Phase.ENDING) and self._connection is not None:
            self._phase = Phase.CLOSED
            self.transport.write(self._closing or reason_frame(shown_reason(self._connection.closed_reason)))
        self.transport.close()

    def abort(self) -> None:
        """Close the connection now, without a close frame."""
        self._phase = Phase.CLOSED
        self.transport.abort()

    def can_write_eof(self) -> bool:
        """Return False: a close frame ends both directions."""
        return False

    def pause_reading(self) -> None:
        """Stop reading frames."""
        self._reading = False
        if self._phase is Phase.OPEN:
            self._read_below(on=False)

    def resume_reading(self) -> None:
        """Resume reading; queued input is handled in the next iteration of the loop."""
        self._reading = True
        if self._phase is Phase.OPEN:
            self._run_later()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the client's Peer for "peer", otherwise the information of the transport below."""
        return self._peer if name == "peer" else self.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the transport is closing."""
        return self.transport.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the transport below."""
        self.transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return self.transport.get_write_buffer_size()
