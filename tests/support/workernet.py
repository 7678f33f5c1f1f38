"""The workers of one server on a simulated network: real nodes that share their streams, and clients."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.jetnet import JetServer
from tests.support.simnet import LONG_NS, SimNet

from pyjs.config.options import Options, Worker
from pyjs.config.ports.workers import place_worker, socket_path
from pyjs.jetstream.spread.spread_node import SpreadNode
from pyjs.testing.node import RawClient

NAME = "sim"
DOMAIN = "hub"


class WorkerServer(JetServer):
    """One worker of the server."""

    @property
    def spread(self) -> SpreadNode:
        """The part of the worker that shares its streams with the others."""
        assert self.node.jetstream is not None
        spread = self.node.jetstream.shared.spread
        assert spread is not None
        return spread


class WorkerNet(SimNet):
    """The workers of one server, by number."""

    def __init__(self, directory: Path, workers: int, seed: int = 1, jitter_ns: int = 0) -> None:
        super().__init__(seed, jitter_ns)
        self._directory, self._count = directory, workers
        self._requests = count(1)
        self._answer_ns = LONG_NS + 10 * jitter_ns
        for number in range(1, workers + 1):
            self.begin(number)
        self.run_until(lambda: all(map(self._is_ready, range(1, workers + 1))))

    def begin(self, number: int) -> None:
        """Start a worker, or restart it with its store."""
        options = Options(server_name=NAME)
        options.jetstream.enabled = options.jetstream.spread_workers = True
        options.jetstream.store_dir, options.jetstream.domain = str(self._directory / str(number)), DOMAIN
        worker = Worker(number, self._count, NAME, 0, directory="/sim")
        options = place_worker(options, worker)
        self.hosts[options.server_name] = socket_path(worker, number)
        server = WorkerServer(self, options.server_name, options)
        self.servers[server.name] = server
        server.cluster.start()
        server.wake()

    def worker(self, number: int) -> WorkerServer:
        """Return a worker."""
        server = self.servers[f"{NAME}-{number}"]
        assert isinstance(server, WorkerServer)
        return server

    def _is_ready(self, number: int) -> bool:
        spread = self.worker(number).spread
        return self.whole() and spread.has_met and len(spread.online) == self._count - 1

    def ask(self, client: RawClient, words: str, body: object = None) -> dict[str, Any]:
        """Send an API request and return its answer; more than one answer is an error."""
        inbox = b"_INBOX.%d" % next(self._requests)
        data = b"" if body is None else json.dumps(body).encode()
        request = b"PUB $JS.API.%b %b %d\r\n%b\r\n" % (words.encode(), inbox, len(data), data)
        client.send(b"SUB %b i\r\n" % inbox + request)
        self.run(self._answer_ns)
        (answer,) = [json.loads(frame.payload) for frame in client.frames() if frame.subject == inbox]
        client.send(b"UNSUB i\r\n")
        return dict(answer)

    def stop(self) -> None:
        """Stop all workers."""
        for server in self.servers.values():
            server.node.stop()
