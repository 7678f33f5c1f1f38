"""The state of a consumer on disk: a snapshot, and behind it what changed turn by turn.

A snapshot is a JSON object (see `Consumer.dump_state`) with a version; a delta is what consumer_log.pyx writes.
Replaying a delta repeats what happened, with the same code. Whoever keeps the bytes (a `StateFile`) guards them
with checksums and cuts a torn end; what is lost so is at most the last turn, whose messages are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.jetstream.consumer_log import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from pyjs.jetstream.consumer import Consumer

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


__all__ = ["StoreFailed", "record", "restore", "rewrite"]

VERSION = 1
DELTAS_SIZE_MIN = 64 * 1024  # deltas that are worth a new snapshot
RUN_MAX = 1 << 22  # deliveries or acks in a row: a turn does far fewer
DELTAS_PER_SNAPSHOT = 8  # how many times larger than the snapshot they may get


class BadState(PyjsError):
    """A stored consumer state that can not be read."""


class NewerState(BadState):
    """A consumer state whose version is not known here; it stays as it is."""


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
    consumer.file.snapshot(orjson.dumps({"version": VERSION, **consumer.dump_state()}))
    consumer.changes.lost = False


def restore(consumer: Consumer, snapshot: bytes, deltas: Iterable[bytes]) -> bool:
    """Bring `consumer` to where it was; returns whether it was ahead of its stream and must be kept anew.

    Raises:
        BadState: the bytes are not a state of this version.
    """
    try:
        state: dict[str, Any] = orjson.loads(snapshot)
        if state.pop("version") != VERSION:
            raise NewerState("the consumer state was written by a newer version: use that one")
        consumer.load_state(state)
        for delta in deltas:
            for change in decode(delta):
                _replay(consumer, change)
        return consumer.clamp()
    except NONSENSE as error:
        raise BadState(f"the consumer state is damaged: {error}") from error


def _replay(consumer: Consumer, change: tuple[int, ...]) -> None:
    kind, numbers = change[0], change[1:]
    if (kind == 1 and numbers[2] > RUN_MAX) or (kind == 2 and numbers[1] > RUN_MAX):
        raise ValueError(f"{max(numbers)} deliveries or acks in one turn")
    if kind == 1:
        consumer.replay_delivered(*numbers)
    elif kind == 2:
        consumer.replay_acked(*numbers)
    elif kind == 3:
        consumer.replay_acked_all(*numbers)
    elif kind == 4:
        consumer.replay_redelivered(*numbers)
    elif kind == 5:
        consumer.pending.in_progress(*numbers)
    elif kind in (6, 7):
        consumer.pending.nak(*numbers)
    else:
        consumer.replay_spent(*numbers)
