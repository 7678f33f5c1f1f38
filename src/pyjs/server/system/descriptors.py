"""How many descriptors this process has, and how many of them are for files of streams and consumers.

The rest is for clients, the log, metadata and files that are open for a moment. The listener (listener.py) keeps the
last of them from clients.
"""

from __future__ import annotations

import resource
from contextlib import suppress

FILES_SHARE = 2  # one in so many
FILES_MIN = 8
FILES_MAX = 4096  # more would cost memory, and gain nothing: opening a file takes microseconds
OTHERS = 32  # log, loop, locks, threads


def raise_limit() -> None:
    """Allow this process as many descriptors as the system lets it have without privileges."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have a lower limit that getrlimit does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files_max() -> int:
    """Return how many files of streams and consumers may stay open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return FILES_MAX
    return max(FILES_MIN, min(FILES_MAX, limit // FILES_SHARE - OTHERS))
