"""Payloads of entries: staged ones, recent ones in memory, and older ones, which are read from the log.

The key of an entry is group, index and term, since two leaders may have different payloads for the same index.

A payload is staged before the engine gets the entry, which the engine may refuse. `take` returns a staged payload,
which is then written to the log; `forget_staged` drops the others at the end of the engine's turn.

Compiled because each replicated entry passes it on three servers (benchmarks/: r3-sync-1).
"""
from typing import TypeAlias

from pyjs.base.errors import PyjsError

Key: TypeAlias = tuple[int, int, int]  # group, index, term

MEMORY_MAX = 8 << 20       # bytes of recent payloads
COST = 256                  # bytes of memory for an entry, in addition to its payload

cdef enum:
    ENTRY_COST = 256        # COST
    SHARE = 8               # one part in this many is freed at once


class Gone(PyjsError):
    """Raised if the log no longer has an entry: it was compacted, or another leader's entry replaced it."""


cdef class Payloads:
    """The payloads of the entries of all groups on one node."""

    def __init__(self, log, memory_max=MEMORY_MAX) -> None:
        self.log = log
        self.memory_max = memory_max
        self.staged, self.recent = {}, {}

    cpdef stage(self, tuple key, bytes payload):
        """Store a payload until the engine has accepted or refused its entry."""
        self.staged[key] = payload

    cpdef bytes take(self, tuple key):
        """Move a staged payload to the recent payloads in memory, and return it.

        Raises:
            KeyError: no payload is staged for `key`.
        """
        cdef bytes payload = self.staged.pop(key), before
        if key in self.recent:
            before = self.recent.pop(key)
            self.size -= len(before) + ENTRY_COST
        self.recent[key] = payload
        self.size += len(payload) + ENTRY_COST
        if self.size > self.memory_max:
            self.drop_oldest()
        return payload

    cdef drop_oldest(self):
        """Drop the oldest payloads, until a part of the memory is free; the newest one stays.

        Many at once, because a dict searches its oldest key from the places of all keys that were removed before.
        """
        cdef Py_ssize_t most = self.memory_max - self.memory_max // SHARE, size = self.size, count = 0
        cdef bytes payload
        cdef list keys = []
        for key, payload in self.recent.items():
            count += 1
            if size <= most or count == len(self.recent):
                break
            size -= len(payload) + ENTRY_COST
            keys.append(key)
        for key in keys:
            del self.recent[key]
        self.size = size

    def forget_staged(self) -> None:
        """Drop payloads of entries that the engine has not accepted."""
        self.staged.clear()

    cpdef bytes get(self, tuple key):
        """Return the payload of an entry.

        Raises:
            Gone: neither memory nor the log has the entry.
            NotNow: the entry cannot be read from the log now.
            CorruptRecord: the entry is damaged in the log.
        """
        cdef bytes payload = self.recent.get(key)
        if payload is None:
            payload = self.staged.get(key)
        return self.read(*key) if payload is None else payload

    def read(self, group: int, index: int, term: int) -> bytes:
        """Return the payload of an entry from the log; raises the same errors as `get`."""
        stored = self.log.groups.get(group)
        if stored is None or index <= stored.start or stored.term_at(index) != term:
            raise Gone(f"the log of group {group} has no entry {index} of term {term}")
        return self.log.payload(group, index)

    cpdef list recent_of(self, list keys, Py_ssize_t size_max):
        """Return the payloads of entries, or None if any is not in memory or all together exceed `size_max` bytes."""
        cdef list found = []
        cdef bytes payload
        for key in keys:
            payload = self.recent.get(key)
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
        for key in [key for key in self.recent if key[0] == group]:
            self.size -= len(self.recent.pop(key)) + ENTRY_COST
