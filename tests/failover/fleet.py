"""The servers of a cluster with JetStream while they are restarted one by one, or replaced by new ones."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, free_port
from tests.crash.servers import MODES, command_of

PATIENCE_S = 90.0
# In lame duck mode, the first client is closed after the grace period, and each further one within a second.
COMMON = """
jetstream {{ store_dir: "<<store>>", max_file_store: 4GB, max_memory_store: 100MB{mode} }}
lame_duck_grace_period: "500ms"
accounts {{
    APP {{ jetstream: enabled, users: [ {{ user: app, password: app }} ] }}
    $SYS {{ users: [ {{ user: admin, password: admin }} ] }}
}}
no_auth_user: app
"""


class Stuck(Exception):
    """The cluster does not recover; the text names the condition that was awaited."""


class Fleet:
    """The servers by name; `names` has the current members of the cluster."""

    def __init__(self, server: str, mode: str, directory: Path) -> None:
        self._command = command_of(server)
        self._mode = MODES[mode]
        self._directory = directory
        self.servers: dict[str, ServerProcess] = {}
        self._routes: dict[str, int] = {}
        self._lives = 0

    @property
    def names(self) -> list[str]:
        """The names of the servers, oldest first."""
        return list(self.servers)

    @property
    def urls(self) -> list[str]:
        """The addresses for clients."""
        return [f"nats://127.0.0.1:{each.port}" for each in self.servers.values()]

    def add(self, *names: str) -> None:
        """Add servers without starting them; the configuration of each server has routes to all servers."""
        for name in names:
            self._routes[name] = free_port()
        for name in names:
            place = self._directory / name
            place.mkdir(parents=True, exist_ok=True)
            routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes.values())
            config = (
                COMMON.format(mode=self._mode)
                + f'cluster {{ name: FLEET, listen: "127.0.0.1:{self._routes[name]}", routes: [{routes}] }}'
            )
            self.servers[name] = ServerProcess(
                self._command, config, place, with_http=True, name=name, port=free_port()
            )

    async def start(self, *names: str) -> None:
        """Start servers; the log of an earlier process is preserved next to the new one."""
        for name in names:
            self._lives += 1
            log = self._directory / name / "log"
            with suppress(FileNotFoundError):
                log.rename(log.with_name(f"log.{self._lives}"))
        await asyncio.gather(*(asyncio.to_thread(self.servers[name].start) for name in names))

    async def stop(self, name: str) -> None:
        """End a server with SIGTERM."""
        await asyncio.to_thread(self.servers[name].stop)

    async def retire(self, name: str) -> None:
        """End a server in lame duck mode."""
        self.servers[name].signal("USR2")
        await self._until(lambda: not _lives(self.servers[name].pid), f"the end of {name}")
        self.servers[name].kill()  # reaps it

    def remove(self, name: str) -> None:
        """Forget a server that has ended."""
        self.servers.pop(name).kill()
        del self._routes[name]

    async def healthy(self, *names: str) -> None:
        """Wait until /healthz of each server reports no problem."""
        for name in names:
            await self._until(lambda name=name: self._is_healthy(name), f"/healthz of {name}")  # type: ignore[misc]

    def _is_healthy(self, name: str) -> bool:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return self.page(name, "/healthz") == {"status": "ok"}
        return False

    def page(self, name: str, path: str) -> Any:
        """Return a page of the monitoring port of a server."""
        url = f"http://127.0.0.1:{self.servers[name].http_port}{path}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)

    def silences(self) -> int:
        """Return how often a server heard nothing from another running server, as on an overloaded machine."""
        logs = self._directory.glob("*/log*")
        return sum(log.read_text("utf-8", "replace").count("no heartbeat for") for log in logs)

    async def _until(self, holds: Any, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not await asyncio.to_thread(holds):
            if asyncio.get_running_loop().time() > deadline:
                raise Stuck(f"not within {PATIENCE_S:.0f} s: {what}")
            await asyncio.sleep(0.05)  # neither a page nor a process has an event to wait for

    def close(self) -> None:
        """Stop all servers."""
        for server in self.servers.values():
            server.kill()


def _lives(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False
