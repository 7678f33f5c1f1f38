"""The mark of a store whose sync failed, and the second write of its segments by the next start.

After a failed sync, the page cache still has bytes that the disk may never get, and the next sync succeeds without
writing them. A start that reads these bytes must therefore write them again before it relies on a sync: otherwise a
repeated publish could be acknowledged as the duplicate of a message that a power failure then removes.

The mark is an empty file, which segment/recovery finds among the segments. It is not synced, since a power failure
that removes the mark also empties the page cache.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.base.disk import PAGE_SIZE, closing, write_file
from pyjs.store.format.layout import UNSYNCED

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log


def note_lost_sync(disk: Disk, directory: str, log: Log) -> None:
    """Write the mark into `directory` after a sync of its segments has failed; an error is only logged."""
    try:
        write_file(disk, f"{directory}/{UNSYNCED}", [b""], sync=False)
    except OSError as error:
        log.warn(f"{directory}: the next start will not know that a sync failed: {error}")


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
    """Remove the mark after the segments were written and synced again.

    If the removal fails, the next start writes the segments again, which is harmless.
    """
    with suppress(OSError):
        disk.unlink(f"{directory}/{UNSYNCED}")
