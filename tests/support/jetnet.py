"""JetStream clusters on a simulated network: real nodes with stores in a directory, and clients."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.simnet import PORT, SimNet, SimServer

from pyjs.base.clock import NS_PER_MS
from pyjs.config.options import Options, RouteUrl
from pyjs.jetstream.member.member_node import MemberNode
from pyjs.testing.node import RawClient

TRIO = ("a", "b", "c")
LOG_FILE_SIZE = 1 << 20


class JetServer(SimServer):
    """A server with JetStream; jobs for threads are done at once."""

    def __init__(self, net: SimNet, name: str, options: Options) -> None:
        super().__init__(net, name, options)
        self.node.disk = net.disk()
        self.node.start_jetstream()

    def wake(self) -> None:
        """Run turns and jobs until nothing is left."""
        super().wake()
        turn = self.node.turn_state
        while turn.jobs and self.alive and not self.paused:
            for job in turn.take("jobs"):
                failure: Exception | None = None
                try:
                    job.run()
                except Exception as error:
                    failure = error
                turn.finished.append((job, failure))
            super().wake()

    turn = wake

    @property
    def member(self) -> MemberNode:
        """The server's member of the cluster."""
        assert self.node.jetstream is not None
        member = self.node.jetstream.shared.member
        assert member is not None
        return member

    @property
    def streams(self) -> list[str]:
        """The names of the streams that are open on this server."""
        assert self.node.jetstream is not None
        return sorted(self.node.jetstream.accounts["$G"].streams)

    def errors(self) -> list[str]:
        """Return the logged errors, except those about routes."""
        return [text for level, text in self.log.lines if level == "ERR" and "trying to connect" not in text]


class JetNet(SimNet):
    """A network of such servers; each has the addresses of all servers."""

    server = JetServer

    def __init__(self, directory: Path, seed: int = 1) -> None:
        super().__init__(seed)
        self.directory = directory
        self._requests = count(1)
        self.tags: dict[str, tuple[str, ...]] = {}  # tags of servers that start, by name
        for number, name in enumerate(TRIO, 1):
            self.hosts[name] = f"10.0.0.{number}"

    def begin(self, name: str) -> JetServer:
        """Start a server, or restart it with its store."""
        options = Options(server_name=name)
        options.cluster.name, options.cluster.port = "SIM", PORT
        options.cluster.routes = tuple(RouteUrl(self.hosts[each], PORT, "", "") for each in TRIO)
        options.server_tags = self.tags.get(name, ())
        options.jetstream.enabled = True
        options.jetstream.store_dir = str(self.directory / name)
        options.jetstream.max_memory = options.jetstream.max_storage = 1 << 30
        server = self.server(self, name, options)
        self.servers[name] = server
        server.cluster.options.host = server.host
        server.cluster.start()
        server.wake()
        return server

    def trio(self) -> list[JetServer]:
        """Start three servers, and wait until they are ready."""
        servers = [self.begin(name) for name in TRIO]
        self.ready()
        return servers

    def crash(self, name: str) -> None:
        """Kill a server as kill -9 does: its files stay as they are, and its lock is released."""
        jetstream = self.kill(name).node.jetstream
        assert jetstream is not None
        assert jetstream._lock is not None
        jetstream._lock.release()

    def jet(self, name: str) -> JetServer:
        """Return the server with this name."""
        server = self.servers[name]
        assert isinstance(server, JetServer)
        return server

    def living(self) -> list[JetServer]:
        """Return the running servers."""
        return [self.jet(name) for name in self.servers]

    def ready(self) -> None:
        """Wait until all running servers know a leader and each other, and have caught up."""
        self.run_until(lambda: all(map(self._is_ready, self.living())))

    def _is_ready(self, server: JetServer) -> bool:
        member = server.member
        known = member.machine.state.servers
        return member.machine.leader != 0 and member.is_caught_up and len(known) >= len(self.servers)

    def leader(self) -> JetServer:
        """Return the server that is the leader of the metadata group."""
        self.run_until(lambda: any(server.member.machine.leads for server in self.living()))
        return next(server for server in self.living() if server.member.machine.leads)

    def ask(self, client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
        """Send a request and return its answer; more than one answer is an error."""
        (answer,) = self.answers(client, subject, body)
        return answer

    def answers(
        self, client: RawClient, subject: str, body: object = None, wait_ms: int = 100
    ) -> list[dict[str, Any]]:
        """Return all answers to a request that arrive within `wait_ms`."""
        number = next(self._requests)
        data = b"" if body is None else json.dumps(body).encode()
        inbox = b"_INBOX.%d" % number
        client.send(
            b"SUB %b %d\r\nPUB $JS.API.%b %b %d\r\n%b\r\n"
            % (inbox, number, subject.encode(), inbox, len(data), data)
        )
        self.run(wait_ms * NS_PER_MS)
        return [json.loads(frame.payload) for frame in client.frames() if frame.subject == inbox]

    def create(self, client: RawClient, name: str, **options: object) -> dict[str, Any]:
        """Create a stream."""
        return self.ask(
            client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()], **options}
        )

    def publish(self, server: JetServer, subject: str, count: int = 5) -> list[int]:
        """Publish through a server, in sequence; return the acknowledged sequences."""
        client = server.client()
        seqs = []
        for _ in range(count):
            client.send(b"SUB _INBOX.p 1\r\nPUB %b _INBOX.p 2\r\nhi\r\n" % subject.encode())
            self.run(50 * NS_PER_MS)
            frames = client.frames()
            seqs += [json.loads(frame.payload)["seq"] for frame in frames if frame.payload[:1] == b"{"]
            client.send(b"UNSUB 1\r\n")
        return seqs

    def stop(self) -> None:
        """Stop all servers in order."""
        for server in self.living():
            server.node.stop()
