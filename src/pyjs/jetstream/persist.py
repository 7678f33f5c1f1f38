"""Where an account's file streams live, and how they come back.

The one module of the engine that knows the directory layout and the formats of the store room.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyjs.jetstream.config import StreamConfig
from pyjs.store.memstore import MemStore
from pyjs.store.store import StreamStore


class AccountFiles:
    """The stored streams of one account."""

    def create(self, config: StreamConfig, created_ns: int) -> StreamStore:
        """Make the directory of a new stream and return its empty store."""
        return MemStore()

    def save(self, config: StreamConfig, created_ns: int) -> None:
        """Keep a changed configuration."""

    def remove(self, name: str) -> None:
        """Remove what is left of a stream whose store has been destroyed."""

    def recover(self) -> Iterator[tuple[StreamConfig, int, StreamStore]]:
        """Yield configuration, creation time and store of every stream."""
        yield from ()
