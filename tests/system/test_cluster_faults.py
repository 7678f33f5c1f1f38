"""A cluster with faults: servers that leave and join under load, connections that stop silently, a full disk.

PYJS_CLUSTER_CYCLES is the number of times that a server leaves and joins (100 in `make cluster-faults`).
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient, ThreeServers, three
from tests.conformance.harness.process import ServerProcess, free_port, our_command

CYCLES = int(os.environ.get("PYJS_CLUSTER_CYCLES", "4"))
CHUNK = 200  # number of messages between two fences
GROWTH_MAX_KB = 24 * 1024


class Flow:
    """Publishes numbered messages on one server to a subscriber and a queue group on another one."""

    def __init__(self, servers: ThreeServers, publisher: str, subscriber: str) -> None:
        self._from, self._to = servers.client(publisher), servers.client(subscriber)
        self._to.send(b"SUB flow 1\r\nSUB flow G 2\r\nSUB flow G 3\r\n")
        servers.settle(self._from, self._to)
        self.sent = 0

    def go_on(self) -> None:
        """Publish a chunk, and read the messages that have arrived."""
        lines = (b"PUB flow 8\r\n%08d\r\n" % number for number in range(self.sent, self.sent + CHUNK))
        self._from.send(b"".join(lines))
        self._from.fence()
        self._to.fence()
        self.sent += CHUNK

    def until(self, holds: Callable[[], bool]) -> None:
        """Publish until `holds` returns true."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline
            self.go_on()

    def check(self) -> None:
        """Check that every message was received once by the subscriber and once by the group, in order."""
        self._to.wait_for_messages(2 * self.sent)
        frames = self._to.take()
        want = [b"%08d" % number for number in range(self.sent)]
        assert [frame[4] for frame in frames if frame[1] == b"1"] == want
        assert [frame[4] for frame in frames if frame[1] != b"1"] == want


def resident_kb(server: ServerProcess) -> int:
    """Return the resident memory of a server in KiB."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path) as running:
        yield running


def test_no_message_is_lost_while_another_server_leaves_and_joins(servers: ThreeServers) -> None:
    flow = Flow(servers, "a", "b")
    third = servers.server("c")
    subscriptions = servers.page("a", "/subsz")["num_subscriptions"]
    first_kb: dict[str, int] = {}
    for cycle in range(CYCLES):
        guest = servers.client("c")
        guest.send(
            b"".join(b"SUB guest.%d.%d %d\r\n" % (cycle, n, n) for n in range(500)) + b"SUB flow 1000\r\n"
        )
        flow.until(lambda: servers.page("a", "/subsz")["num_subscriptions"] > subscriptions)
        if cycle % 2:
            third.kill()
        else:
            third.signal("TERM")
        flow.until(lambda: all(servers.page(name, "/varz")["remotes"] == 1 for name in "ab"))
        flow.until(lambda: servers.page("a", "/subsz")["num_subscriptions"] <= subscriptions)
        third.kill()
        third.start()
        flow.until(lambda: all(servers.page(name, "/varz")["remotes"] == 2 for name in NAMES))
        if not first_kb:
            first_kb = {name: resident_kb(servers.server(name)) for name in "ab"}
    flow.check()
    for name, before_kb in first_kb.items():
        assert resident_kb(servers.server(name)) - before_kb < GROWTH_MAX_KB


class Relay:
    """A TCP relay that can stop relaying without closing anything, as a network does."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._dead: list[socket.socket] = []  # sockets that are neither read nor closed
        self._dark = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def darken(self) -> None:
        """Relay nothing any more, on neither existing nor new connections."""
        self._dark.set()

    def mend(self) -> None:
        """Relay new connections; old ones stay silent."""
        self._dark.clear()

    def close(self) -> None:
        """Stop relaying, and close all connections."""
        self._stopped.set()
        self._thread.join()
        for each in (self._listener, *self._pairs, *self._dead):
            each.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            if self._dark.is_set():
                self._dead += self._pairs
                self._pairs.clear()
            ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0.02)
            for each in ready:
                if each is self._listener:
                    self._accept()
                else:
                    self._pass_on(each)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        with suppress(OSError):
            far = socket.create_connection(("127.0.0.1", self._target))
            self._pairs.update({near: far, far: near})

    def _pass_on(self, source: socket.socket) -> None:
        target = self._pairs.get(source)
        if target is None:
            return
        try:
            data = source.recv(1 << 16)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for end in (source, target):
            self._pairs.pop(end, None)
            end.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess, Relay]]:
    """Yield two servers whose routes pass through a relay."""
    port, other = free_port(), free_port()
    relay, back = Relay(port), Relay(other)
    blocks = (
        f'listen: "127.0.0.1:{port}", advertise: "127.0.0.1:{relay.port}"',
        f'listen: "127.0.0.1:{other}", advertise: "127.0.0.1:{back.port}", routes: [nats://127.0.0.1:{relay.port}]',
    )
    found = []
    for name, block in zip("xy", blocks, strict=True):
        (tmp_path / name).mkdir()
        config = f"cluster {{ name: T, {block} }}"
        found.append(ServerProcess(our_command(), config, tmp_path / name, with_http=True, name=name))
    x, y = found
    try:
        x.start()
        y.start()
        assert y.logged('Route to the server "x" is open', WAIT_S)
        yield x, y, relay
    finally:
        x.kill()
        y.kill()
        relay.close()
        back.close()


def test_a_connection_that_died_in_silence_is_noticed_and_replaced(
    pair: tuple[ServerProcess, ServerProcess, Relay],
) -> None:
    x, y, relay = pair
    here, there = NodeClient(x.port), NodeClient(y.port)
    there.send(b"SUB late 1\r\n")
    there.fence()
    relay.darken()
    for server in (x, y):
        assert server.logged("no heartbeat for", WAIT_S)
        assert server.logged("the route is closed", WAIT_S)
    here.send(b"PUB late _INBOX.x 0\r\n\r\nSUB _INBOX.x 9\r\n")
    relay.mend()
    deadline = time.monotonic() + WAIT_S
    while not there.frames:
        assert time.monotonic() < deadline
        here.send(b"PUB late 2\r\nhi\r\n")
        here.fence()
        there.fence()
    assert there.frames[0][4] == b"hi"


def test_a_server_whose_log_is_on_a_full_disk_goes_on_in_the_cluster(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    directories = [tmp_path / name for name in "xy"]
    for each in directories:
        each.mkdir()
    route = f"routes: [nats://127.0.0.1:{ports[0]}]"
    y = ServerProcess(
        our_command(), f'cluster {{ name: T, listen: "127.0.0.1:{ports[1]}", {route} }}', directories[1], True
    )
    x = ServerProcess(
        our_command(), f'cluster {{ name: T, listen: "127.0.0.1:{ports[0]}" }}', directories[0], True
    )
    try:
        x.start()
        config = directories[0] / "server.conf"
        config.write_text(config.read_text() + 'log_file: "/dev/full"\n')
        x.signal("HUP")
        y.start()
        assert y.logged("is open", WAIT_S)
        here, there = NodeClient(x.port), NodeClient(y.port)
        there.send(b"SUB full 1\r\n")
        there.fence()
        deadline = time.monotonic() + WAIT_S
        while not there.frames:
            assert time.monotonic() < deadline
            here.send(b"PUB full 2\r\nhi\r\n")
            here.fence()
            there.fence()
        y.kill()
        y.start()
        assert y.logged("is open", WAIT_S)
        here.fence()
    finally:
        x.kill()
        y.kill()
