"""Limits on file descriptors: one for this process, and one for the open files of streams and consumers.

The other descriptors are for clients, the log, metadata and files that are open only briefly. The listener
(listener.py) keeps clients from using the last of these descriptors.
"""

from __future__ import annotations

import resource
from contextlib import suppress

FILES_SHARE = 2  # 1 / FILES_SHARE of the descriptors are for files
FILES_MIN = 8
FILES_MAX = 4096  # a higher limit would only cost memory: opening a file takes microseconds
OTHERS = 32  # descriptors for log, loop, locks and threads


def raise_limit() -> None:
    """Raise the soft limit on file descriptors to the hard limit, if the system permits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have a lower limit, which getrlimit does not report
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files_max() -> int:
    """Return the maximum number of files of streams and consumers that may be open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return FILES_MAX
    return max(FILES_MIN, min(FILES_MAX, limit // FILES_SHARE - OTHERS))
