"""A WebSocket client for tests, which can violate every rule of the protocol."""

from __future__ import annotations

import socket
import ssl
import struct
import zlib
from dataclasses import dataclass

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, RSV1, RSV2, RSV3 = 0x80, 0x40, 0x20, 0x10
HEADERS = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}
DEFLATE = "permessage-deflate; client_max_window_bits"
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that the server sent."""

    first: int  # FIN, RSV and opcode
    payload: bytes

    def shown(self) -> str:
        """Return the frame as text; of a close frame, its status."""
        if self.first & 15 == CLOSE and self.payload:
            return f"close {int.from_bytes(self.payload[:2], 'big')} {self.payload[2:].decode()}"
        return f"{self.first:#x} {self.payload!r}"


def frame(payload: bytes, first: int = FIN | BINARY, masked: bool = True, size: int = -1) -> bytes:
    """Return a frame; `size` is the length that its header states, if that is not the payload's."""
    size = len(payload) if size < 0 else size
    mask = 0x80 if masked else 0
    if size <= 125:
        head = bytes((first, mask | size))
    elif size < 1 << 16:
        head = struct.pack(">BBH", first, mask | 126, size)
    else:
        head = struct.pack(">BBQ", first, mask | 127, size)
    if not masked:
        return head + payload
    key = b"\x37\xfa\x21\x3d"
    return head + key + bytes(byte ^ key[at & 3] for at, byte in enumerate(payload))


def packed(data: bytes) -> bytes:
    """Return the payload of a compressed message."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]


def unpacked(data: bytes) -> bytes:
    """Return the message of a compressed payload."""
    return zlib.decompressobj(-15).decompress(data + b"\x00\x00\xff\xff")


class HttpSocket:
    """A connection that sends one HTTP request and reads the answer's head."""

    def __init__(self, port: int, timeout_s: float = 10.0, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
        self.data = b""

    def request(self, head: bytes) -> tuple[int, dict[str, str]]:
        """Send `head` and return status and headers (lower case) of the answer; (0, {}): it was closed."""
        self.sock.sendall(head)
        while b"\r\n\r\n" not in self.data:
            if not self.more():
                return 0, {}
        top, _, self.data = self.data.partition(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    def more(self) -> bool:
        """Read more data; return False if the connection has ended."""
        try:
            piece = self.sock.recv(1 << 16)
        except ConnectionError:
            return False
        self.data += piece
        return bool(piece)

    def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        while self.more():
            pass
        return self.data

    def close(self) -> None:
        self.sock.close()


def head_of(path: str = "/", method: str = "GET", **changes: str | None) -> bytes:
    """Return an upgrade request; `changes` are headers with _ in place of -, None removes one."""
    headers: dict[str, str | None] = {**HEADERS}
    for name, value in changes.items():
        wanted = name.replace("_", "-").lower()
        for known in [known for known in headers if known.lower() == wanted]:
            del headers[known]
        headers[name.replace("_", "-")] = value
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


class WebSocketClient(HttpSocket):
    """An upgraded connection."""

    def __init__(
        self,
        port: int,
        timeout_s: float = 10.0,
        context: ssl.SSLContext | None = None,
        path: str = "/",
        **changes: str | None,
    ) -> None:
        super().__init__(port, timeout_s, context)
        self.status, self.headers = self.request(head_of(path, "GET", **changes))
        assert self.status == 101, self.status
        self.messages = b""  # payloads that were read but not yet returned

    def send(self, data: bytes, first: int = FIN | BINARY, masked: bool = True) -> None:
        self.sock.sendall(frame(data, first, masked))

    def raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def next_frame(self) -> Frame | None:
        """Return the next frame, or None if the connection has ended."""
        while True:
            found = self._take()
            if found is not None:
                return found
            if not self.more():
                return None

    def read_until(self, mark: bytes) -> bytes:
        """Return the text up to `mark`; both are removed from the buffer."""
        while mark not in self.messages:
            found = self.next_frame()
            if found is None:
                raise ConnectionError(f"closed after {self.messages!r}")
            self._add(found)
        head, _, self.messages = self.messages.partition(mark)
        return head

    def _add(self, found: Frame) -> None:
        if found.first & 15 == CLOSE:
            raise ConnectionError(found.shown())
        if found.first & 15 in (BINARY, CONTINUATION):
            assert not found.first & RSV1 or found.first & FIN, "compressed fragments are not joined here"
            self.messages += unpacked(found.payload) if found.first & RSV1 else found.payload

    def connect(self, line: bytes = CONNECT) -> WebSocketClient:
        """Log in and wait for the PONG."""
        self.read_until(b"\r\n")  # INFO
        self.send(line + b"PING\r\n")
        self.read_until(b"PONG\r\n")
        return self

    def ending(self) -> list[str]:
        """Return everything until the end: protocol lines, and the close frame as `close <status> <text>`."""
        lines: list[str] = []
        while (found := self.next_frame()) is not None:
            if found.first & 15 in (CLOSE, PONG):
                lines += self._lines()
                lines.append(found.shown())
            else:
                self._add(found)
        return lines + self._lines()

    def _lines(self) -> list[str]:
        text, self.messages = self.messages, b""
        lines = text.decode("latin-1").split("\r\n")
        return [line for line in lines if line and not line.startswith("INFO")]

    def _take(self) -> Frame | None:
        data = self.data
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        assert not data[1] & 0x80, "the server masks its frames"
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(data) < at:
                return None
            size = int.from_bytes(data[2:at], "big")
        if len(data) < at + size:
            return None
        self.data = data[at + size :]
        return Frame(data[0], data[at : at + size])
