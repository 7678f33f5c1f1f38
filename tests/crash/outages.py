"""Disk outages that end: what clients are told meanwhile, whether reading continues, and when writing resumes.

Each begins while a client publishes messages in sequence and waits for each answer, and ends after a while. Then the
server is killed and restarted, and must have everything that it acknowledged.
"""

from __future__ import annotations

import argparse
import errno
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerFailed, ServerProcess
from tests.crash.ext4 import CannotMount, Ext4, run_tool
from tests.crash.preload import Faults, NoCompiler, build
from tests.crash.servers import Speaker, make_server

BEFORE = 200
WARM_S = 0.5  # until the server has loaded the code that it loads in the background
OUTAGE_S = 1.5
RESUME_S = 6.0
PAUSE_S = 0.004  # pause between two publishes of a client that waits for its answers
FILLING = 8192  # size in bytes of the messages that fill a file system
HOUR_NS = 3_600_000_000_000


class Steady:
    """A client that publishes and waits for answers; it records the results."""

    def __init__(self, server: ServerProcess, payload_size: int = 100) -> None:
        self._server = server
        self._client = Speaker(server.port, timeout_s=3)
        self._size = payload_size
        self.acked: list[int] = []
        self.unanswered = 0
        self.errors: dict[str, int] = {}
        self.first_error_ms: float | None = None  # measured from the failed request
        self.slowest_error_ms = 0.0

    def publish(self) -> bool:
        """Publish one message; True: it was acknowledged."""
        started = time.monotonic()
        try:
            answer = self._client.publish(b"s.x", b"x" * self._size)
        except (OSError, ConnectionError):
            self.unanswered += 1
            self._again()
            return False
        if "seq" in answer and "error" not in answer:
            self.acked.append(answer["seq"])
            return True
        took_ms = (time.monotonic() - started) * 1000
        self.first_error_ms = took_ms if self.first_error_ms is None else self.first_error_ms
        self.slowest_error_ms = max(self.slowest_error_ms, took_ms)
        text = answer.get("error", {}).get("description", "no responders") if answer else "no responders"
        self.errors[text] = self.errors.get(text, 0) + 1
        return False

    def reads(self) -> bool:
        """Return whether an early message can be read."""
        try:
            return bool(self.acked and self._client.raw_message("S", self.acked[0]))
        except (OSError, ConnectionError):
            return False

    def _again(self) -> None:
        try:
            self._client = Speaker(self._server.port, timeout_s=3)
        except OSError:
            pass  # the server has ended; the next request reports it


def endure(
    server: ServerProcess, size: int, begin: Callable[[], None], end: Callable[[], None]
) -> dict[str, Any]:
    """Run a server through one outage; return its client's results."""
    server.start()
    client = Speaker(server.port)
    client.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
    client.close()
    time.sleep(WARM_S)
    steady = Steady(server, size)
    for _ in range(BEFORE):
        steady.publish()
    started = time.monotonic()
    begin()
    reads = []
    while time.monotonic() < started + OUTAGE_S:
        steady.publish()
        reads.append(steady.reads())
        time.sleep(PAUSE_S)
    end()
    ended = time.monotonic()
    resumed = None
    while resumed is None and time.monotonic() < ended + RESUME_S:
        if steady.publish():
            resumed = round(time.monotonic() - ended, 2)
        time.sleep(PAUSE_S)
    out = {
        "errors": steady.errors,
        "first error ms": steady.first_error_ms,
        "slowest error ms": round(steady.slowest_error_ms, 1),
        "unanswered": steady.unanswered,
        "reads": f"{sum(reads)} of {len(reads)}",
        "resumed after s": resumed,
    }
    server.kill()
    server.start()
    return {**out, **after_restart(server, steady)}


def after_restart(server: ServerProcess, steady: Steady) -> dict[str, Any]:
    """Return which acknowledged messages are present after a kill and a restart."""
    client = Speaker(server.port)
    info = client.try_api("STREAM.INFO.S")
    if "error" in info or not info:
        return {"acked lost": len(steady.acked), "after a restart": f"no stream: {info}"}
    lost = sum(not client.raw_message("S", seq) for seq in steady.acked)
    answer = client.publish(b"s.x", b"new")
    return {"acked lost": lost, "after a restart": "works" if "seq" in answer else str(answer)}


