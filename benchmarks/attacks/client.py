"""A NATS client for attackers: it sends raw bytes, and counts the received operations.

Nothing is treated as an error: a server may close the connection, refuse, or stay silent until the deadline. One loop
drives any number of connections, so that a client also reads while it sends large amounts.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_FRAME = re.compile(
    rb"(?:MSG (\S+) \S+ (?:(\S+) )?(\d+)|HMSG (\S+) \S+ (?:(\S+) )?\d+ (\d+)"
    rb"|(PONG)|(PING)|(?:-ERR ([^\r\n]*))|\+OK|INFO [^\r\n]*)\r\n"
)
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
READ_SIZE = 1 << 20
SEND_SIZE = 1 << 20
BODY_MAX = 4 << 20  # longer bodies are counted and dropped
MESSAGES_MAX = 100_000  # the number of bodies that are kept for the attack


class Client:
    """One connection. Replies arrive below `inbox`, which is unique to the connection."""

    def __init__(self, port: int, deadline: float, connect: bytes = CONNECT) -> None:
        self.deadline = deadline  # on the clock of time.monotonic(); no wait lasts longer
        self.count = 0  # number of messages received
        self.pongs = 0
        self.errors: list[bytes] = []  # texts of -ERR lines
        self.messages: deque[tuple[bytes, bytes, bytes]] = deque(maxlen=MESSAGES_MAX)  # subject, reply, body
        self.closed = False  # closed by the server
        self.bytes_in = 0
        self.reads = True  # False: the client reads nothing, so that the server must queue its output
        self._out: deque[memoryview] = deque()
        self._data = b""
        self._skip = 0  # bytes of a long body that have not arrived yet
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.inbox = b"_R%d" % self._socket.getsockname()[1]
        self._asked = 0
        if connect:
            self.queue(connect + b"SUB %s.> 1\r\n" % self.inbox)

    # -- the socket --------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """Return the file descriptor, for poll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self.closed = True

    def queue(self, data: bytes) -> None:
        """Queue `data`, which is sent while the connection is driven."""
        self._out.append(memoryview(data))

    def interest(self) -> int:
        """Return the poll events that this client waits for."""
        return (select.POLLIN if self.reads else 0) | (select.POLLOUT if self._out else 0)

    @property
    def sent(self) -> bool:
        """Return whether all queued data was sent."""
        return not self._out or self.closed

    def ready(self, events: int) -> None:
        """Read and write as much as poll reports to be possible."""
        try:
            if events & select.POLLOUT and self._out:
                self._write()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read()
        except BlockingIOError:
            return
        except OSError:
            self.closed = True

    def _write(self) -> None:
        head = self._out[0]
        size = self._socket.send(head[:SEND_SIZE])
        if size == len(head):
            self._out.popleft()
        else:
            self._out[0] = head[size:]

    def _read(self) -> None:
        data = self._socket.recv(READ_SIZE)
        if not data:
            self.closed = True
        self.bytes_in += len(data)
        if self._skip:
            drop = min(self._skip, len(data))
            self._skip -= drop
            data = data[drop:]
        self._data = self._cut(self._data + data)

    def _cut(self, data: bytes) -> bytes:
        """Parse the frames in `data`; return the incomplete rest."""
        at = 0
        while frame := _FRAME.match(data, at):
            subject, reply, size, subject_h, reply_h, size_h, pong, ping, error = frame.groups()
            at = frame.end()
            if size or size_h:
                end = at + int(size or size_h) + 2
                if end > len(data):
                    if end - at < BODY_MAX:
                        return data[frame.start() :]
                    self._skip = end - len(data)
                self.count += 1
                self.messages.append((subject or subject_h, reply or reply_h or b"", data[at : end - 2]))
                at = end
            elif pong:
                self.pongs += 1
            elif ping:
                self.queue(b"PONG\r\n")
            elif error is not None:
                self.errors.append(error)
        return data[at:]

    # -- conversations -----------------------------------------------------------------------------------------
    def run(self, done: Callable[[], bool]) -> bool:
        """Send and read until `done`, the end of the connection or the deadline; return the result of `done`."""
        drive([self], done, self.deadline)
        return done()

    def send(self, data: bytes) -> bool:
        """Send everything, and read meanwhile; return whether everything was sent."""
        self.queue(data)
        return self.run(lambda: self.sent)

    def fence(self) -> bool:
        """Return whether the server has processed everything that was sent."""
        expected = self.pongs + 1
        self.queue(b"PING\r\n")
        return self.run(lambda: self.pongs >= expected)

    def call(self, subject: str, body: object = None) -> bytes:
        """Return the line of a request with its own reply subject; bytes are sent unchanged, other bodies as JSON."""
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self._asked += 1
        return b"PUB %s %s.%d %d\r\n%s\r\n" % (subject.encode(), self.inbox, self._asked, len(text), text)

    def publish(self, subject: str, headers: bytes, body: bytes = b"") -> bytes:
        """Return the line of a publish that requests a PubAck; `headers` are complete lines."""
        block = b"NATS/1.0\r\n" + headers + b"\r\n"
        self._asked += 1
        sizes = b"%d %d" % (len(block), len(block) + len(body))
        return b"HPUB %s %s.%d %s\r\n%s%s\r\n" % (
            subject.encode(),
            self.inbox,
            self._asked,
            sizes,
            block,
            body,
        )

    def request(self, subject: str, body: object = None) -> dict[str, Any] | None:
        """Return the answer to one request, or None if there is none."""
        if self.ask([self.call(subject, body)]) == 0:
            return None
        try:
            answer: dict[str, Any] = json.loads(self.messages[-1][2])
        except ValueError:
            return {}
        return answer

    def ask(self, calls: Sequence[bytes], window: int = 1 << 30) -> int:
        """Send requests, at most `window` of them unanswered; return the number of answers."""
        start = self.count
        sent = 0
        while sent < len(calls) and not self.closed and time.monotonic() < self.deadline:
            room = min(window - (sent - (self.count - start)), len(calls) - sent)
            self.queue(b"".join(calls[sent : sent + room]))
            sent += room
            low = sent - window // 2 if sent < len(calls) else sent
            self.run(lambda low=low: self.count - start >= low)  # type: ignore[misc]
        return min(self.count - start, len(calls))


def drive(clients: Iterable[Client], done: Callable[[], bool], deadline: float) -> None:
    """Send and read on all connections until `done` is true, all are closed, or the deadline passes."""
    poller = select.poll()
    open_ones = {client.fileno(): client for client in clients if not client.closed}
    watched = {fd: client.interest() for fd, client in open_ones.items()}
    for fd, events in watched.items():
        poller.register(fd, events)
    while open_ones and not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return
        for fd, events in poller.poll(min(left, 0.1) * 1000):
            client = open_ones[fd]
            client.ready(events)
            if client.closed:
                poller.unregister(fd)
                del open_ones[fd]
            elif client.interest() != watched[fd]:
                watched[fd] = client.interest()
                poller.modify(fd, watched[fd])
