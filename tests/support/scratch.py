"""The place of tests' temporary files: memory if there is enough, or the disk if the test is about the disk.

A store that a test opens, fills and drops needs a dozen syncs and as many removals of files: on a disk these take
most of the test's time. The calls are the same on both, and the same data survives a kill -9.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_MIN = 4 << 30  # free bytes; the files that all tests leave at one time are below a tenth of it
# environment variable of the workers: the directory of temporary files without use_memory
DISK_KEY = "PYJS_TESTS_DISK"


def use_memory() -> None:
    """Make this process and its children create temporary files in memory, unless TMPDIR names a directory."""
    if "TMPDIR" not in os.environ and has_room():
        os.environ[DISK_KEY] = tempfile.gettempdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def has_room() -> bool:
    """Return whether the file system in memory has room and may hold programs."""
    try:
        found = os.statvfs(MEMORY)
        meminfo = Path("/proc/meminfo").read_text()
    except OSError:
        return False
    free = next(
        int(line.split()[1]) << 10 for line in meminfo.splitlines() if line.startswith("MemAvailable:")
    )
    return not found.f_flag & os.ST_NOEXEC and min(found.f_bavail * found.f_frsize, free) >= ROOM_MIN


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Make a directory on the disk for a test about the disk; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="pyjs-", dir=os.environ.get(DISK_KEY)) as path:
        yield Path(path).resolve()
