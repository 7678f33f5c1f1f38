"""The consumers in the snapshot with which the log of a group begins.

After a restart, consumers are restored from the snapshot and the entries after it. They must not be ahead of the
store, since an interest stream stores only the messages that its consumers need at that moment. A cut log begins
after the last entry whose effects are durable in the store, so a restart needs the consumers as of that entry. A
replica that is behind needs the consumers as of the last applied entry. The snapshot has the consumers as of both
entries. `load` uses those of the latest entry that the store has applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from pyjs.jetstream.stream.replicated.replica import Replica


class ConsumerSnapshots:
    """The consumers of one replica, as of the last entry whose effects are durable in the store."""

    def __init__(self) -> None:
        self.index = 0  # index of the last durable entry
        self._dump = b""
        self._coming = (0, b"")  # index and consumers at the beginning of the running sync

    def take(self, replica: Replica) -> None:
        """Store the current consumers. Every applied entry must be durable."""
        self.begin(replica)
        self.ended(replica.index)

    def begin(self, replica: Replica) -> None:
        """Store the consumers as of the beginning of a sync."""
        self._coming = (replica.index, replica.consumers.dump())

    def ended(self, synced_index: int) -> None:
        """Handle the end of a sync, after which entries up to `synced_index` are durable."""
        if self.index < self._coming[0] <= synced_index:
            self.index, self._dump = self._coming

    def encode(self, replica: Replica) -> bytes:
        """Return the durable and the current consumers, encoded for `load`."""
        found = [(self.index, self._dump)] if self.index < replica.index else []
        packed: bytes = msgpack.packb([*found, (replica.index, replica.consumers.dump())])
        return packed


def load(replica: Replica, data: bytes) -> None:
    """Restore the consumers of a replica that has just been opened, from the data of `ConsumerSnapshots.encode`.

    Consumers as of an entry that the store has not applied are ignored.
    """
    for index, dump in msgpack.unpackb(data):
        if dump and replica.consumers.index < index <= replica.index:
            replica.consumers.load(dump)
