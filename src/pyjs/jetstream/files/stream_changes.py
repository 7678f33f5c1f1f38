"""Changes of a stream's stored metadata: that it is made, has another configuration, is removed, or is being purged.

Each is written by the metadata writer's thread (metadata.py) and holds values only. A stream gets its name when its
files are durable; before, the next start removes them.
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
    """The directory of a new stream."""

    def __init__(self, directory: str, data: bytes, anchored: bool) -> None:
        self.path = directory
        self.data = data  # the envelope of its metadata
        self.aside = ""  # where that is now which was in its place
        self._parent, _, name = directory.rpartition("/")
        self._hidden = f"{self._parent}/{DELETING}new-{name}"
        self._anchored = anchored  # the names of the directories above are known to be on the medium
        self._published = False

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write it under a name that no start looks at."""
        if not disk.exists(self._parent):
            make_directory(disk, self._parent)
        elif not self._anchored:  # a process that was killed may not have synced them
            account = self._parent.rpartition("/")[0]
            dirty.add_directory(account)
            dirty.add_directory(account.rpartition("/")[0])
        if disk.exists(self._hidden):  # an attempt failed, and could not be taken back
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
        """Give it its name; what is in its place is set aside."""
        if disk.exists(self.path):
            self.aside = set_aside(disk, self.path)
        disk.rename(self._hidden, self.path)
        self._published = True
        dirty.add_directory(self._parent)

    def undo(self, disk: Disk) -> None:
        """Remove it."""
        if self._published:
            disk.rename(self.path, self._hidden)
            self._published = False
        if disk.exists(self._hidden):
            disk.remove_tree(self._hidden)


class StreamUpdate(Change):
    """Another configuration: one copy of the metadata is durable before the other is touched."""

    def __init__(self, directory: str, data: bytes) -> None:
        self.path = directory
        self.data = data

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write both copies."""
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
    """Names in one directory that were changed already, and are to be durable."""

    def __init__(self, directory: str) -> None:
        self.path = directory

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Have the directory synced."""
        dirty.add_directory(self.path)


class PurgeBegin(Change):
    """The file that says what a purge in steps removes."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write it."""
        fd = dirty.open(self.path, create=True)
        disk.truncate(fd, 0)
        disk.write_at(fd, self.data, 0)
        dirty.add_directory(self.path.rpartition("/")[0])

    def undo(self, disk: Disk) -> None:
        """Remove it: nothing was purged."""
        disk.unlink(self.path)


class PurgeEnd(Change):
    """The removal of that file; a start that finds it purges again what is purged."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Remove it, unless the stream is gone."""
        if disk.exists(self.path):
            dirty.forget(self.path)
            disk.unlink(self.path)
            dirty.add_directory(self.path.rpartition("/")[0])