# -- the outages -----------------------------------------------------------------------------------------------
@contextmanager
def tmpfs(scratch: Path, megabytes: int) -> Iterator[Path]:
    """Mount a small file system in memory; unmount it at the end."""
    if os.geteuid() != 0:
        raise CannotMount("mounting needs root")
    path = scratch / "small"
    path.mkdir(parents=True)
    run_tool("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(path))
    try:
        yield path
    finally:
        run_tool("umount", str(path))


def full_disk(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Fill the small tmpfs that holds the store, and empty it again."""
    with tmpfs(scratch, 24) as disk:
        server = make_server(kind, mode, scratch / "server", store=disk)
        ballast = disk / "ballast"

        def fill() -> None:
            with ballast.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(1 << 16)):
                        pass
                except OSError:
                    pass

        try:
            return endure(server, FILLING, fill, ballast.unlink)
        finally:
            server.kill()


def failing_disk(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Let an ext4 fail every call from a certain moment on; recover by a mount and a start."""
    disk = Ext4(scratch)
    disk.path.chmod(0o700)
    server = make_server(kind, mode, scratch / "server", store=disk.path)

    def heal() -> None:
        server.kill()
        disk.unmount()
        disk.mount()
        server.start()

    try:
        found = endure(server, 100, disk.cut_power, heal)
        return {**found, "note": "resumed by an operator: a mount and a start"}
    finally:
        server.kill()
        disk.unmount()


def no_descriptors(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Take the server's free descriptors away with prlimit, and restore them."""
    server = make_server(kind, mode, scratch)
    before: list[tuple[int, int]] = []

    def pid() -> int:
        assert server._process is not None
        return server._process.pid

    def exhaust() -> None:
        used = max(int(name) for name in os.listdir(f"/proc/{pid()}/fd")) + 1
        before.append(resource.prlimit(pid(), resource.RLIMIT_NOFILE))
        resource.prlimit(pid(), resource.RLIMIT_NOFILE, (used, before[0][1]))

    try:
        return endure(
            server,
            200_000,
            exhaust,
            lambda: _ignore(resource.prlimit(pid(), resource.RLIMIT_NOFILE, before[0])),
        )
    finally:
        server.kill()


def no_permission(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Remove and restore the permissions of the store's directories, for a server that may not override them."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        raise CannotMount("needs root and setpriv")
    bounded = "--bounding-set=-dac_override,-dac_read_search"
    server = make_server(kind, mode, scratch, prefix=["setpriv", bounded, "--"])
    store = scratch / "store" / "jetstream"

    def directories() -> list[Path]:
        return [path for path in store.rglob("*") if path.is_dir()]

    def forbid() -> None:
        for path in reversed(directories()):
            path.chmod(0o000)

    def allow() -> None:
        for path in directories():
            path.chmod(0o700)

    try:
        return endure(server, 200_000, forbid, allow)
    finally:
        server.kill()


def preloaded(
    kinds: tuple[str, ...], error: int, forever: bool, size: int = 100
) -> Callable[..., dict[str, Any]]:
    """Return an outage in which calls of the C library fail."""

    def outage(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
        if kind != "ours":
            raise NoCompiler("nats-server makes its system calls without libc")
        faults = Faults(build(scratch), scratch, "/store/")
        server = make_server(kind, mode, scratch / "server", prefix=faults.prefix)
        try:
            return endure(server, size, lambda: faults.arm(kinds, error, 0, forever), faults.disarm)
        finally:
            server.kill()

    return outage


def clock_back(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Set the time of day back by an hour, and forward again."""
    if kind != "ours":
        raise NoCompiler("nats-server reads the clock without libc")
    faults = Faults(build(scratch), scratch, "/store/")
    server = make_server(kind, mode, scratch / "server", prefix=faults.prefix)
    try:
        return endure(server, 100, lambda: faults.step_clock(-HOUR_NS), lambda: faults.step_clock(HOUR_NS))
    finally:
        server.kill()


def read_only_start(kind: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Start the server on a read-only file system, and again after it was mounted writable."""
    disk = Ext4(scratch)
    server = make_server(kind, mode, scratch / "server", store=disk.path)
    try:
        server.start()
        client = Speaker(server.port)
        client.api("STREAM.CREATE.S", name="S", subjects=["s.>"])
        steady = Steady(server)
        for _ in range(BEFORE):
            steady.publish()
        server.stop()
        disk.remount("ro")
        began = time.monotonic()
        try:
            server.start()
            said = "it runs"
        except ServerFailed as failed:
            said = next(
                (line[-160:] for line in str(failed).splitlines() if "[FTL]" in line), "no word of it"
            )
        took = round(time.monotonic() - began, 2)
        server.kill()
        disk.remount("rw")
        server.start()
        return {"said": said, "after s": took, **after_restart(server, steady)}
    finally:
        server.kill()
        disk.unmount()


def _ignore(_: object) -> None:
    """Take a value and do nothing."""


OUTAGES: dict[str, Callable[[str, str, Path], dict[str, Any]]] = {
    "full disk (tmpfs)": full_disk,
    "failing disk (ext4 shut down)": failing_disk,
    "no descriptors": no_descriptors,
    "no permission": no_permission,
    "read-only at a start": read_only_start,
    "one failed fdatasync": preloaded(("fdatasync",), errno.EIO, forever=False),
    "read-only (every call EROFS)": preloaded(
        ("write", "open", "rename", "truncate", "allocate", "unlink", "mkdir"), errno.EROFS, forever=True
    ),
    "writes fail (EIO)": preloaded(("write",), errno.EIO, forever=True),
    "no space (ENOSPC)": preloaded(("write", "allocate", "truncate"), errno.ENOSPC, forever=True),
    "clock steps back an hour": clock_back,
}


def run_outage(name: str, server: str, mode: str, scratch: Path) -> dict[str, Any]:
    """Run one outage; if this machine cannot produce it, return the reason."""
    try:
        return OUTAGES[name](server, mode, scratch)
    except (CannotMount, NoCompiler) as reason:
        return {"skipped": str(reason)}
    except ServerFailed as failed:
        return {"no start": str(failed)[-600:]}


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run all outages."""
    out: dict[str, Any] = {}
    for number, name in enumerate(OUTAGES):
        directory = scratch / str(number)
        directory.mkdir()
        out[name] = run_outage(name, args.server, args.mode, directory)
        print(f"{name}: {out[name]}", file=sys.stderr, flush=True)
    return {"outages": out}
