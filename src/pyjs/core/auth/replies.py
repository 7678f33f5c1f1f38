"""Reply subjects that a client may publish to because it received requests (allow_responses).

A client may receive many requests, so each step is O(1): entries expire in the order in which they were
added. Memory is limited: when the total size of the entries is too large, the oldest entries are dropped.
This module knows nothing of sessions. Source: nats.docs "Authorization", allow_responses.
"""

from __future__ import annotations

from collections import OrderedDict

from pyjs.core.auth.permissions import ResponsePermission

# Bytes of all entries of one client: 260,000 unanswered requests with reply subjects of usual length.
SIZE_MAX = 64 * 1024 * 1024
ENTRY_SIZE = 200  # bytes of an entry in addition to its subject


class Replies:
    """The reply subjects to which one client may publish answers."""

    __slots__ = ("_leaves", "_limits", "size")

    def __init__(self, limits: ResponsePermission) -> None:
        self._limits = limits
        self._leaves: OrderedDict[bytes, list[int]] = OrderedDict()  # [answers, expires_at_ns], oldest first
        self.size = 0  # bytes of all entries

    def __len__(self) -> int:
        """Return the number of stored reply subjects."""
        return len(self._leaves)

    def note(self, reply: bytes, now_ns: int) -> None:
        """Allow answers to `reply` from `now_ns` on; if all entries together are too large, drop the oldest ones."""
        leaves = self._leaves
        if leaves.pop(reply, None) is None:
            self.size += ENTRY_SIZE + len(reply)
        leaves[reply] = [0, now_ns + self._limits.expires_ns]
        while self.size > SIZE_MAX:
            self._forget(next(iter(leaves)))
        # remove up to two expired entries for each new one, so that expired entries do not accumulate
        for _ in range(2):
            oldest = next(iter(leaves), None)
            if oldest is None or not self._expired(leaves[oldest], now_ns):
                return
            self._forget(oldest)

    def take(self, reply: bytes, now_ns: int) -> bool:
        """Count one answer to `reply`; return whether it is allowed."""
        leave = self._leaves.get(reply)
        if leave is None:
            return False
        if self._expired(leave, now_ns):
            self._forget(reply)
            return False
        leave[0] += 1
        if 0 < self._limits.messages_max <= leave[0]:
            self._forget(reply)
        return True

    def _expired(self, leave: list[int], now_ns: int) -> bool:
        return self._limits.expires_ns > 0 and leave[1] < now_ns

    def _forget(self, reply: bytes) -> None:
        del self._leaves[reply]
        self.size -= ENTRY_SIZE + len(reply)
