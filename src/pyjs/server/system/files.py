"""The pid file, the ports file and the store's directory."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import reason_of
from pyjs.server.failures import fail, file_remedy

if TYPE_CHECKING:
    from pyjs.base.log import Log

PORTS_NAME = "nats-server"  # test suites look for this name


def write_pid_file(path: str) -> None:
    """Write the process id to the file at `path`, without a line end.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "w") as file:
        file.write(str(os.getpid()))


def write_first_pid_file(path: str) -> None:
    """Write the pid file when the server starts; do nothing if `path` is "".

    Raises:
        StartFailed: the file cannot be written.
    """
    try:
        if path:
            write_pid_file(path)
    except OSError as error:
        fail(f"Could not write pidfile: open {path}: {reason_of(error)}", file_remedy(error, "pid_file"))


def ports_path(directory: str) -> str:
    """Return the path of this process's ports file in `directory`."""
    return os.path.join(directory, f"{PORTS_NAME}_{os.getpid()}.ports")


def write_ports_file(directory: str, urls: dict[str, list[str]], log: Log) -> None:
    """Write `urls` (service -> URLs) to the ports file atomically, so that no reader sees a partial file.

    Log an error if that fails.
    """
    path = ports_path(directory)
    try:
        with open(path + ".new", "wb") as file:
            file.write(orjson.dumps(urls))
        os.replace(path + ".new", path)
    except OSError as error:
        log.error(f"Error writing ports file ({path}): {reason_of(error)}")


def remove_ports_file(directory: str) -> None:
    """Remove this process's ports file from `directory`, if it exists.

    Raises:
        OSError: the file exists but cannot be removed.
    """
    try:
        os.unlink(ports_path(directory))
    except FileNotFoundError:
        pass


def make_directory(path: str) -> None:
    """Create a directory and its parents if they are missing, and check that it is writable.

    Raises:
        OSError: the directory cannot be created or written; `filename` is the path.
    """
    os.makedirs(path, mode=0o750, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
