"""Where temporary files of tests go: to memory where it has room, to the disk where the disk is what is tested.

A store that a test opens, fills and forgets costs a dozen syncs and as many files to remove: on a disk most of
the time of its test. The calls are the same on both, and what survives a kill -9 is too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_MIN = 4 << 30  # bytes free: what all tests leave at one time is below a tenth of it
DISK_KEY = "PYJS_TESTS_DISK"  # in the environment of the workers: where the others' files would have gone


def use_memory() -> None:
    """Let this process and its children make temporary files in memory, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and has_room():
        os.environ[DISK_KEY] = tempfile.gettempdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def has_room() -> bool:
    """Return whether files in memory have room, and programs among them may run."""
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
    """Make a directory for a test that asks the disk what it does; gone with the test."""
    with tempfile.TemporaryDirectory(prefix="pyjs-", dir=os.environ.get(DISK_KEY)) as path:
        yield Path(path).resolve()
