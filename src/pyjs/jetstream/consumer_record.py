"""The state of a consumer on disk: a snapshot, and behind it what changed turn by turn.

A snapshot is a JSON object (see `Consumer.dump_state`) with a version; a delta is what consumer_log.pyx writes.
Replaying a delta repeats what happened, with the same code. Whoever keeps the bytes (a `StateFile`) guards them
with checksums and cuts a torn end; what is lost so is at most the last turn, whose messages are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import PyjsError, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from pyjs.jetstream.consumer import Consumer
    from pyjs.jetstream.consumer_start import Start

    class StateFile(Protocol):
        """Where one consumer's state is kept."""

        @property
        def deltas_size(self) -> int:
            """Return how many bytes of deltas are behind the snapshot."""

        def append(self, delta: bytes) -> None:
            """Add one turn's changes."""

        def snapshot(self, data: bytes) -> None:
            """Replace everything."""

        def when_synced(self, done: Callable[[Exception | None], None]) -> None:
            """Have `done` called when what was kept so far is on the medium, or cannot be."""


__all__ = ["StoreFailed", "record", "rewrite"]

VERSION = 1
DELTAS_SIZE_MIN = 64 * 1024  # deltas that are worth a new snapshot
DELTAS_PER_SNAPSHOT = 8  # how many times larger than the snapshot they may get


class BadState(PyjsError):
    """A stored consumer state that can not be read."""


class NewerState(BadState):
    """A consumer state whose version is not known here; it stays as it is."""


def first_state(start: Start) -> bytes:
    """Return the snapshot of a consumer that begins at `start`."""
    state = {
        "next_seq": start.seq,
        "delivered": [0, start.seq - 1],
        "floor": [0, start.seq - 1],
        "pending": [],
        "spent": [],
        "skips": list(start.skips),
        "skips_end": start.skips_end,
    }
    return orjson.dumps({"version": VERSION, **state})


def record(consumer: Consumer) -> None:
    """Keep what changed since the last call.

    Raises:
        OSError: it could not be written.
    """
    changes, file = consumer.changes, consumer.file
    assert file is not None
    delta = changes.take()
    if changes.lost:
        rewrite(consumer)
    elif delta:
        changes.lost = True  # until it is in the file: what follows makes no sense without it
        file.append(delta)
        changes.lost = False
        if file.deltas_size > max(DELTAS_SIZE_MIN, DELTAS_PER_SNAPSHOT * 24 * len(consumer.pending)):
            rewrite(consumer)


def rewrite(consumer: Consumer) -> None:
    """Keep the whole state."""
    consumer.changes.take()
    consumer.changes.lost = True
    assert consumer.file is not None
    pending = orjson.Fragment(consumer.pending.dump_json())  # there may be many
    consumer.file.snapshot(orjson.dumps({"version": VERSION, **consumer.dump_state(pending)}))
    consumer.changes.lost = False
