"""The state of a consumer on disk: a snapshot, and behind it what changed turn by turn.

A snapshot is a JSON object (see `Consumer.dump_state`) with a version; a delta is what
jetstream/consumer/acks/log.pyx writes. Replaying a delta repeats what happened, with the same code. Whoever keeps
the bytes (a `StateFile`) guards them with checksums and cuts a torn end; what is lost so is at most the last turn,
whose messages are delivered again.

A snapshot at work is written by the thread that writes metadata. The state before stays the one that counts until the
new one is durable: both files of the new generation are written under other names, synced, and get their names
together. Meanwhile the consumer delivers and answers nothing, so that nothing happens which neither of them says.
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
        """Where one consumer's state is kept."""

        @property
        def deltas_size(self) -> int:
            """Return how many bytes of deltas are behind the snapshot."""

        def append(self, delta: bytes) -> None:
            """Add one turn's changes."""

        @property
        def snapshot_size(self) -> int:
            """Return how many bytes the snapshot takes."""

        def snapshot(self, data: bytes) -> None:
            """Replace everything."""

        def next_state(self, data: bytes) -> NextState:
            """Return what replaces everything, for a thread to write."""

        def took(self, state: NextState) -> None:
            """Go on behind that, which is durable."""

        def when_synced(self, done: Callable[[Exception | None], None]) -> None:
            """Have `done` called when what was kept so far is on the medium, or cannot be."""


VERSION = 1
DELTAS_SIZE_MIN = 64 * 1024  # deltas that are worth a new snapshot
DELTAS_PER_SNAPSHOT = 8  # how many times larger than the snapshot they may get
KINDS = ("log", "snap")  # of the files of a state


class BadState(PyjsError):
    """A stored consumer state that can not be read."""


class NewerState(PyjsError):
    """A consumer state whose version is not known here; it stays as it is."""


def first_state(start: Start) -> bytes:
    """Return the snapshot of a consumer that begins at `start`."""
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
    """Return the whole state."""
    pending = orjson.Fragment(consumer.acks.pending.dump_json())  # there may be many
    return orjson.dumps({"version": VERSION, **consumer.dump_state(pending)})


def is_log_long(file: StateFile, pending: int) -> bool:
    """Return whether the deltas are worth a new snapshot, of `pending` deliveries."""
    pending_size = DELTAS_PER_SNAPSHOT * 24 * pending
    return file.deltas_size > max(DELTAS_SIZE_MIN, pending_size, file.snapshot_size)


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
