"""The pid file, the ports file and the store's directory."""

from __future__ import annotations

import errno
import os

import orjson

PORTS_NAME = "nats-server"  # test suites look for this name


def write_pid_file(path: str) -> None:
    """Write the process id, without a line end."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))


def ports_path(directory: str) -> str:
    """Return the path of the ports file of this process."""
    return os.path.join(directory, f"{PORTS_NAME}_{os.getpid()}.ports")


def write_ports_file(directory: str, urls: dict[str, list[str]]) -> None:
    """Write `urls` (service -> URLs) atomically: other programs never see a part of the file."""
    path = ports_path(directory)
    with open(path + ".new", "wb") as file:
        file.write(orjson.dumps(urls))
    os.replace(path + ".new", path)


def remove_ports_file(directory: str) -> None:
    """Remove the ports file, if it exists."""
    try:
        os.unlink(ports_path(directory))
    except FileNotFoundError:
        pass


def make_directory(path: str) -> None:
    """Create a directory and its parents, and check that it is writable.

    Raises:
        OSError: with the path that failed.
    """
    os.makedirs(path, mode=0o750, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
