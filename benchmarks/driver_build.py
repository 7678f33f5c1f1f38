"""The load driver as a program: it is built from `driver/*.c` when a source is newer, and run as a child process.

Its source is benchmarks/driver/main.c.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "driver"
BINARY = HERE.parent / "build" / "benchmarks" / "natsload"
FLAGS = ["-O2", "-Wall", "-Wextra", "-std=gnu11", "-D_GNU_SOURCE", "-pthread"]


class DriverFailed(Exception):
    """The driver could not verify its run, or did not end; the text contains its reason."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library; without it, some rows are skipped."""

    name: str
    header: str
    package: str  # the package of Debian that has the header
    flags: tuple[str, ...]
    needed_by: frozenset[str]  # flags of the driver

    def is_here(self, compiler: str = os.environ.get("CC", "gcc")) -> bool:
        """Return whether programs can be built with the library."""
        probe = [compiler, "-E", "-x", "c", "-"]
        with suppress(FileNotFoundError):
            found = subprocess.run(probe, input=f"#include <{self.header}>", text=True, capture_output=True)
            return found.returncode == 0
        return False


LIBRARIES = (
    Library(
        "OpenSSL",
        "openssl/ssl.h",
        "libssl-dev",
        ("-DNATSLOAD_OPENSSL", "-lssl", "-lcrypto"),
        frozenset(("--tls", "--creds")),
    ),
    Library("zlib", "zlib.h", "zlib1g-dev", ("-DNATSLOAD_ZLIB", "-lz"), frozenset(("--deflate",))),
)


def missing(arguments: tuple[str, ...]) -> str:
    """Return a text about a missing library that `arguments` need, or "" if no such library is missing."""
    for library in LIBRARIES:
        if library.needed_by & set(arguments) and not library.is_here():
            return f"the headers of {library.name} ({library.package}) are not installed"
    return ""


def build_driver(binary: Path = BINARY) -> Path:
    """Compile the driver unless it is newer than its sources; return its path.

    Raises:
        SystemExit: there is no compiler, or the compiler reports an error, which is in the message.
    """
    sources = sorted(SOURCES.glob("*.[ch]"))
    if binary.exists() and binary.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    # A private name first: concurrent builds must not run each other's incomplete file.
    part = binary.with_suffix(f".{os.getpid()}")
    command = [os.environ.get("CC", "gcc"), *FLAGS, "-o", str(part)]
    command += [str(path) for path in sources if path.suffix == ".c"]
    for library in LIBRARIES:
        if library.is_here(command[0]):
            command += library.flags
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit(f"benchmarks: no C compiler {command[0]!r}: install gcc or set CC") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"benchmarks: {command[0]} refused the driver:\n{error.stderr}") from None
    part.rename(binary)
    return binary


@dataclass(frozen=True, slots=True)
class Driver:
    """A built driver."""

    binary: Path

    def run(self, arguments: list[str], *, timeout_s: float = 600) -> dict[str, Any]:
        """Run one subcommand and return its result line.

        Raises:
            DriverFailed: a reply was wrong, missing or repeated, or the run did not end in time.
        """
        try:
            done = subprocess.run(
                [str(self.binary), *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise DriverFailed(f"{arguments[0]}: not finished after {timeout_s:.0f} s") from None
        if not done.stdout.strip():
            raise DriverFailed(f"{arguments[0]}: {done.stderr.strip() or f'status {done.returncode}'}")
        result: dict[str, Any] = json.loads(done.stdout)
        if done.returncode != 0 or not result["verified"]:
            raise DriverFailed(f"{arguments[0]}: {result.get('failure', 'not verified')}")
        return result
