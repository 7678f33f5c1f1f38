"""One sync of a whole file system instead of a sync of each file.

Syncing one file takes a commit of the journal and a flush of the device, 0.2 to 1.4 ms, even without new bytes; one
syncfs covers any number of files (1,000 files: 1.4 s one by one, 0.1 s together). The kernel reports a failed write
of a file to each descriptor that was open at the time; `sync_file` queries it (3 us). If syncfs is not supported or
fails, each file and directory is synced separately.

One thread calls `begin`, then `sync_file` and `sync_dir` any number of times, then `end`. The sync covers only writes
that were made before `begin`.
"""

from __future__ import annotations

from contextlib import suppress

from pyjs.base.disk import Disk


class Together:
    """A group of file syncs that one sync of the file system replaces."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._fd = -1  # descriptor of the directory; -1: files are synced one by one

    def begin(self) -> None:
        """Sync the whole file system with one call, if possible."""
        with suppress(OSError):  # after an error, files are synced one by one, which finds the damaged file
            fd = self._disk.open_directory(self._directory)
            try:
                self._disk.sync_filesystem(fd)
                self._disk.sync_dir(self._directory)  # not every syncfs reports a failed write of the journal
            except OSError:
                self._disk.close_file(fd)
                raise
            self._fd = fd

    def end(self) -> None:
        """End the group: later calls sync files one by one."""
        if self._fd >= 0:
            self._disk.close_file(self._fd)
            self._fd = -1

    def sync_file(self, fd: int) -> None:
        """Make the file's bytes durable.

        Raises:
            OSError: the sync failed, or an earlier write of the file has failed.
        """
        if self._fd >= 0 and self._disk.shares_filesystem(self._fd, fd):
            self._disk.check_file(fd)
        else:
            self._disk.sync_file(fd)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable, if the sync of the file system has not done so.

        Raises:
            OSError: the sync failed.
        """
        if self._fd < 0 or not self._disk.shares_filesystem(self._fd, path):
            self._disk.sync_dir(path)
