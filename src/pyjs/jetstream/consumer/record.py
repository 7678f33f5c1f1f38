"""The state of a consumer on disk: a snapshot, and behind it what changed turn by turn.

A snapshot is a JSON object (see `Consumer.dump_state`) with a version; a delta is what
jetstream/consumer/acks/log.pyx writes. Replaying a delta repeats what happened, with the same code. Whoever keeps
the bytes (a `StateFile`) guards them with checksums and cuts a torn end; what is lost so is at most the last turn,
whose messages are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import PyjsError
from pyjs.jetstream.consumer.delivery.skips import Skips

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.consumer.start import Start
    from pyjs.store.state.consumer_state import NextState

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
