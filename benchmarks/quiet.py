"""A client in a separate process that only pings, to measure how long a quiet connection waits.

    python benchmarks/quiet.py PORT [CONNECT]    pings until standard input ends, then prints p50, p99 and max in ms

p50 and p99 are computed as if the client sent a ping every INTERVAL_S, even while it waits for an answer. So a server
that is busy for a second delays a thousand pings, and each of them waits one interval less than the one before it.
The pinging ends if a ping has no answer within UNANSWERED_S, or if the connection is closed. Then `served` is false,
and the wait until that moment counts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

INTERVAL_S = 0.001
UNANSWERED_S = 60.0
CONNECT = 'CONNECT {"verbose":false}'


class Quiet:
    """The pinging process, which runs inside the `with` block; `result` has its measurements."""

    def __init__(self, port: int, connect: str = CONNECT) -> None:
        self._port = port
        self._connect = connect
        self.result: dict[str, float] = {}

    def __enter__(self) -> Quiet:
        command = [sys.executable, str(Path(__file__)), str(self._port), self._connect]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._process.communicate(timeout=UNANSWERED_S + 60)
        self.result = json.loads(out)

    def latencies_us(self) -> dict[str, float]:
        """Return p50, p99 and max in us, in the form of the driver.

        Raises:
            ConnectionError: the server did not answer the quiet client.
        """
        if not self.result["served"]:
            raise ConnectionError("the quiet client was not served")
        return {name: 1000 * self.result[name] for name in ("p50", "p99", "max")}


def main(port: int, connect: str = CONNECT) -> None:
    """Send pings until standard input ends."""
    with suppress(PermissionError):
        os.nice(-10)  # the wait should be for the server, not for a processor for this process
    ended = threading.Event()
    client, served = _connected(port, connect)
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waits = []
    while served and not ended.is_set():
        started = time.perf_counter()
        served = _ping(client)
        waits.append(time.perf_counter() - started)
        time.sleep(INTERVAL_S)
    pings = len(waits)
    waits = sorted(every for wait in waits for every in _met(wait)) or [0.0]
    shares = {"p50": waits[len(waits) // 2], "p99": waits[int(len(waits) * 0.99)], "max": waits[-1]}
    figures = {name: round(1000 * wait, 3) for name, wait in shares.items()}
    print(json.dumps({"pings": pings, "served": served} | figures))


def _connected(port: int, connect: str) -> tuple[socket.socket, bool]:
    """Return a connection, and whether it has logged in.

    The login is repeated for UNANSWERED_S, since a server that is busy with earlier work may let a login wait too
    long.
    """
    until = time.monotonic() + UNANSWERED_S
    while True:
        client = socket.create_connection(("127.0.0.1", port), timeout=UNANSWERED_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            client.sendall(connect.encode() + b"\r\n")
        if _ping(client):
            return client, True
        if time.monotonic() > until:
            return client, False
        client.close()
        time.sleep(INTERVAL_S)


def _met(wait: float) -> list[float]:
    """Return the waits of all pings that would have been sent during one wait."""
    return [wait - INTERVAL_S * number for number in range(int(wait / INTERVAL_S) or 1)]


def _ping(client: socket.socket) -> bool:
    """Return whether the PONG arrived."""
    try:
        client.sendall(b"PING\r\n")
        got = b""
        while b"PONG\r\n" not in got:
            data = client.recv(4096)
            if not data:
                return False
            got += data
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
