"""Where an account's file streams live, and how they come back.

The one module of the engine that knows the directory layout and the formats of the store room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyjs.jetstream.config import StreamConfig
from pyjs.jetstream.consumer_config import ConsumerConfig
from pyjs.jetstream.consumer_record import StateFile
from pyjs.store.memstore import MemStore
from pyjs.store.store import StreamStore


@dataclass(frozen=True, slots=True)
class StoredConsumer:
    """One consumer as it was kept."""

    name: str
    config: ConsumerConfig
    created_ns: int
    snapshot: bytes
    deltas: tuple[bytes, ...]
    file: StateFile


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

    def create_consumer(
        self, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> StateFile | None:
        """Make the files of a new consumer and return where its state goes; None: nothing is kept."""
        return None

    def save_consumer(self, stream: str, name: str, config: ConsumerConfig, created_ns: int) -> None:
        """Keep a changed configuration."""

    def remove_consumer(self, stream: str, name: str) -> None:
        """Remove what is kept of a consumer."""

    def recover_consumers(self, stream: str) -> Iterator[StoredConsumer]:
        """Yield every kept consumer of a stream."""
        yield from ()
