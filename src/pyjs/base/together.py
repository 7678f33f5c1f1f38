"""One sync of a file system in place of many syncs of files on it.

A sync of one file costs a commit of the journal and a flush of the device, 0.2 to 1.4 ms, also when there is nothing
to write any more; one syncfs serves any number of files (1,000 files: 1.4 s one by one, 0.1 s together). What could
not be written the kernel reports for each file, through descriptors that were open when it was written: `sync_file`
asks for that (3 us). Where the whole cannot be synced, or fails, each file and directory is synced for itself.

Used in one thread: `begin`, then any number of `sync_file` and `sync_dir`, then `end`. It covers what was written
before `begin`.
"""

from __future__ import annotations

from contextlib import suppress

from pyjs.base.disk import Disk


class Together:
    """What is on the file system of a directory, synced at once."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._fd = -1  # of the directory; -1: files are synced one by one

    def begin(self) -> None:
        """Sync everything."""
        with suppress(OSError):  # then one by one, which tells whose fault it is
            fd = self._disk.open_directory(self._directory)
            try:
                self._disk.sync_filesystem(fd)
                self._disk.sync_dir(self._directory)  # a journal that failed is not told by each syncfs
            except OSError:
                self._disk.close_file(fd)
                raise
            self._fd = fd

    def end(self) -> None:
        """Cover nothing any more."""
        if self._fd >= 0:
            self._disk.close_file(self._fd)
            self._fd = -1

    def sync_file(self, fd: int) -> None:
        """Return when the file's bytes are on the medium. Raises OSError."""
        if self._fd >= 0 and self._disk.shares_filesystem(self._fd, fd):
            self._disk.check_file(fd)
        else:
            self._disk.sync_file(fd)

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium. Raises OSError."""
        if self._fd < 0 or not self._disk.shares_filesystem(self._fd, path):
            self._disk.sync_dir(path)
