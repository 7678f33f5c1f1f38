"""Changes of the files of consumers: made, changed, removed, each in a batch with others.

A new consumer is written under a name that begins with `.deleting-`, as what is to be removed: a crash before it is
published leaves a directory that the next start removes. It is published by a rename, when its files are durable. A
consumer is removed by the same rename backwards, and its files go when that is durable.

Knows the names of a consumer's files; nothing of what is in them.
"""

from __future__ import annotations

from pyjs.base.disk import Disk
from pyjs.jetstream.metadata import Change
from pyjs.store.layout import DELETING, free_name, set_aside
from pyjs.store.meta import COPIES, save_meta
from pyjs.store.sync_set import SyncSet


class NewConsumer(Change):
    """A consumer that is made, with both copies of its metadata and the first generation of its state."""

    def __init__(self, directory: str, meta: bytes, state: bytes) -> None:
        self.path = directory
        self.state = state  # the envelope with which both files of the state begin
        self.aside = ""  # where that is now which was in its place
        self._parent, _, name = directory.rpartition("/")
        self._hidden = f"{self._parent}/{DELETING}new-{name}"
        self._files = {f"meta.{copy}": meta for copy in COPIES} | {"snap.1": state, "log.1": state}
        self._published = False

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write all files into a directory that no start looks at."""
        if disk.exists(self._hidden):  # an attempt failed, and could not be taken back
            disk.remove_tree(self._hidden)
        try:
            if not disk.exists(self._parent):  # a stream without consumers has none, nor has a copy of one
                dirty.add_directory(self._parent.rpartition("/")[0])
            disk.make_dirs(self._hidden)
            for name, data in self._files.items():
                _put(disk, f"{self._hidden}/{name}", data)
                dirty.add_file(f"{self._hidden}/{name}")
            dirty.add_directory(self._hidden)
        except OSError:
            dirty.forget(self._hidden)
            self.undo(disk)
            raise

    def publish(self, disk: Disk, dirty: SyncSet) -> None:
        """Give the directory its name; what is in its place is set aside."""
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


class ChangedConsumer(Change):
    """A consumer with new metadata."""

    def __init__(self, directory: str, meta: bytes) -> None:
        self.path = directory
        self._meta = meta

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Replace one copy after the other; one of them is whole at every moment."""
        save_meta(disk, self.path, "meta", self._meta)


class RemovedConsumer(Change):
    """A consumer whose files go."""

    def __init__(self, directory: str) -> None:
        self.path = directory
        self._parent = directory.rpartition("/")[0]
        self._hidden = ""  # "": it is where it was

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Give the directory a name that no start looks at."""
        if disk.exists(self.path):
            hidden = free_name(disk, self.path, DELETING)
            disk.rename(self.path, hidden)
            self._hidden = hidden
            dirty.add_directory(self._parent)

    def undo(self, disk: Disk) -> None:
        """Give it its name back."""
        if self._hidden:
            disk.rename(self._hidden, self.path)
            self._hidden = ""

    def clean_up(self, disk: Disk) -> None:
        """Remove the files."""
        if self._hidden:
            disk.remove_tree(self._hidden)


def _put(disk: Disk, path: str, data: bytes) -> None:
    fd = disk.open_file(path, create=True)
    try:
        disk.write_at(fd, data, 0)
    finally:
        disk.close_file(fd)
