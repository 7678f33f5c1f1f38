"""Mutated protocol sequences over TCP against a real process: no descriptor and no memory remains.

PYJS_FUZZ_SOCKET_CASES is the number of connections, in two batches; `make fuzz` runs more.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import socket
import struct
import time
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.fuzz.mutate import case
from tests.support.raw import RawClient

CASES = int(os.environ.get("PYJS_FUZZ_SOCKET_CASES", "20000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
TOGETHER = 50  # connections that are open at the same time
# maximum growth in bytes over all cases: they may leave messages in the stream, but no sessions
GROWTH_MAX = (3 << 20) + CASES // 2 * 60
WAIT_S = 20.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST
CONFIG = 'jetstream: {store_dir: "<<store>>"}\nmax_closed_clients: 10\nmax_control_line: 2048'


class Target:
    """The server under attack, with the size of its process."""

    def __init__(self, directory: Path) -> None:
        self.server = ServerProcess(our_command(), CONFIG, directory, with_http=False)
        self.server.start()
        self.log_path = directory / "log"
        self.pid = int(re.findall(rb"\[(\d+)\]", self.log_path.read_bytes())[0])
        self.sources = itertools.cycle(
            range(1, 200)
        )  # loopback addresses: one has ports for 28,000 connections

    def serves(self) -> None:
        """Publish and subscribe; publish to a stream, then fetch and acknowledge a message."""
        client = RawClient(self.server.port)
        client.send(b"SUB plain 2\r\nPUB plain 5\r\nhello\r\n")
        assert next(client.frames())[0] == b"plain"
        assert json.loads(client.request(b"f.serves", b"x"))["stream"] == "F"
        client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.F.c _INBOX.raw.next 1\r\n1\r\n")
        _, reply, _, _ = next(client.frames())
        assert client.request(reply, b"+ACK") == b""
        client.close()

    def sockets(self) -> int:
        """Return the number of open sockets of the process."""
        return sum(name.startswith("socket:") for name in self.descriptors())

    def descriptors(self) -> list[str]:
        names = []
        for entry in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                names.append(os.readlink(f"/proc/{self.pid}/fd/{entry}"))
        return names

    def resident_size(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def wait_for_sockets(self, count: int) -> None:
        end = time.monotonic() + WAIT_S
        while self.sockets() > count:
            assert time.monotonic() < end, f"{self.sockets()} sockets are open, {count} were at the start"
            time.sleep(0.01)  # the server notices closed connections a little later

    def play(self, numbers: range) -> None:
        """Play cases concurrently; their reads alternate."""
        for start in range(numbers.start, numbers.stop, TOGETHER):
            source = next(self.sources)
            playing = [
                (number, self.connect(source), case(SEED, number))
                for number in range(start, min(start + TOGETHER, numbers.stop))
            ]
            for sent in itertools.zip_longest(*(reads for _, _, reads in playing)):
                for (_, client, _), read in zip(playing, sent, strict=True):
                    send(client, read or b"")
            for number, client, _ in playing:
                end(number, client)

    def connect(self, source: int) -> socket.socket:
        address = ("127.0.0.1", self.server.port)
        client = socket.create_connection(address, WAIT_S, source_address=(f"127.0.0.{source}", 0))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client


def send(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the server has closed it
        client.sendall(data)


def end(number: int, client: socket.socket) -> None:
    """End a connection by a reset, in the middle of a sequence, or after the server has sent everything."""
    with client:
        if number % 3 == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif number % 3 == 1:
            with contextlib.suppress(ConnectionError):
                hear_out(client)


def hear_out(client: socket.socket) -> None:
    """Close our direction, and read until the server closes the connection."""
    try:
        client.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # otherwise the server has closed it
            raise
    while client.recv(1 << 16):
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors and memory are read from /proc")
def test_mutated_sequences_over_tcp_leave_nothing_behind(tmp_path: Path) -> None:
    target = Target(tmp_path)
    try:
        sockets = target.sockets()
        client = RawClient(target.server.port)
        client.api("STREAM.CREATE.F", name="F", subjects=["f.>"], max_msgs=1000)
        config = {"durable_name": "c", "ack_policy": "explicit"}
        client.api("CONSUMER.DURABLE.CREATE.F.c", stream_name="F", config=config)
        client.close()
        target.serves()
        target.wait_for_sockets(sockets)
        descriptors = len(target.descriptors())

        target.play(range(CASES // 2))
        target.wait_for_sockets(sockets)
        warm = target.resident_size()
        target.play(range(CASES // 2, CASES))

        target.wait_for_sockets(sockets)
        target.serves()
        target.wait_for_sockets(sockets)
        assert len(target.descriptors()) <= descriptors
        assert target.resident_size() - warm < GROWTH_MAX
        log = target.log_path.read_text("utf-8", "replace")
        assert "Traceback" not in log
        assert "unexpected failure" not in log
    finally:
        target.server.kill()
