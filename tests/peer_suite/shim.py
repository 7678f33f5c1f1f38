"""The environment of a suite: a `nats-server` on PATH that executes the server under test, and a place to run.

The shim is a shell script that uses `exec`, so that the process id, the signals and the exit code are those of the
server. The suites use fixed ports: either only one suite runs on the machine (a lock file), or each has its own
network namespace (`unshare`, which needs root).
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = Path(tempfile.gettempdir()) / "pyjs-peer-suite.lock"
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


_running: set[subprocess.Popen[bytes]] = set()  # running suites and tests of all threads


@dataclass(frozen=True, slots=True)
class Place:
    """The environment in which a suite runs, and the words that precede its command."""

    name: str  # name of the server, for the report
    env: dict[str, str]
    prefix: tuple[str, ...]

    def run(self, command: list[str], cwd: Path, seconds: float, **more: str) -> tuple[int, str]:
        """Run `command` to its end; return exit code and output. After `seconds` it is killed, and the code is -9."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*self.prefix, *command],
                cwd=cwd,
                env=self.env | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            _running.add(process)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -9
            _running.discard(process)
            _end_session(process)
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")


def place(name: str, command: list[str], directory: Path, own_network: bool) -> Place:
    """Create below `directory` the shim that starts `command`; return the place that uses it."""
    shims = directory / name
    shims.mkdir(parents=True)
    shim = shims / "nats-server"
    source = shlex.quote(str(REPOSITORY / "src"))
    shim.write_text(f'#!/bin/sh\nPYTHONPATH={source}\nexport PYTHONPATH\nexec {shlex.join(command)} "$@"\n')
    shim.chmod(0o755)
    env = {**os.environ, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}"}
    env.pop("PYTEST_ADDOPTS", None)
    return Place(name, env, _network_prefix(shims) if own_network else ())


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine-wide lock of the suites that use fixed ports."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another suite holds {LOCK}: waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def can_have_own_network() -> bool:
    """Return whether this user may create network namespaces."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        return False
    return subprocess.run([unshare, "-nm", "true"], capture_output=True, check=False).returncode == 0


def end_all() -> None:
    """Kill every running suite, with the servers that it started."""
    for process in tuple(_running):
        _end_session(process)


def _network_prefix(directory: Path) -> tuple[str, ...]:
    hosts = directory / "hosts"
    hosts.write_text(HOSTS)
    inside = f'ip link set lo up && mount --bind {shlex.quote(str(hosts))} /etc/hosts && exec "$@"'
    return ("unshare", "-nm", "sh", "-c", inside, "sh")


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill processes that a test left running in its session: such servers would occupy the fixed ports."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()
