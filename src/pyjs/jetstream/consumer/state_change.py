"""The whole state of a consumer written anew, by the thread that writes metadata.

The state before stays what counts until the new one is durable: both files of the new generation are written under
other names, synced, and get their names together. Meanwhile the consumer delivers and answers nothing, so that
nothing happens which neither of them says.

Knows nothing of what a state says.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.jetstream.files.metadata import Change

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.store.state.consumer_state import NextState
    from pyjs.store.sync_set import SyncSet

KINDS = ("log", "snap")


class StateChange(Change):
    """A new generation of one consumer's state."""

    def __init__(self, state: NextState) -> None:
        self.path = state.directory
        self._state = state
        self._published: list[str] = []

    def _temporary(self, kind: str) -> str:
        return f"{self.path}/{kind}.tmp"

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write both files under names that no start looks at."""
        parent = self.path.rpartition("/")[0]
        if not disk.exists(self.path) and disk.exists(parent):  # else the stream was deleted
            disk.make_dirs(self.path)
        if disk.exists(self.path):
            # Its name is synced with the first log, which goes here before that sync may have come.
            dirty.add_directory(parent)
        try:
            for kind in KINDS:
                fd = dirty.open(self._temporary(kind), create=True)
                disk.truncate(fd, 0)
                disk.write_at(fd, self._state.envelope, 0)
        except OSError:
            for kind in KINDS:
                dirty.forget(self._temporary(kind))
            self.undo(disk)
            raise

    def publish(self, disk: Disk, dirty: SyncSet) -> None:
        """Give them their names."""
        for kind in KINDS:
            path = self._state.path_of(kind)
            disk.rename(self._temporary(kind), path)
            self._published.append(path)
            dirty.renamed(self._temporary(kind), path)
        dirty.add_directory(self.path)

    def undo(self, disk: Disk) -> None:
        """Remove them; whichever stays says what the state before says."""
        for path in (*self._published, *map(self._temporary, KINDS)):
            with suppress(OSError):
                disk.unlink(path)

    def clean_up(self, disk: Disk) -> None:
        """Remove the generation before."""
        for path in self._state.replaced:
            with suppress(FileNotFoundError):
                disk.unlink(path)
