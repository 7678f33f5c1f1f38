"""A client that only pings, in a process of its own: how long does a quiet connection wait meanwhile?

python benchmarks/quiet.py PORT     pings until standard input ends, then prints p50, p99 and max in ms
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

INTERVAL_S = 0.001


class Quiet:
    """The pinging process, alive inside the `with` block; `result` has what it saw."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.result: dict[str, float] = {}

    def __enter__(self) -> Quiet:
        command = [sys.executable, str(Path(__file__)), str(self._port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._process.communicate(timeout=60)
        self.result = json.loads(out)


def main(port: int) -> None:
    """Ping until standard input ends."""
    ended = threading.Event()
    client = socket.create_connection(("127.0.0.1", port), timeout=300)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(b'CONNECT {"verbose":false}\r\n')
    _ping(client)
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waits = []
    while not ended.is_set():
        started = time.perf_counter()
        _ping(client)
        waits.append(time.perf_counter() - started)
        time.sleep(INTERVAL_S)
    waits = sorted(waits) or [0.0]
    shares = {"p50": waits[len(waits) // 2], "p99": waits[int(len(waits) * 0.99)], "max": waits[-1]}
    print(json.dumps({"pings": len(waits)} | {name: round(1000 * wait, 3) for name, wait in shares.items()}))


def _ping(client: socket.socket) -> None:
    client.sendall(b"PING\r\n")
    got = b""
    while b"PONG\r\n" not in got:
        data = client.recv(4096)
        if not data:
            raise SystemExit("the server closed the connection")
        got += data


if __name__ == "__main__":
    main(int(sys.argv[1]))
