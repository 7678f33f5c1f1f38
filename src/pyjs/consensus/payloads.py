"""Payloads of entries: staged ones, recent ones in memory, and older ones, which are read from the log.

The key of an entry is group, index and term, since two leaders may have different payloads for the same index.

A payload is staged before the engine gets the entry, which the engine may refuse. `take` returns a staged payload,
which is then written to the log; `forget_staged` drops the others at the end of the engine's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyjs.consensus.log.node_log import NodeLog

Key: TypeAlias = tuple[int, int, int]  # group, index, term

MEMORY_MAX = 32 << 20  # bytes of recent payloads
COST = 256  # bytes of memory for an entry, in addition to its payload


class Gone(PyjsError):
    """Raised if the log no longer has an entry: it was compacted, or another leader's entry replaced it."""


class Payloads:
    """The payloads of the entries of all groups on one node."""

    def __init__(self, log: NodeLog, memory_max: int = MEMORY_MAX) -> None:
        self._log = log
        self._memory_max = memory_max
        self.staged: dict[Key, bytes] = {}  # payloads of entries that the engine is getting
        self._recent: dict[Key, bytes] = {}  # oldest first
        self._size = 0  # total size of `_recent`, with COST for each; at most `memory_max`, or one entry

    def stage(self, key: Key, payload: bytes) -> None:
        """Store a payload until the engine has accepted or refused its entry."""
        self.staged[key] = payload

    def take(self, key: Key) -> bytes:
        """Move a staged payload to the recent payloads in memory, and return it.

        Raises:
            KeyError: no payload is staged for `key`.
        """
        payload = self.staged.pop(key)
        before = self._recent.pop(key, None)
        if before is not None:
            self._size -= len(before) + COST
        self._recent[key] = payload
        self._size += len(payload) + COST
        while self._size > self._memory_max and len(self._recent) > 1:
            oldest = next(iter(self._recent))
            self._size -= len(self._recent.pop(oldest)) + COST
        return payload

    def forget_staged(self) -> None:
        """Drop payloads of entries that the engine has not accepted."""
        self.staged.clear()

    def get(self, key: Key) -> bytes:
        """Return the payload of an entry.

        Raises:
            Gone: neither memory nor the log has the entry.
            NotNow: the entry cannot be read from the log now.
            CorruptRecord: the entry is damaged in the log.
        """
        payload = self._recent.get(key)
        if payload is None:
            payload = self.staged.get(key)
        return self._read(*key) if payload is None else payload

    def _read(self, group: int, index: int, term: int) -> bytes:
        stored = self._log.groups.get(group)
        if stored is None or index <= stored.start or stored.term_at(index) != term:
            raise Gone(f"the log of group {group} has no entry {index} of term {term}")
        return self._log.payload(group, index)

    def recent_of(self, keys: Sequence[Key], size_max: int) -> list[bytes] | None:
        """Return the payloads of entries, or None if any is not in memory or all together exceed `size_max` bytes."""
        found = []
        for key in keys:
            payload = self._recent.get(key)
            if payload is None:
                payload = self.staged.get(key)
                if payload is None:
                    return None
            size_max -= len(payload)
            found.append(payload)
        return found if size_max >= 0 else None

    def forget(self, group: int) -> None:
        """Drop all payloads of a group from memory."""
        self.staged = {key: payload for key, payload in self.staged.items() if key[0] != group}
        for key in [key for key in self._recent if key[0] == group]:
            self._size -= len(self._recent.pop(key)) + COST
