"""The consumers in the state that the log of a group begins with.

After a restart, consumers are restored from there and the entries after it, and must not be ahead of the store: an
interest stream stores messages for the consumers of that moment. When the log is cut, it begins after an entry up to
which the store is durable, so the consumers after that entry are in the state. A state for a replica that is behind
begins after the last applied entry. So the state has both, and `load` takes the last one that the store has reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from pyjs.jetstream.stream.replicated.replica import Replica


class ConsumerSnapshots:
    """The consumers of one replica after the last entry that is durable with all entries before it."""

    def __init__(self) -> None:
        self.index = 0  # of that entry
        self._dump = b""
        self._coming = (0, b"")  # while a sync runs

    def take(self, replica: Replica) -> None:
        """Take the consumers: everything that was applied is durable."""
        self.begin(replica)
        self.ended(replica.index)

    def begin(self, replica: Replica) -> None:
        """Take the consumers for a sync that begins."""
        self._coming = (replica.index, replica.consumers.dump())

    def ended(self, synced_index: int) -> None:
        """Note what is durable after a sync."""
        if self.index < self._coming[0] <= synced_index:
            self.index, self._dump = self._coming

    def encode(self, replica: Replica) -> bytes:
        """Return what `load` reads."""
        found = [(self.index, self._dump)] if self.index < replica.index else []
        packed: bytes = msgpack.packb([*found, (replica.index, replica.consumers.dump())])
        return packed


def load(replica: Replica, data: bytes) -> None:
    """Restore the consumers of a replica that has just been opened."""
    for index, dump in msgpack.unpackb(data):
        if dump and replica.consumers.index < index <= replica.index:
            replica.consumers.load(dump)
