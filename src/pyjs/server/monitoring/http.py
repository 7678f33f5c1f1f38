"""HTTP/1.1 for the monitoring port, with one asyncio protocol for each connection; httptools parses the requests.

Every method is answered like GET, except that the answer to HEAD has no body; probes rely on this behaviour of
nats-server. The handler gets the body and some headers of a POST, which only the actions of the dashboard use; other
bodies are discarded. Input is parsed in slices, and parsing stops while a request waits for its answer. Thus,
thousands of requests in one packet delay other work no more than a few requests do.

Source: RFC 9112; behaviour of nats-server 2.15.1 (a request that is not complete after five seconds gets a 400).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

import httptools

from pyjs.monitor.dashboard.posted import KEPT_HEADERS, Posted
from pyjs.monitor.response import Response, text_response
from pyjs.server.addresses import host_port
from pyjs.server.monitoring.kernel_queue import unacknowledged

if TYPE_CHECKING:
    from pyjs.server.listener import Listener
    from pyjs.server.monitoring.port import MonitorPort, Work

REQUEST_SIZE_MAX = 64 * 1024  # bytes of request line, headers and lengths of chunks
BODY_MAX = 16 * 1024  # bytes of the body of a POST
DISCARDED_MAX = 256 * 1024 - 1  # bytes of another body; nats-server keeps the connection up to this size
CONTENT_LENGTH = b"content-length"
SLICE = 4096  # bytes parsed at once: some two hundred of the shortest requests
REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
AUTHORIZATION = b"authorization"
USED_HEADERS = frozenset((AUTHORIZATION, CONTENT_LENGTH, *(name.encode() for name in KEPT_HEADERS)))
BUFFER_HIGH = 1024 * 1024  # bytes of unsent answers; above it, no more requests are answered
REQUEST_S = 5.0  # a request must be complete within this time after its first byte
IDLE_S = 300.0  # a connection without a request is closed after this time
STALLED_S = 10.0  # a peer that does not read is disconnected after this time


class Asked(NamedTuple):
    """One HTTP request to the monitoring port."""

    target: str
    credentials: bytes
    head_only: bool
    keep_alive: bool
    version: str
    posted: Posted | None  # None: not a POST


class HttpConnection(asyncio.Protocol):
    """One connection to the monitoring port."""

    def __init__(self, port: MonitorPort, listener: Listener) -> None:
        self._port = port
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._input = b""  # received bytes that are not parsed yet
        self._target = b""
        self._headers: dict[bytes, bytes] = {}  # those of USED_HEADERS, by name in lower case
        self._body = b""  # of a POST
        self._body_left = 0  # bytes by which the body may still grow
        self._requests: deque[Asked] = deque()
        self._work: Work | None = None  # composes the answer to the first of `_requests`
        self._queued = False  # `step` will be called
        self._awaited: asyncio.Future[object] | None = None  # the work waits for this future
        self._full = False  # the peer does not read: answering is paused
        self._ended = False  # the peer has ended its output
        self._begun = False  # a request has begun and is incomplete
        self._request_size = 0  # bytes parsed since the last complete request, without bodies
        self._refusal = 0  # status of the answer that ends the connection after `_requests`; 0: none
        self._deadline = 0.0  # time by which the peer must act, on the loop's clock
        self._unread = 0  # `unread_size` at the last check
        self.transport: asyncio.Transport

    # -- called by the transport -------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a request, or refuse the connection with status 503 if too many are open."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop has its own classes
        self.transport.set_write_buffer_limits(high=BUFFER_HIGH, low=BUFFER_HIGH // 2)
        self._expect(IDLE_S)
        self._listener.accepted(transport)
        if not self._port.opened(self):
            self._refuse(503)

    def connection_lost(self, error: Exception | None) -> None:
        """Release the state of the closed connection."""
        self._port.closed(self)
        self._requests.clear()
        self._input = b""
        self._work = None
        del self._parser  # break the cycle: the parser refers to this connection

    def data_received(self, data: bytes) -> None:
        """Queue `data` for `step`, which parses it; ignore it if the connection is being refused."""
        if self._refusal:
            return
        self._input += data
        if len(self._input) > REQUEST_SIZE_MAX:
            self.transport.pause_reading()
        self._ask_for_step()

    def eof_received(self) -> bool:
        """Close the connection after all requests are answered.

        Return True, so that asyncio keeps the transport open for the answers.
        """
        self._ended = True
        self._ask_for_step()
        return True

    def pause_writing(self) -> None:
        """Pause the answers, because the peer does not read."""
        self._full = True
        self._expect(STALLED_S)

    def resume_writing(self) -> None:
        """Resume the answers."""
        self._full = False
        self._ask_for_step()

    # -- called by the port ------------------------------------------------------------------------------------
    def step(self) -> None:
        """Parse a slice of the input if no request is queued, then continue the answer to the first request.

        Close the connection if the peer has ended its output and no request is left. Do nothing while the transport
        is closing or its write buffer is full.
        """
        self._queued = False
        if self.transport.is_closing() or self._full:
            return
        if not self._requests and self._input:
            self._parse()
        if self._requests:
            self._answer_step()
        elif self._refusal:
            self._refuse(self._refusal)
        elif self._ended and not self._input:
            self.close()
        self._ask_for_step()

    def check_deadline(self, now: float) -> None:
        """Close the connection if its peer has not acted in time; `now` is the time of the loop's clock."""
        if self._full or self.transport.is_closing():
            self._check_reader(now)
        elif now < self._deadline or self._requests:
            return
        elif self._begun:
            self._refuse(400)
        else:
            self.close()

    def close(self) -> None:
        """Close the connection when all written output has been sent, or when the peer has stopped reading."""
        if not self.transport.is_closing():
            self._expect(STALLED_S)
            self.transport.close()

    def abort(self) -> None:
        """Close the connection now and drop unsent output."""
        self.transport.abort()

    def pending_size(self) -> int:
        """Return the number of bytes of unsent answers in the transport."""
        return self.transport.get_write_buffer_size()

    def unread_size(self) -> int:
        """Return the number of bytes of answers that the peer's system has not acknowledged.

        The unsent bytes in the transport do not show whether a slow peer reads. The kernel takes more of them only
        when a third of its send buffer of several megabytes is free; for that, a slow peer needs much longer than
        STALLED_S.
        """
        return self.pending_size() + unacknowledged(self.transport.get_extra_info("socket"))

    # -- parts -------------------------------------------------------------------------------------------------
    def _check_reader(self, now: float) -> None:
        """Abort the connection if its peer has read nothing for STALLED_S."""
        unread = self.unread_size()
        if unread < self._unread:
            self._expect(STALLED_S)
        elif now >= self._deadline:
            self.transport.abort()
        self._unread = unread

    def _expect(self, seconds: float) -> None:
        self._deadline = self._port.loop.time() + seconds

    def _ask_for_step(self) -> None:
        """Queue this connection for a step if it has work."""
        is_over = (self._ended or self._refusal) and not self.transport.is_closing()
        to_do = self._requests or self._input or is_over
        if to_do and not self._full and not self._queued and self._awaited is None:
            self._queued = True
            self._port.enqueue(self)

    def _parse(self) -> None:
        data, self._input = self._input[:SLICE], self._input[SLICE:]
        if len(self._input) <= REQUEST_SIZE_MAX:
            self.transport.resume_reading()
        self._request_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._refusal = 400
        if self._request_size > REQUEST_SIZE_MAX:
            self._refusal = 431
        if self._refusal:
            self._input = b""

    def _answer_step(self) -> None:
        """Run one step of the answer to the first request."""
        asked = self._requests[0]
        if self._work is None:
            self._work = self._port.answer(asked.target, asked.credentials, asked.posted)
        try:
            self._await(next(self._work))
            return
        except StopIteration as done:
            response: Response = done.value
        except Exception as error:
            self._port.log.error(f"Error answering {asked.target}: {error!r}")
            response = text_response(500, "Internal Server Error")
        self._work = None
        self._requests.popleft()
        self._expect(REQUEST_S if self._begun else IDLE_S)
        self._write(response, asked)

    def _await(self, event: asyncio.Future[object] | None) -> None:
        """Run no more steps until `event` is done; None means that there is nothing to wait for."""
        if event is None or event.done():
            return
        self._awaited = event

        def happened(_: object) -> None:
            self._awaited = None
            self._ask_for_step()

        event.add_done_callback(happened)

    # -- called by the parser ----------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """Reset the state for a new request, and start its time limit."""
        self._begun = True
        self._expect(REQUEST_S)
        self._target = self._body = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        """Append a part of the request target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store `value` if the header is used; the values of a header that occurs several times are joined."""
        name = name.lower()
        if name in USED_HEADERS:
            before = self._headers.get(name)
            self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        """Refuse the request if its body will be longer than its method permits."""
        self._body_left = body_max = BODY_MAX if self._is_post() else DISCARDED_MAX
        digits = self._headers.get(CONTENT_LENGTH, b"").strip().lstrip(b"0")
        if len(digits) > len(str(body_max)) or int(digits or b"0") > body_max:
            self._refusal = 413

    def on_body(self, data: bytes) -> None:
        """Append a part of a POST's body, or discard a part of another body; refuse a body that is too long."""
        self._request_size -= len(data)
        self._body_left -= len(data)
        if self._body_left < 0:
            self._refusal = 413
        elif self._is_post() and not self._refusal:
            self._body += data

    def on_message_complete(self) -> None:
        """Queue the complete request, unless it is refused."""
        self._begun = False
        self._request_size = 0
        if self._refusal:
            return
        parser = self._parser
        target = self._target.decode("latin-1")
        keep_alive, version = parser.should_keep_alive(), parser.get_http_version()
        credentials = self._headers.pop(AUTHORIZATION, b"")
        posted = self._posted() if self._is_post() else None
        head_only = parser.get_method() == b"HEAD"
        self._requests.append(Asked(target, credentials, head_only, keep_alive, version, posted))

    def _is_post(self) -> bool:
        method: bytes = self._parser.get_method()
        return method == b"POST"

    def _posted(self) -> Posted:
        headers = {name.decode(): value.decode("latin-1").strip() for name, value in self._headers.items()}
        peer = self.transport.get_extra_info("peername") or ("", 0)
        return Posted(headers, self._body, host_port(peer[0], peer[1]))

    def _write(self, response: Response, asked: Asked) -> None:
        lines = [f"HTTP/{asked.version} {response.status} {REASONS[response.status]}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
        lines.append(f"Content-Length: {response.size}")
        if not asked.keep_alive:
            lines.append("Connection: close")
        elif asked.version == "1.0":
            lines.append("Connection: keep-alive")
        head = "\r\n".join(lines) + "\r\n\r\n"
        self.transport.write(head.encode("latin-1") + (b"" if asked.head_only else response.body))
        if response.rest and not asked.head_only:
            self.transport.writelines(response.rest)
        if not asked.keep_alive:
            self.close()

    def _refuse(self, status: int) -> None:
        if self.transport.is_closing():
            return
        reason = f"{status} {REASONS[status]}"
        text = f"HTTP/1.1 {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{reason}"
        self.transport.write(text.encode())
        self.close()
