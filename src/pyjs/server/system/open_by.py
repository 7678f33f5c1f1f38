"""A search for the processes that have files in a directory open, as far as this user may see them."""

from __future__ import annotations

import os


def holders(directory: str) -> list[int]:
    """Return the pids of other processes that have files below `directory` open, in ascending order.

    Processes that this user may not inspect are left out. On a system without /proc, the list is empty.
    """
    below = os.path.realpath(directory) + "/"
    pids = [int(name) for name in _names("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in sorted(pids) if any(path.startswith(below) for path in _open_files(pid))]


def _open_files(pid: int) -> list[str]:
    folder, found = f"/proc/{pid}/fd", []
    for name in _names(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue  # the descriptor was closed meanwhile
    return found


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []  # the process belongs to another user or has ended, or this is not Linux
