"""HTTP/1.1 for the monitoring port: parses requests, writes answers, keeps connections alive.

Runs on the loop of the server. Knows no paths: it asks a handler. Every method is answered as GET is, HEAD without
the body: so does nats-server, and probes rely on it.

httptools is imported with the first connection: 20 ms that a server without monitoring never pays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyjs.monitor.response import Response

if TYPE_CHECKING:
    import httptools

REQUEST_SIZE_MAX = 64 * 1024  # bytes of request line and headers
REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    404: "Not Found",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
Handler = Callable[[str], Response]  # takes the request target, path and query


class HttpConnection(asyncio.Protocol):
    """One connection to the monitoring port."""

    def __init__(self, handle: Handler, connections: set[HttpConnection]) -> None:
        self._handle = handle
        self._connections = connections  # the server's open connections; this one is in it while open
        self._transport: asyncio.Transport
        self._parser: httptools.HttpRequestParser
        self._target = b""
        self._unanswered_size = 0  # bytes received since the last answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen for requests."""
        import httptools

        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Parse; answers are written by on_message_complete."""
        import httptools

        self._unanswered_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400)
        except httptools.HttpParserError:
            self._refuse(400)
        if self._unanswered_size > REQUEST_SIZE_MAX:
            self._refuse(431)

    def close(self) -> None:
        """Close the connection; an answer being sent is finished."""
        self._transport.close()

    # -- called by the parser ----------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """A request begins."""
        self._target = b""

    def on_url(self, url: bytes) -> None:
        """Take the request target, perhaps in parts."""
        self._target += url

    def on_message_complete(self) -> None:
        """Answer."""
        self._unanswered_size = 0
        if self._transport.is_closing():
            return
        response = self._handle(self._target.decode("latin-1"))
        keep_alive = self._parser.should_keep_alive()
        self._send(response, self._parser.get_method() == b"HEAD", keep_alive)
        if not keep_alive:
            self._transport.close()

    def _send(self, response: Response, head_only: bool, keep_alive: bool) -> None:
        version = self._parser.get_http_version()
        lines = [f"HTTP/{version} {response.status} {REASONS[response.status]}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
        lines.append(f"Content-Length: {len(response.body)}")
        if not keep_alive:
            lines.append("Connection: close")
        elif version == "1.0":
            lines.append("Connection: keep-alive")
        head = "\r\n".join(lines) + "\r\n\r\n"
        self._transport.write(head.encode("latin-1") + (b"" if head_only else response.body))

    def _refuse(self, status: int) -> None:
        if self._transport.is_closing():
            return
        reason = f"{status} {REASONS[status]}"
        text = f"HTTP/1.1 {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{reason}"
        self._transport.write(text.encode())
        self._transport.close()
