"""Checks of the store directory: permissions, space, the file system, and the time of a sync."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

from pyjs.base.errors import reason_of
from pyjs.server.doctor.findings import fail, ok, warn
from pyjs.server.system.open_by import holders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding

SYNCS = 40
SYNC_SIZE = 4096
# seconds; with slower syncs, `sync_interval: always` is slow for a client that waits for each answer
SYNC_SLOW_S = 0.010
SKEW_MAX_S = 2.0  # maximum difference between the clocks of the machine and of the disk, in seconds
FREE_MIN_SIZE = 1 << 30
IN_MEMORY = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
MB = 1 << 20


def check_store(options: Options) -> Iterator[Finding]:
    """Check the store directory and yield the findings.

    `options` must be the effective options.
    """
    directory = options.jetstream.store_dir
    existing = nearest(directory)
    if os.path.lexists(existing) and not os.path.isdir(existing):
        yield fail("store", f"{existing} is not a directory", "remove it, or choose another store_dir")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield fail(
            "store",
            f"{existing} cannot be written by this user",
            f"chown it to the user of the server (uid {os.getuid()}), or choose another store_dir",
        )
        return
    others = holders(directory) if existing == directory else []
    if others:
        pids = ", ".join(map(str, others))
        yield fail(
            "store",
            f"{directory} is in use by process {pids}",
            "stop that server, or choose another store_dir",
        )
    else:
        yield ok(
            "store", f"{directory} can be written" if existing == directory else f"{directory} can be created"
        )
    yield from _check_kind(existing)
    yield _check_space(existing, options.jetstream.max_storage)
    yield from _check_sync(existing, always=options.jetstream.sync_always)


def nearest(directory: str) -> str:
    """Return `directory` if it exists, otherwise its nearest existing ancestor.

    The returned path may name a file.
    """
    while not os.path.lexists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory


def _check_kind(directory: str) -> Iterator[Finding]:
    kind = _file_system(directory)
    if kind in IN_MEMORY:
        yield warn(
            "file system", f"{directory} is in memory ({kind})", "streams are lost at a reboot: use a disk"
        )
    elif kind in REMOTE:
        fix = "use a local disk: locks and syncs over a network are slow, and not always kept"
        yield warn("file system", f"{directory} is on another machine ({kind})", fix)
    elif kind:
        yield ok("file system", kind)


def _file_system(directory: str) -> str:
    """Return the type of the file system that holds a directory, or "" if it is unknown."""
    path, found = os.path.realpath(directory), ("", "")
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            rows = [line.split(" ") for line in file]
    except OSError:
        return ""
    for row in rows:
        mount = row[1].replace("\\040", " ")
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(found[0]):
            found = mount, row[2]
    return found[1]


def _check_space(directory: str, most: int) -> Finding:
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    text = f"{free // MB:,} MB free"
    if disk.f_files and disk.f_favail < 10_000:
        return warn("disk", f"{disk.f_favail:,} free inodes", "each stream needs about ten files: free some")
    if free < FREE_MIN_SIZE:
        return warn("disk", text, "free space: at a full disk, streams refuse publishes")
    if most > free:
        fix = "lower max_file_store below the free space, so that streams reach their limit before the disk is full"
        return warn("disk", f"{text}, but max_file_store is {most // MB:,} MB", fix)
    return ok("disk", text)


def _check_sync(directory: str, *, always: bool) -> Iterator[Finding]:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            times = [_sync(file.fileno()) for _ in range(SYNCS)]
            skew_s = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        yield fail("sync", f"a file in {directory} cannot be synced: {reason_of(error)}", "use another disk")
        return
    median, worst = statistics.median(times), max(times)
    text = f"{median * 1000:.2f} ms for {SYNC_SIZE} bytes, at most {worst * 1000:.1f} ms of {SYNCS} tries"
    if median > SYNC_SLOW_S:
        fix = "use a faster disk, or an SSD with protection against power loss"
        if always:
            fix += f"; with sync_interval: always, a client that awaits each PubAck gets {1 / median:,.0f} a second"
        yield warn("sync", text, fix)
    else:
        yield ok("sync", text)
    if abs(skew_s) > SKEW_MAX_S:
        yield warn("clock", f"files are {skew_s:+.0f} s off the clock", "set the clock of the disk's server")


def _sync(fd: int) -> float:
    os.pwrite(fd, os.urandom(SYNC_SIZE), 0)
    began = time.perf_counter()
    os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
    return time.perf_counter() - began
