"""Three servers of one cluster, ours or nats-server's, and clients whose waits end with an event."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, free_port

WAIT_S = 60.0
NAMES = ("a", "b", "c")
CONNECT: dict[str, object] = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "protocol": 1,
    "echo": True,
}
Frame = tuple[bytes, bytes, bytes, bytes, bytes]  # subject, sid, reply, headers, payload


class NodeClient:
    """One client of one server; it reads messages until the server has answered a PING."""

    def __init__(self, port: int, **options: object) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.frames: list[Frame] = []
        self.infos: list[dict[str, Any]] = []
        self.errors: list[bytes] = []
        self.send(b"CONNECT " + json.dumps(CONNECT | options).encode() + b"\r\n")
        self.fence()

    def send(self, data: bytes) -> None:
        """Send protocol lines."""
        self._socket.sendall(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fence(self) -> None:
        """Wait until the server has handled everything sent so far, and read the messages that have come."""
        self.send(b"PING\r\n")
        self._read_until(lambda verb: verb == b"PONG")

    def wait_for(self, subject: bytes) -> list[Frame]:
        """Wait for a message of `subject`, and return all that came before it."""
        while not any(frame[0] == subject for frame in self.frames):
            self._step()
        at = next(n for n, frame in enumerate(self.frames) if frame[0] == subject)
        before, self.frames = self.frames[:at], self.frames[at + 1 :]
        return [frame for frame in before if not frame[0].startswith(b"fence.")]

    def wait_for_any(self) -> None:
        """Wait for at least one message."""
        self.wait_for_messages(1)

    def wait_for_messages(self, count: int) -> None:
        """Wait until `count` messages were read."""
        while len(self.frames) < count:
            self._step()

    def wait_info(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for an INFO for which `holds` is true."""
        while not any(holds(info) for info in self.infos):
            self._step()
        return next(info for info in self.infos if holds(info))

    def skip(self, size: int) -> None:
        """Read `size` bytes and discard them, as fast as a client can."""
        room = bytearray(1 << 20)
        while size > 0:
            got = self._socket.recv_into(room)
            if not got:
                raise ConnectionError("the server closed the connection")
            size -= got

    def take(self) -> list[Frame]:
        """Return the messages that were read, and clear them."""
        frames, self.frames = self.frames, []
        return frames

    def _read_until(self, ends: Callable[[bytes], bool]) -> None:
        while not ends(self._step()):
            pass

    def _step(self) -> bytes:
        """Read one operation; return its verb."""
        line = self._line()
        words = line.split()
        verb = words[0] if words else b""
        if verb in (b"MSG", b"HMSG"):
            with_headers = verb == b"HMSG"
            size, head = int(words[-1]), int(words[-2]) if with_headers else 0
            reply = words[3] if len(words) > (5 if with_headers else 4) else b""
            body = self._exactly(size + 2)[:size]
            self.frames.append((words[1], words[2], reply, body[:head], body[head:]))
        elif verb == b"INFO":
            self.infos.append(json.loads(line[5:]))
        elif verb == b"-ERR":
            self.errors.append(line)
        elif verb == b"PING":
            self.send(b"PONG\r\n")
        return verb

    def _line(self) -> bytes:
        while b"\r\n" not in self._data:
            self._more()
        line, _, self._data = self._data.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            self._more()
        found, self._data = self._data[:size], self._data[size:]
        return found

    def _more(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._data += data


class ThreeServers:
    """Three servers of one kind that know each other; more or fewer if `names` has another length."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        common: str = "",
        block: str = "",
        own: dict[str, str] | None = None,
        names: tuple[str, ...] = NAMES,
    ) -> None:
        self.names = names
        self.routes = [free_port() for _ in names]
        self._servers: dict[str, ServerProcess] = {}
        for name, route in zip(names, self.routes, strict=True):
            (directory / name).mkdir(parents=True)
            others = ", ".join(f"nats://127.0.0.1:{port}" for port in self.routes if port != route)
            cluster = f'name: TRIO, listen: "127.0.0.1:{route}", routes: [{others}]'
            config = f"{common}\n{(own or {}).get(name, '')}\ncluster {{ {cluster}\n{block} }}"
            self._servers[name] = ServerProcess(
                command, config, directory / name, with_http=True, name=name, may_fork=True
            )
        self._clients: list[NodeClient] = []
        self._fences = 0

    def start(self) -> None:
        """Start all servers, and wait until each has routes to the others."""
        self.start_processes(*self.names)
        for name in self.names:
            self.wait_page(name, "/varz", lambda page: page["remotes"] == len(self.names) - 1)

    def start_processes(self, *names: str) -> None:
        """Start some servers at the same time."""
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(lambda name: self._servers[name].start(), names):
                pass

    def server(self, name: str) -> ServerProcess:
        """Return the server with this name."""
        return self._servers[name]

    def release(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    def kill(self) -> None:
        """Close all clients and kill all servers."""
        self.release()
        for server in self._servers.values():
            server.kill()

    def client(self, server: str, **options: object) -> NodeClient:
        """Return a new client of the server with this name."""
        client = NodeClient(self._servers[server].port, **options)
        self._clients.append(client)
        return client

    def page(self, name: str, path: str) -> Any:
        """Return a page of a server's monitoring port."""
        url = f"http://127.0.0.1:{self._servers[name].http_port}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
            return json.load(reply)

    def wait_page(self, name: str, path: str, holds: Callable[[Any], bool]) -> Any:
        """Poll a page until `holds` is true of it: no event signals a change."""
        deadline = time.monotonic() + WAIT_S
        while not holds(page := self.page(name, path)):
            assert time.monotonic() < deadline, page
            time.sleep(0.01)
        return page

    def wait_healthy(self, name: str) -> None:
        """Wait until a server reports that it is healthy."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(urllib.error.HTTPError):
                self.page(name, "/healthz")
                return
            assert time.monotonic() < deadline, name
            time.sleep(0.01)  # polling: no event signals that a page has changed

    def settle(self, *clients: NodeClient) -> None:
        """Wait until every server knows all subscriptions of `clients`."""
        self._fences += 1
        marks = [b"fence.%d.%d" % (self._fences, number) for number in range(len(clients))]
        for client, mark in zip(clients, marks, strict=True):
            client.send(b"SUB %b fence\r\n" % mark)
            client.fence()
        for asker in clients:
            for client, mark in zip(clients, marks, strict=True):
                if client is not asker:
                    self._wait_known(asker, mark)
        for client in clients:
            client.send(b"UNSUB fence\r\n")
            client.fence()
            client.frames = [frame for frame in client.frames if not frame[0].startswith(b"fence.")]

    def _wait_known(self, asker: NodeClient, mark: bytes) -> None:
        deadline = time.monotonic() + WAIT_S
        asker.send(b"SUB _INBOX.fence fence.in\r\n")
        while True:
            kept, asker.frames = asker.frames, []
            asker.send(b"PUB %b _INBOX.fence 0\r\n\r\n" % mark)
            asker.fence()
            refused = any(frame[0] == b"_INBOX.fence" for frame in asker.frames)
            asker.frames = kept + [frame for frame in asker.frames if frame[0] != b"_INBOX.fence"]
            if not refused:
                break
            assert time.monotonic() < deadline, mark
        asker.send(b"UNSUB fence.in\r\n")

    def seen(self, publisher: NodeClient, receivers: dict[str, NodeClient]) -> dict[str, list[Frame]]:
        """Return the messages that each receiver has got of those that `publisher` has sent so far."""
        self._fences += 1
        mark = b"end.%d" % self._fences
        for receiver in receivers.values():
            receiver.send(b"SUB end.%d end\r\n" % self._fences)
        self.settle(publisher, *receivers.values())
        publisher.send(b"PUB %b 0\r\n\r\n" % mark)
        found = {name: receiver.wait_for(mark) for name, receiver in receivers.items()}
        for receiver in receivers.values():
            receiver.send(b"UNSUB end\r\n")
        return found


def counted(frames: dict[str, list[Frame]]) -> dict[str, dict[bytes, int]]:
    """Return the number of messages by receiver and sid."""
    return {name: dict(sorted(Counter(frame[1] for frame in each).items())) for name, each in frames.items()}


@contextmanager
def three(
    command: list[str],
    directory: Path,
    common: str = "",
    block: str = "",
    own: dict[str, str] | None = None,
    names: tuple[str, ...] = NAMES,
) -> Iterator[ThreeServers]:
    """Start three servers, or those of `names`; kill them at the end.

    `own` maps a server's name to further lines of its configuration.
    """
    servers = ThreeServers(command, directory, common, block, own, names)
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()
