"""HTTP/1.1 for the monitoring port: parses requests, writes answers, keeps connections alive.

Runs on the loop of the server. Knows no paths: it asks a handler. Every method is answered as GET is, HEAD without
the body: so does nats-server, and probes rely on it.

httptools is imported with the first connection: 20 ms that a server without monitoring never pays.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from pyjs.monitor.response import Response, text_response
from pyjs.server.transport import Transport

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator

    from pyjs.base.log import Log
    from pyjs.server.loop import Loop

    Work = Generator[None, None, Response]  # yields when others should get their time
    Handler = Callable[[str], Work]  # takes the request target, path and query

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
BUFFER_HIGH = 1024 * 1024  # bytes of answers waiting above which no more requests are taken


class HttpConnection(Transport):
    """One connection to the monitoring port."""

    def __init__(
        self, loop: Loop, handle: Handler, connections: set[HttpConnection], log: Log, sock: socket.socket
    ) -> None:
        import httptools

        super().__init__(loop, sock, BUFFER_HIGH, BUFFER_HIGH)
        self._handle = handle
        self._log = log
        self._connections = connections  # the server's open connections; this one is in it while open
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._requests: deque[tuple[str, bool, bool, str]] = deque()  # target, HEAD, keep alive, version
        self._work: Work | None = None  # on the answer to the first of them
        self._unanswered_size = 0  # bytes received since the last whole request
        connections.add(self)
        self.start()

    def lost(self) -> None:
        """Forget the connection."""
        self._connections.discard(self)
        del self._parser  # it holds this connection

    def ended(self) -> None:
        """Close when everything is answered: the peer may read on."""
        if self._work is None:
            self.close()

    def filled(self) -> None:
        """Take no more requests from a peer that does not read the answers."""
        self.pause_reading()

    def drained(self) -> None:
        """Go on with the requests."""
        self._answer_waiting()
        self._listen_again()

    def received(self, data: bytes) -> None:
        """Parse; answer every request that is whole."""
        import httptools

        self._unanswered_size += len(data)
        bad = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            bad = True
        self._answer_waiting()
        if self._work is not None and len(self._requests) > 1:  # one that only waits may hang up
            self.pause_reading()
        if bad:
            self._refuse(400)
        if self._unanswered_size > REQUEST_SIZE_MAX:
            self._refuse(431)

    def _answer_waiting(self) -> None:
        """Answer what was asked for, as long as the peer takes the answers."""
        while self._requests and not self.closing and not self.is_full and self._work is None:
            self._go_on(self._handle(self._requests[0][0]))

    def _go_on(self, work: Work) -> None:
        """Do a step of the answer to the first request; between two steps others get their time."""
        target, head_only, keep_alive, version = self._requests[0]
        try:
            next(work)
        except StopIteration as done:
            response: Response = done.value
        except Exception as error:
            self._log.error(f"Error answering {target}: {error!r}")
            response = text_response(500, "Internal Server Error")
        else:
            self._work = work
            self._loop.call_soon(self._resume)
            return
        del self._requests[0]
        self._answer(response, head_only, keep_alive, version)

    def _resume(self) -> None:
        work, self._work = self._work, None
        if work is not None and not self.closing:
            self._go_on(work)
            self._answer_waiting()
            self._listen_again()

    def _listen_again(self) -> None:
        """Take requests again, or end with the last answer."""
        if self._work is None and not self.is_full:
            self.resume_reading()
            if self._ended:
                self.close()

    # -- called by the parser ----------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """A request begins."""
        self._target = b""

    def on_url(self, url: bytes) -> None:
        """Take the request target, perhaps in parts."""
        self._target += url

    def on_message_complete(self) -> None:
        """Note a whole request; it is answered when the parser has returned."""
        self._unanswered_size = 0
        parser = self._parser
        head_only = parser.get_method() == b"HEAD"
        target = self._target.decode("latin-1")
        self._requests.append((target, head_only, parser.should_keep_alive(), parser.get_http_version()))

    def _answer(self, response: Response, head_only: bool, keep_alive: bool, version: str) -> None:
        lines = [f"HTTP/{version} {response.status} {REASONS[response.status]}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
        lines.append(f"Content-Length: {len(response.body)}")
        if not keep_alive:
            lines.append("Connection: close")
        elif version == "1.0":
            lines.append("Connection: keep-alive")
        head = "\r\n".join(lines) + "\r\n\r\n"
        self.write(head.encode("latin-1") + (b"" if head_only else response.body))
        if not keep_alive:
            self.close()

    def _refuse(self, status: int) -> None:
        if self.closing:
            return
        reason = f"{status} {REASONS[status]}"
        text = f"HTTP/1.1 {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{reason}"
        self.write(text.encode())
        self.close()
