"""A blocking NATS client for measurements: it sends whole batches of lines, and reads as much as is available.

It implements as much of the protocol as scaling.py needs: publishes with a window of PubAcks, API requests, pull
requests.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

_FRAME = re.compile(  # nats-server writes an additional blank if there is no reply subject
    rb"(?:MSG (\S+) (\S+) (?:(\S*) )?(\d+)|HMSG (\S+) (\S+) (?:(\S*) )?\d+ (\d+))\r\n|PONG\r\n|PING\r\n"
)
TIMEOUT_S = 120.0


class Unexpected(Exception):
    """The server sent an answer with which the measurement cannot continue."""


class PlainClient:
    """One connection. Every answer arrives below `inbox`, which is unique to the connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._asked = 0
        self.inbox = b"_R%d" % self._socket.getsockname()[1]
        self._frames = self._read()
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n')
        self.send(b"SUB %s.> 1\r\n" % self.inbox)
        self.fence()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send protocol lines."""
        self._socket.sendall(data)

    def fence(self) -> None:
        """Wait until the server has processed everything."""
        self.send(b"PING\r\n")
        while next(self._frames) is not None:
            pass

    def frames(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the next `count` messages, each as its reply subject (or its subject if it has none) and its body."""
        while count:
            frame = next(self._frames)
            if frame is not None:
                yield frame
                count -= 1

    def next_frame(self, timeout_s: float) -> tuple[bytes, bytes]:
        """Return the next message. Raises TimeoutError if there is none; the connection stays usable."""
        self._socket.settimeout(timeout_s)
        try:
            return next(self.frames(1))
        except TimeoutError:
            self._frames = self._read()
            raise
        finally:
            self._socket.settimeout(TIMEOUT_S)

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the answer to one API request."""
        return next(self.requests([(subject, body)]))

    def requests(self, calls: list[tuple[str, object]], window: int = 64) -> Iterator[dict[str, Any]]:
        """Yield the answers to API requests, at most `window` of them unanswered; an error ends the measurement."""
        sent = 0
        for got in range(len(calls)):
            if sent - got <= window // 2 and sent < len(calls):
                batch = calls[sent : got + window]
                self.send(b"".join(self._line(subject, body) for subject, body in batch))
                sent += len(batch)
            answer: dict[str, Any] = json.loads(next(self.frames(1))[1])
            if "error" in answer:
                raise Unexpected(f"{calls[got][0]}: {answer['error']}")
            yield answer

    def _line(self, subject: str, body: object) -> bytes:
        text = b"" if body is None else json.dumps(body).encode()
        self._asked += 1
        return b"PUB %s %s.%d %d\r\n%s\r\n" % (subject.encode(), self.inbox, self._asked, len(text), text)

    def publish(
        self,
        count: int,
        subject: Callable[[int], bytes],
        size: int = 128,
        window: int = 4096,
        ids: bytes = b"",
    ) -> None:
        """Publish `count` messages and wait for every PubAck, at most `window` of them outstanding.

        If `ids` is given, each message has an id that begins with `ids`.
        """
        payload = b"x" * size
        tail = b" %s.p %d\r\n%s\r\n" % (self.inbox, size, payload)

        def line(i: int) -> bytes:
            if not ids:
                return b"PUB " + subject(i) + tail
            head = b"NATS/1.0\r\nNats-Msg-Id: %s%09d\r\n\r\n" % (ids, i)
            sizes = b"%d %d" % (len(head), len(head) + size)
            return b"HPUB %s %s.p %s\r\n%s%s\r\n" % (subject(i), self.inbox, sizes, head, payload)

        sent = acked = 0
        while acked < count:
            upto = min(count, acked + window)
            if upto - sent >= window // 2 or (upto == count and sent < count):
                self.send(b"".join([line(i) for i in range(sent, upto)]))
                sent = upto
            for _, body in self.frames(min(window // 2, sent - acked)):
                if b'"error"' in body:
                    raise Unexpected(body.decode())
                acked += 1

    def publish_id(self, subject: bytes, msg_id: bytes) -> dict[str, Any]:
        """Publish one empty message with an id; return the PubAck."""
        head = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % msg_id
        self.send(b"HPUB %s %s.i %d %d\r\n%s\r\n" % (subject, self.inbox, len(head), len(head), head))
        ack: dict[str, Any] = json.loads(next(self.frames(1))[1])
        return ack

    def _read(self) -> Iterator[tuple[bytes, bytes] | None]:
        """Yield frames; None stands for a PONG."""
        at, data = 0, self._data
        while True:
            frame = _FRAME.search(data, at)
            end = 0
            if frame is not None:
                size = int(frame[4] or frame[8] or 0)
                end = frame.end() + (size + 2 if frame[4] or frame[8] else 0)
            if frame is None or end > len(data):
                self._data = data[at:]  # after a timeout, for the next reader
                more = self._socket.recv(1 << 20)
                if not more:
                    raise Unexpected("the server closed the connection")
                if b"-ERR" in more[:200]:
                    raise Unexpected(more[:200].decode())
                data, at = data[at:] + more, 0
                continue
            at = end
            if frame[0] == b"PING\r\n":
                self.send(b"PONG\r\n")
            elif frame[0] == b"PONG\r\n":
                yield None
            else:
                yield (frame[3] or frame[7] or frame[1] or frame[5]), data[frame.end() : end - 2]
