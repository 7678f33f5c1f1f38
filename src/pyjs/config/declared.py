"""The blocks `streams`, `consumers`, `kv` and `object_store`, as written in the file.

This module knows nothing of the options of a stream: pyjs.declared reads the entries, with the same declarations as
the API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.config.values import ConfigMap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyjs.config.values import Data


class Block:
    """The entries of one block of declared assets. Two blocks are equal if their plain values are equal."""

    __slots__ = ("_compacted", "entries")

    def __init__(self, entries: ConfigMap | None = None) -> None:
        self.entries = ConfigMap() if entries is None else entries  # empty after `compact`
        self._compacted: dict[str, object] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.plain() == other.plain()

    def __hash__(self) -> int:
        return hash(tuple(self.plain()))

    def __bool__(self) -> bool:
        return bool(self.entries or self._compacted)

    @property
    def names(self) -> Iterable[str]:
        """The names of the entries."""
        return self.entries if self._compacted is None else self._compacted

    def plain(self) -> dict[str, object]:
        """Return the entries as plain values, without their places."""
        if self._compacted is not None:
            return self._compacted
        return {name: _plain(entry.value.data) for name, entry in self.entries.items()}

    def compact(self) -> None:
        """Replace the entries with their plain values, without their places.

        Entries are removed one at a time, because freeing thousands of them at once would delay other threads.
        """
        self._compacted = self.plain()
        while self.entries:
            self.entries.popitem()


def _plain(data: Data) -> object:
    if isinstance(data, ConfigMap):
        return {name: _plain(entry.value.data) for name, entry in data.items()}
    if isinstance(data, list):
        return [_plain(each.data) for each in data]
    return data if isinstance(data, str | int) else str(data)


@dataclass(slots=True)
class DeclaredBlocks:
    """The streams, consumers and buckets that a configuration file declares for one account."""

    streams: Block = field(default_factory=Block)
    consumers: Block = field(default_factory=Block)
    kv: Block = field(default_factory=Block)
    object_store: Block = field(default_factory=Block)

    def __bool__(self) -> bool:
        return any(self._blocks)

    def compact(self) -> None:
        """Replace the entries of all blocks with their plain values, without their places."""
        for each in self._blocks:
            each.compact()

    @property
    def _blocks(self) -> tuple[Block, ...]:
        return self.streams, self.consumers, self.kv, self.object_store
