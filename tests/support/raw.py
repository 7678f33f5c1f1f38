"""A minimal blocking NATS client for tests: it sends bytes and returns frames."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'


class RawClient:
    """One connection; every wait has a deadline."""

    def __init__(
        self, port: int, timeout_s: float = 20.0, connect: bytes = CONNECT, inbox: bytes = b"_INBOX.raw"
    ) -> None:
        self.inbox = inbox  # prefix of the subjects of answers; concurrent clients need different ones
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._at = 0  # number of bytes of _data that were used
        self._asked = 0
        self.send(connect + b"PING\r\n")
        self.read_until(b"PONG\r\n")
        self.send(b"SUB %b.> 1\r\n" % inbox)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """Close, and wake a thread that waits for data; `close` alone would leave it waiting until the next PING."""
        with suppress(OSError):  # the server may have closed the connection
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def fence(self) -> None:
        """Wait until the server has processed everything sent so far."""
        self.send(b"PING\r\n")
        self.read_until(b"PONG\r\n")

    def read_until(self, mark: bytes) -> bytes:
        """Return the bytes before `mark`; later bytes stay buffered."""
        while (end := self._data.find(mark, self._at)) < 0:
            self._more()
        head, self._at = self._data[self._at : end], end + len(mark)
        return head

    def frames(self) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
        """Yield (subject, reply, headers, payload) of each message."""
        while True:
            words = self.read_until(b"\r\n").split()
            if not words or words[0] not in (b"MSG", b"HMSG"):
                continue
            size = int(words[-1])
            head = int(words[-2]) if words[0] == b"HMSG" else 0
            reply = words[3] if len(words) > (5 if words[0] == b"HMSG" else 4) else b""
            while len(self._data) - self._at < size + 2:
                self._more()
            body = self._data[self._at : self._at + size]
            self._at += size + 2
            yield words[1], reply, body[:head], body[head:]

    def request(self, subject: bytes, payload: bytes = b"") -> bytes:
        """Publish with an inbox and return the payload of the answer."""
        self._asked += 1
        inbox = b"%b.rq%d" % (self.inbox, self._asked)
        self.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(payload), payload))
        for answered, _, _, body in self.frames():
            if answered == inbox:
                return body
        raise AssertionError("unreachable: frames() ends with an error")

    def api(self, name: str, /, **body: Any) -> dict[str, Any]:
        """Call $JS.API.<name> and return the answer, which must not be an error."""
        answer = self.try_api(name, **body)
        assert "error" not in answer, answer
        return answer

    def try_api(self, name: str, /, **body: Any) -> dict[str, Any]:
        """Call $JS.API.<name> and return the answer, an error or not; {} if no answer comes."""
        text = self.request(b"$JS.API." + name.encode(), json.dumps(body).encode() if body else b"")
        answer: dict[str, Any] = json.loads(text or b"{}")
        return answer

    def _more(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._data = self._data[self._at :] + data
        self._at = 0
