"""The state of an open consumer of a replicated stream, for changes that a single server would write to a file.

It replaces `ConsumerStateFile` in the consumer's StateKeeper, so changes are proposed instead of written. They become
a part of this turn's payload, and are not committed yet when `append` returns; `when_synced` reports their commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.stream.replicated.consumers import CREATED, CommittedConsumer
from pyjs.jetstream.stream.replicated.payload import operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.jetstream.stream.replicated.replica import Replica


class ProposedState:
    """The state of one consumer, whose changes are proposed instead of written."""

    def __init__(self, replica: Replica, consumer: CommittedConsumer) -> None:
        self._replica = replica
        self._name = consumer.name.encode()
        self._created = CREATED.pack(consumer.created_ns)
        self.deltas_size = len(consumer.changes)  # bytes of changes since the last whole state
        self.snapshot_size = len(consumer.state)

    def append(self, delta: bytes) -> None:
        """Propose the changes of a turn."""
        self._replica.add_changes("consumer changes", self._name, self._created + delta)
        self.deltas_size += len(delta)

    def snapshot(self, data: bytes) -> None:
        """Propose a whole state, which replaces the last one and all changes since."""
        self._replica.add_changes("consumer state", self._name, self._created + data)
        self._begin(data)

    def payload_of(self, data: bytes) -> bytes:
        """Return a payload for `Replica.operate` with the whole state `data`; without changes if `data` is empty."""
        if not data:
            return operation("consumer changes", self._created, self._name)
        self._begin(data)
        return operation("consumer state", self._created + data, self._name)

    def _begin(self, data: bytes) -> None:
        self.deltas_size, self.snapshot_size = 0, len(data)

    def when_synced(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` with None when all proposals so far are committed; if they are lost, never call `done`."""
        if not self._replica.collects:
            self.append(b"")  # payloads of earlier turns may be in flight
        self._replica.when_applied(done)
