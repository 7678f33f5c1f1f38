"""Both servers with a port for WebSocket clients, one process for each configuration."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, our_command, peer_command

PEER = peer_command()
WAIT_S = 8.0
PLAIN = 'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true }'
STAMP = re.compile(r"^\[\d+\] [\d/]+ [\d:.]+ ")
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


class WebSocketServer(ServerProcess):
    """A server whose configuration has <<ws>> in place of the port for WebSocket clients."""

    def __init__(self, command: list[str], config: str, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.ws_port: int = probe.getsockname()[1]
        super().__init__(command, config.replace("<<ws>>", str(self.ws_port)), directory, with_http=True)
        self._directory = directory

    def page(self, path: str) -> Any:
        """Return a page of the monitoring port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=WAIT_S) as answer:
            return json.load(answer)

    def closed_count(self) -> int:
        """Return the number of connections in the list of closed ones."""
        count: int = self.page("/connz?state=closed&limit=1")["total"]
        return count

    def newly_closed(self, count: int) -> Any:
        """Wait until more than `count` connections are in the list of closed ones; return the newest of them."""
        deadline = time.monotonic() + WAIT_S
        while self.closed_count() <= count:
            assert time.monotonic() < deadline, "no connection was closed"
            time.sleep(0.005)
        return self.page("/connz?state=closed&sort=stop")["connections"][0]

    def log_lines(self, *parts: str) -> list[str]:
        """Return the log lines with one of `parts`, without time, ports and ids."""
        text = (self._directory / "log").read_text("utf-8", "replace")
        lines = (STAMP.sub("", line) for line in text.splitlines())
        found = [ADDRESS.sub("ADDRESS", line) for line in lines if any(part in line for part in parts)]
        return [re.sub(r"([wc]id):\d+", r"\1:N", line) for line in found]


class Both:
    """Both servers by configuration; each is started when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pairs: dict[str, list[WebSocketServer]] = {}

    def servers(self, config: str) -> list[WebSocketServer]:
        """Return nats-server and ours, running on `config`."""
        if config not in self._pairs:
            assert PEER is not None, "nats-server is not here"
            pair = self._pairs[config] = []
            for command in (PEER, our_command()):
                directory = self._directory / f"{len(self._pairs)}-{len(pair)}"
                directory.mkdir()
                server = WebSocketServer(command, config, directory)
                pair.append(server)
                server.start()
        return self._pairs[config]

    def see(self, look: Callable[[WebSocketServer], Any], config: str = PLAIN) -> Any:
        """Return what `look` sees; it must be the same for both servers."""
        peer, ours = (look(server) for server in self.servers(config))
        assert ours == peer, f"ours {ours!r}\npeer {peer!r}"
        return peer

    def close(self) -> None:
        """Kill the servers."""
        for pair in self._pairs.values():
            for server in pair:
                server.kill()


@contextmanager
def both_servers(directory: Path) -> Iterator[Both]:
    """Yield an object that starts the pairs of servers on demand; kill them at the end."""
    both = Both(directory)
    try:
        yield both
    finally:
        both.close()
