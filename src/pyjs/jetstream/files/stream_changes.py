"""Changes of a stream's stored metadata: its creation, updates and names, and the beginning and end of a purge.

The metadata writer's thread runs them (metadata.py), so they hold only values. A new stream's directory gets its
final name when its files are durable; a starting server removes a directory that still has its temporary name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.files.metadata import Change
from pyjs.store.format.layout import DELETING, make_directory, set_aside
from pyjs.store.format.meta import COPIES, write_whole

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.store.sync_set import SyncSet


class StreamCreation(Change):
    """The creation of the directory of a stream."""

    def __init__(self, directory: str, data: bytes, anchored: bool) -> None:
        self.path = directory
        self.data = data  # the envelope of the stream's metadata
        self.aside = ""  # new path of files that were found in the place of the directory
        self._parent, _, name = directory.rpartition("/")
        self._hidden = f"{self._parent}/{DELETING}new-{name}"
        self._anchored = anchored  # whether the names of its parent directories are known to be durable
        self._published = False

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write the directory under a temporary name; a starting server removes such directories."""
        if not disk.exists(self._parent):
            make_directory(disk, self._parent)
        elif not self._anchored:  # a killed process may not have synced the parent directories
            account = self._parent.rpartition("/")[0]
            dirty.add_directory(account)
            dirty.add_directory(account.rpartition("/")[0])
        if disk.exists(self._hidden):  # left by an attempt that could not be undone
            disk.remove_tree(self._hidden)
        try:
            disk.make_dirs(f"{self._hidden}/msgs")
            for copy in COPIES:
                fd = dirty.open(f"{self._hidden}/meta.{copy}", create=True)
                disk.write_at(fd, self.data, 0)
        except OSError:
            dirty.forget(self._hidden)
            self.undo(disk)
            raise
        dirty.add_directory(self._hidden)

    def publish(self, disk: Disk, dirty: SyncSet) -> None:
        """Rename the directory to its final name; set aside files that already have this name."""
        if disk.exists(self.path):
            self.aside = set_aside(disk, self.path)
        disk.rename(self._hidden, self.path)
        self._published = True
        dirty.add_directory(self._parent)

    def undo(self, disk: Disk) -> None:
        """Remove the directory."""
        if self._published:
            disk.rename(self.path, self._hidden)
            self._published = False
        if disk.exists(self._hidden):
            disk.remove_tree(self._hidden)


class StreamUpdate(Change):
    """An update of the stored configuration of a stream."""

    def __init__(self, directory: str, data: bytes) -> None:
        self.path = directory
        self.data = data

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write both copies of the metadata; the first copy is durable before the second is replaced."""
        first, second = (f"{self.path}/meta.{copy}" for copy in COPIES)
        temporary = f"{self.path}/meta.tmp"
        write_whole(disk, temporary, first, self.data)
        disk.sync_dir(self.path)
        fd = dirty.open(temporary, create=True)
        disk.truncate(fd, 0)
        disk.write_at(fd, self.data, 0)
        disk.rename(temporary, second)
        dirty.renamed(temporary, second)
        dirty.add_directory(self.path)


class NamesChange(Change):
    """The sync of a directory in which names have changed."""

    def __init__(self, directory: str) -> None:
        self.path = directory

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Add the directory to `dirty`."""
        dirty.add_directory(self.path)


class PurgeBegin(Change):
    """The creation of the file that records a purge in steps."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write the file."""
        fd = dirty.open(self.path, create=True)
        disk.truncate(fd, 0)
        disk.write_at(fd, self.data, 0)
        dirty.add_directory(self.path.rpartition("/")[0])

    def undo(self, disk: Disk) -> None:
        """Remove the file, since no message was purged."""
        disk.unlink(self.path)


class PurgeEnd(Change):
    """The removal of the purge file.

    If the file stays, the next start repeats the purge, which then removes nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Remove the file if it exists."""
        if disk.exists(self.path):
            dirty.forget(self.path)
            disk.unlink(self.path)
            dirty.add_directory(self.path.rpartition("/")[0])
