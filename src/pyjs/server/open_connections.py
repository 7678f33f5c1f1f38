"""The open connections of one port, and a wait for the last one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")


class OpenConnections(Generic[C]):
    """A set of connections; a task can wait until it is empty."""

    def __init__(self) -> None:
        self._open: set[C] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, connection: C) -> None:
        """Add a connection."""
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: C) -> None:
        """Remove a connection."""
        self._open.discard(connection)
        if not self._open:
            self._open.clear()  # frees the memory of the set, which would otherwise never shrink
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until no connection is open."""
        await self._empty.wait()

    def __iter__(self) -> Iterator[C]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)
