"""Faults in the library calls of a running server, by a small C library that is compiled here and preloaded.

This works for a server that calls the C library, as ours does; Go programs make system calls themselves.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

KINDS = ("write", "fdatasync", "fsync", "open", "rename", "truncate", "allocate", "unlink", "mkdir")
HEAD = struct.Struct("<IIIIqqQ")  # armed, kinds, error, forever, countdown, clock_offset, hits
CALLS = struct.Struct(f"<{len(KINDS)}Q")


class NoCompiler(Exception):
    """The library cannot be built on this machine."""


def build(directory: Path) -> Path:
    """Compile the library into `directory`; return its path."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "fault.so"
    source = Path(__file__).with_name("fault.c")
    command = [compiler, "-O1", "-Wall", "-fPIC", "-shared", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoCompiler(done.stderr.strip())
    return library


class Faults:
    """The faults of one server process; its command must begin with `prefix`."""

    def __init__(self, library: Path, directory: Path, watched: str) -> None:
        control = directory / "faults"
        control.write_bytes(bytes(4096))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)
        self.prefix = ["env", f"LD_PRELOAD={library}", f"FAULT_CONTROL={control}", f"FAULT_PATH={watched}"]

    def arm(self, kinds: tuple[str, ...], error: int, at: int = 0, forever: bool = False) -> None:
        """Make the call number `at`, counted from now over these kinds, fail; with `forever` also all later ones."""
        mask = sum(1 << KINDS.index(kind) for kind in kinds)
        self._map[: HEAD.size] = HEAD.pack(1, mask, error, forever, at, self._clock(), 0)

    def disarm(self) -> None:
        """Stop all failures."""
        self._map[:4] = bytes(4)

    def step_clock(self, ns: int) -> None:
        """Set the server's wall clock forward or back."""
        self._map[24:32] = struct.pack("<q", self._clock() + ns)

    @property
    def hits(self) -> int:
        """The number of calls that have failed since `arm`."""
        hits: int = HEAD.unpack(self._map[: HEAD.size])[6]
        return hits

    @property
    def calls(self) -> dict[str, int]:
        """The number of calls of each kind, in all processes so far."""
        counts = CALLS.unpack(self._map[HEAD.size : HEAD.size + CALLS.size])
        return dict(zip(KINDS, counts, strict=True))

    def _clock(self) -> int:
        offset: int = HEAD.unpack(self._map[: HEAD.size])[5]
        return offset
