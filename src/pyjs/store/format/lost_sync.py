"""The mark of a stream, a consumer or a node log whose sync failed, and the second write of files by the next start.

After a failed sync, the page cache still has bytes that the disk may never get, and the next sync succeeds without
writing them. A start that reads these bytes must therefore write them again before it relies on a sync: otherwise a
repeated publish could be acknowledged as the duplicate of a message that a power failure then removes.

Each start writes the last records of the node log again. After a failed sync, the end of the log may also be missing,
so the start takes a log with this mark for doubtful.

The mark is an empty file, which a start finds in its list of files. It is not synced: a power failure that removes it
also ends the page cache.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.base.disk import PAGE_SIZE, closing
from pyjs.store.format.layout import UNSYNCED

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log


def note_lost_sync(disk: Disk, directory: str, log: Log) -> None:
    """Mark the files in `directory`: a sync of them has failed. An error is only logged."""
    error = mark_lost_sync(disk, directory)
    if error is not None:
        log.warn(
            f"{directory}: the next start will not know that a sync failed: {error}; "
            f"create the empty file {directory}/{UNSYNCED} before that start"
        )


def mark_lost_sync(disk: Disk, directory: str) -> OSError | None:
    """Mark the files in `directory`, in any thread; return the error that prevents it, or None."""
    try:
        disk.close_file(disk.open_file(f"{directory}/{UNSYNCED}", create=True))
    except OSError as error:
        return error
    return None


def write_again(disk: Disk, path: str) -> None:
    """Write all readable pages of a file again, so that the next sync covers them.

    Raises:
        OSError: the file cannot be opened or written.
    """
    with closing(disk, disk.open_file(path)) as fd:
        for at in range(0, disk.size_of(fd), PAGE_SIZE):
            try:
                data = disk.read_at(fd, PAGE_SIZE, at)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                continue  # it is not in memory either
            disk.write_at(fd, data, at)


def forget_lost_sync(disk: Disk, directory: str) -> None:
    """Remove the mark after a start has handled it and everything is synced again.

    If the removal fails, the next start handles the mark again, which is harmless.
    """
    with suppress(OSError):
        disk.unlink(f"{directory}/{UNSYNCED}")
