"""Rates over WebSocket compared with nats-server: clients send one frame for each PUB, as common clients do.

    python benchmarks/websocket.py [--messages N] [--rounds N] [--size BYTES]

The load is prepared before the clock starts, so that the client costs little. The server that is measured first
alternates; the ratio of medians is printed. Source: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

WAIT_S = 60.0
WINDOW = 1 << 16  # number of bytes sent at once
REQUEST = (
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n"
)
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
KEY = b"\x37\xfa\x21\x3d"


def frame(payload: bytes, compressed: bool) -> bytes:
    """Return one masked frame; the payload is compressed if `compressed`."""
    if compressed:
        stream = zlib.compressobj(1, zlib.DEFLATED, -15)
        payload = (stream.compress(payload) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
    size = len(payload)
    first = 0xC2 if compressed else 0x82
    head = bytes((first, 0x80 | size)) if size < 126 else struct.pack(">BBH", first, 0xFE, size)
    mask = int.from_bytes(KEY * (size // 4 + 1), "big") >> 8 * (4 - size % 4)
    return head + KEY + (int.from_bytes(payload, "big") ^ mask).to_bytes(size, "big")


class Line:
    """One WebSocket connection."""

    def __init__(self, port: int, compressed: bool) -> None:
        self._at = 0  # the offset of the next frame in `_data`
        self.sock = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n" if compressed else ""
        self.sock.sendall(REQUEST.format(extension).encode())
        self._data = b""
        while b"\r\n\r\n" not in self._data:
            self._data += self.sock.recv(65536)
        self._data = self._data.partition(b"\r\n\r\n")[2]

    def send(self, payload: bytes) -> None:
        """Send `payload` in one frame."""
        self.sock.sendall(frame(payload, False))

    def count(self, mark: bytes, wanted: int) -> None:
        """Read until `mark` was received `wanted` times."""
        seen, tail = 0, b""
        while seen < wanted:
            text = self._more()
            joined = tail + text
            seen += joined.count(mark)
            tail = joined[-len(mark) + 1 :]

    def _more(self) -> bytes:
        """Return the payloads of the next frames."""
        while not (text := b"".join(iter(self._message, None))):
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._data, self._at = self._data[self._at :] + data, 0
        return text

    def _message(self) -> bytes | None:
        data, at = self._data, self._at + 2
        if len(data) < at + 8 and (len(data) < at or data[at - 1] >= 126 or len(data) < at + data[at - 1]):
            return None
        size = data[at - 1]
        if size >= 126:
            end = at + (2 if size == 126 else 8)
            size, at = int.from_bytes(data[at:end], "big"), end
        if len(data) < at + size:
            return None
        payload, first = data[at : at + size], data[self._at]
        self._at = at + size
        if first & 0x40:
            return zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff")
        return payload


def one_to_one(port: int, messages: int, size: int, compressed: bool) -> float:
    """Return the messages per second from one publisher to one subscriber."""
    reader, writer = Line(port, compressed), Line(port, compressed)
    reader.send(CONNECT + b"SUB foo.bar 1\r\nPING\r\n")
    reader.count(b"PONG\r\n", 1)
    writer.send(CONNECT)
    load = frame(b"PUB foo.bar %d\r\n%b\r\n" % (size, b"x" * size), compressed) * messages
    counting = threading.Thread(target=reader.count, args=(b"MSG foo.bar 1 ", messages))
    started = time.perf_counter()
    counting.start()
    writer.sock.sendall(load)
    counting.join()
    return messages / (time.perf_counter() - started)


def async_publish(port: int, messages: int, size: int, compressed: bool) -> float:
    """Return the PubAcks per second of one publisher that does not wait for each PubAck."""
    line = Line(port, compressed)
    config = b'{"name":"WS","subjects":["ws.>"],"storage":"file"}'
    line.send(CONNECT + b"SUB inbox.> 1\r\nPUB $JS.API.STREAM.DELETE.WS inbox.d 0\r\n\r\n")
    line.send(b"PUB $JS.API.STREAM.CREATE.WS inbox.c %d\r\n%b\r\n" % (len(config), config))
    line.count(b"io.nats.jetstream.api.v1.stream_create_response", 1)
    load = frame(b"PUB ws.a inbox.a %d\r\n%b\r\n" % (size, b"x" * size), compressed) * messages
    counting = threading.Thread(target=line.count, args=(b'"seq":', messages))
    started = time.perf_counter()
    counting.start()
    for at in range(0, len(load), WINDOW):
        line.sock.sendall(load[at : at + WINDOW])
    counting.join()
    return messages / (time.perf_counter() - started)


ROWS: dict[str, tuple[Callable[[int, int, int, bool], float], bool]] = {
    "1-1": (one_to_one, False),
    "1-1, compressed": (one_to_one, True),
    "JetStream async publish, file": (async_publish, False),
    "JetStream async publish, file, compressed": (async_publish, True),
}


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rates(command: list[str], row: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the rate of one row on a new server, and the server's processor seconds per million messages."""
    work, compressed = ROWS[row]
    with socket.socket() as probe, socket.socket() as other:
        for each in (probe, other):
            each.bind(("127.0.0.1", 0))
        port, client_port = probe.getsockname()[1], other.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "server.conf"
        config.write_text(
            f'listen: "127.0.0.1:{client_port}"\njetstream {{ store_dir: "{directory}/store" }}\n'
            f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true, compression: {str(compressed).lower()} }}\n'
        )
        log = Path(directory) / "log"
        with log.open("wb") as output:
            server = subprocess.Popen([*command, "-c", str(config)], stdout=output, stderr=output)
        try:
            end = time.monotonic() + WAIT_S
            while b"Server is ready" not in log.read_bytes() and time.monotonic() < end:
                time.sleep(0.01)
            work(port, options.messages // 10, options.size, compressed)  # warm-up
            before = cpu_seconds(server.pid)
            rate = work(port, options.messages, options.size, compressed)
            return rate, (cpu_seconds(server.pid) - before) * 1e6 / options.messages
        finally:
            server.kill()
            server.wait()


def main() -> int:
    """Run all rows and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128)
    options = parser.parse_args()
    peer = Path(sys.executable).parent / "nats-server"
    sides = {"us": [sys.executable, "-m", "pyjs"], "peer": [os.fspath(peer)]}
    print(
        "| work | us, 1/s | peer, 1/s | us / peer | CPU s for a million, us / peer |\n|---|---|---|---|---|"
    )
    for row in ROWS:
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for number in range(options.rounds):
            for side in list(sides) if number % 2 == 0 else list(sides)[::-1]:
                found[side].append(rates(sides[side], row, options))
        ours, theirs = (statistics.median(rate for rate, _ in found[side]) for side in ("us", "peer"))
        cpu = " / ".join(f"{statistics.median(cpu for _, cpu in found[side]):.2f}" for side in ("us", "peer"))
        print(f"| {row} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} | {cpu} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
