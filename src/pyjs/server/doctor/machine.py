"""Checks of the machine and the process: processors, memory, descriptors, the clock, the user, the packages."""

from __future__ import annotations

import os
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

from pyjs.server.doctor.findings import ok, warn
from pyjs.server.system.resources import memory_for_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding

DESCRIPTORS_SPARE = 256  # descriptors for files of streams, routes and the log
YEAR_MIN = 2025  # if the clock shows an earlier year, it is wrong, since this server did not exist yet
QUOTA = "/sys/fs/cgroup/cpu.max"
BACKLOG = "/proc/sys/net/core/somaxconn"
BACKLOG_MIN = 1024
MB = 1 << 20


def check_machine(options: Options) -> Iterator[Finding]:
    """Check the machine and the process, and yield the findings."""
    yield _check_loop()
    yield _check_cores(options.workers)
    yield _check_memory(options)
    yield _check_descriptors(options.limits.max_connections)
    yield from _check_backlog()
    yield from _check_clock()
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        yield warn("user", "root", "run the server as a user of its own, which owns the store and the log")


def _check_loop() -> Finding:
    version = sys.version.split()[0]
    try:
        found = version_of("uvloop")
    except PackageNotFoundError:
        fix = "pip install uvloop: without it, a message costs up to twice the processor time"
        return warn("python", f"{version}, without uvloop", fix)
    return ok("python", f"{version}, uvloop {found}")


def _check_cores(workers: int) -> Finding:
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = _quota()
    shown = f"{cores:.0f} cores" + (f", limited to {quota:.2g} by the container" if quota else "")
    usable = min(cores, quota or cores)
    if usable < 1:
        fix = "give the container at least one core: all clients wait for one thread"
        return warn("processors", shown, fix)
    if workers > usable:
        return warn("processors", f"{shown} for {workers} workers", "start at most one worker for each core")
    return ok("processors", shown)


def _quota() -> float:
    """Return the number of processors that the container may use, or 0 if no limit is known."""
    words = _read(QUOTA).split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() and int(words[1]) else 0.0


def _check_memory(options: Options) -> Finding:
    usable = memory_for_streams()
    text = f"{usable // MB:,} MB for streams in memory"
    if options.jetstream.enabled and options.jetstream.max_memory > usable:
        most = options.jetstream.max_memory // MB
        fix = f"lower max_memory_store to {usable // MB:,} MB, or the system may kill the server"
        return warn("memory", f"{text}, but max_memory_store is {most:,} MB", fix)
    return ok("memory", text)


def _check_descriptors(connections: int) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return ok("descriptors", "no limit")
    if hard < connections + DESCRIPTORS_SPARE:
        needed = connections + 2 * DESCRIPTORS_SPARE
        fix = f"raise the limit to {needed} (ulimit -Hn, LimitNOFILE=), or lower max_connections"
        return warn("descriptors", f"{hard:,} for max_connections {connections:,}", fix)
    return ok("descriptors", f"{hard:,}")


def _check_backlog() -> Iterator[Finding]:
    text = _read(BACKLOG).strip()
    if text.isdigit() and int(text) < BACKLOG_MIN:
        fix = f"sysctl net.core.somaxconn={4 * BACKLOG_MIN}, so that many clients can reconnect at once"
        yield warn("backlog", f"net.core.somaxconn is {text}", fix)


def _check_clock() -> Iterator[Finding]:
    now = time.gmtime()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", now)
    if now.tm_year < YEAR_MIN:
        yield warn("clock", shown, "set the clock: messages, TTLs and certificates depend on it")
    else:
        yield ok("clock", shown)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""  # this system does not have the file
