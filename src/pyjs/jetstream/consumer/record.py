"""The stored state of a consumer: a snapshot, followed by the changes of each turn (deltas).

A snapshot is a JSON object (see `Consumer.dump_state`) with a version; jetstream/consumer/acks/log.pyx writes the
deltas. Replaying a delta runs the code that made the changes. A `StateFile` stores the snapshot and the deltas with
checksums, and cuts off a torn end. This loses at most the changes of the last turn, whose messages are then delivered
again.

The metadata thread writes the snapshot of a running consumer. The old state stays valid until the new one is durable:
both files of the new generation are written under temporary names, synced, and renamed together. Until then, the
consumer neither delivers nor answers, so no change can be missing from both states.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import PyjsError
from pyjs.jetstream.consumer.delivery.cursor import Skips
from pyjs.jetstream.files.metadata import Change

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from pyjs.base.disk import Disk
    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.consumer.start import Start
    from pyjs.store.state.consumer_state import NextState
    from pyjs.store.sync_set import SyncSet

    class StateFile(Protocol):
        """The stored state of one consumer."""

        @property
        def deltas_size(self) -> int:
            """The size in bytes of the deltas after the snapshot."""

        def append(self, delta: bytes) -> None:
            """Append the changes of one turn."""

        @property
        def snapshot_size(self) -> int:
            """The size of the snapshot in bytes."""

        def snapshot(self, data: bytes) -> None:
            """Replace the snapshot and the deltas with a new snapshot, which is written when this returns."""

        def when_synced(self, done: Callable[[Exception | None], None]) -> None:
            """Call `done` with None when everything written so far is durable, or with the error if a sync fails."""


VERSION = 1
KEYS = {"version", "next_seq", "delivered", "floor", "pending", "spent", "terms", "skips", "skips_end"}
DELTAS_SIZE_MIN = 64 * 1024  # no new snapshot is written if the deltas have fewer bytes
DELTAS_PER_SNAPSHOT = 8  # maximum size of the deltas, in multiples of the pending deliveries' estimated size
KINDS = ("log", "snap")  # the files of a state


class BadState(PyjsError):
    """Raised if a stored consumer state is invalid."""


class NewerState(PyjsError):
    """Raised if a newer version wrote the consumer state. Its files must not change."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its state was written by a newer version of pyjs-server: {what}")


def check_version(state: dict[str, object]) -> None:
    """Refuse a snapshot of a newer version, so that nothing in it is ignored.

    Raises:
        NewerState: its version is unknown, or it has an unknown key.
        LookupError: it has no version.
    """
    if state["version"] != VERSION:
        raise NewerState(f"it has version {state['version']!r}, and this one reads {VERSION}")
    unknown = sorted(state.keys() - KEYS)
    if unknown:
        raise NewerState(f"it has the unknown key {unknown[0]!r}")


def first_state(start: Start) -> bytes:
    """Return the snapshot (JSON) of a new consumer that starts at `start`."""
    state = {
        "next_seq": start.seq,
        "delivered": [0, start.seq - 1],
        "floor": [0, start.seq - 1],
        "pending": [],
        "spent": [],
        "skips": Skips(start.skips).state(),
        "skips_end": start.skips_end,
    }
    return orjson.dumps({"version": VERSION, **state})


def snapshot_of(consumer: Consumer) -> bytes:
    """Return the snapshot (JSON) of a consumer."""
    # as text, since there may be many deliveries
    pending = orjson.Fragment(consumer.acks.pending.dump_json())
    return orjson.dumps({"version": VERSION, **consumer.dump_state(pending)})


def is_log_long(file: StateFile, pending: int) -> bool:
    """Return whether the deltas of a state with `pending` deliveries are large enough to justify a new snapshot."""
    pending_size = DELTAS_PER_SNAPSHOT * 24 * pending
    return file.deltas_size > max(DELTAS_SIZE_MIN, pending_size, file.snapshot_size)


class StateChange(Change):
    """A change of files that writes a new generation of one consumer's state."""

    def __init__(self, state: NextState) -> None:
        self.path = state.directory
        self._state = state
        self._published: list[str] = []

    def _temporary(self, kind: str) -> str:
        return f"{self.path}/{kind}.tmp"

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write both files, under names that recovery ignores."""
        parent = self.path.rpartition("/")[0]
        if not disk.exists(self.path) and disk.exists(parent):  # otherwise the stream was deleted
            disk.make_dirs(self.path)
        if disk.exists(self.path):
            # The first log syncs the name of its directory; this file may be written before the first log.
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
        """Rename both files to their final names."""
        for kind in KINDS:
            path = self._state.path_of(kind)
            disk.rename(self._temporary(kind), path)
            self._published.append(path)
            dirty.renamed(self._temporary(kind), path)
        dirty.add_directory(self.path)

    def undo(self, disk: Disk) -> None:
        """Remove the new files; the old generation stays valid as long as a new file is missing."""
        for path in (*self._published, *map(self._temporary, KINDS)):
            with suppress(OSError):
                disk.unlink(path)

    def clean_up(self, disk: Disk) -> None:
        """Remove the old generation."""
        for path in self._state.replaced:
            with suppress(FileNotFoundError):
                disk.unlink(path)
