"""Real server processes for tests that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command

JETSTREAM = 'jetstream: {store_dir: "<<store>>"}'
StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start our server with JetStream on and more lines of configuration, if given."""
    running: list[ServerProcess] = []

    def start(config: str = "", jetstream: str = JETSTREAM, with_http: bool = True) -> ServerProcess:
        directory = tmp_path / str(len(running))
        directory.mkdir()
        server = ServerProcess(our_command(), f"{jetstream}\n{config}", directory, with_http, may_fork=True)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.kill()
