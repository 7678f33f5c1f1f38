"""Runs a scene on nats-server and on our server, each in a fresh process, and starts a process of either one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.conformance.harness.process import ServerProcess, our_command, peer_command

Seen = TypeVar("Seen")
needs_peer = pytest.mark.skipif(
    peer_command() is None and "peer" not in os.environ.get("PYJS_REQUIRE", ""),
    reason="nats-server is not here",
)


@contextmanager
def running(directory: Path, kind: str, config: str) -> Iterator[ServerProcess]:
    """Yield a server, "peer" or "ours", whose files are in `directory`, and stop it afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    command = peer_command() if kind == "peer" else our_command()
    assert command is not None, "nats-server is not here"
    server = ServerProcess(command, config, directory, with_http=False, may_fork=True)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def of_both(directory: Path, config: str, look: Callable[[ServerProcess], Seen]) -> list[Seen]:
    """Return what `look` sees of nats-server, then of ours."""
    peer = peer_command()
    assert peer is not None, "nats-server is not here"
    return [
        _seen(directory / name, config, command, look)
        for name, command in (("peer", peer), ("ours", our_command()))
    ]


def _seen(directory: Path, config: str, command: list[str], look: Callable[[ServerProcess], Seen]) -> Seen:
    directory.mkdir()
    server = ServerProcess(command, config, directory, with_http=False, may_fork=True)
    server.start()
    try:
        return look(server)
    finally:
        server.kill()
