"""The subscriptions of one account at this server, in the form that other servers need.

Each subject and queue group is sent to other servers with the number of the group's members at this server. It is
sent again only when this number changes. Changes are collected: many changes of a subject in one turn cause only one
frame. This module does not use routes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyjs.cluster.awaited import Awaited
    from pyjs.core.account import Account
    from pyjs.subjects.sublist import Subscription

Key: TypeAlias = tuple[bytes, bytes]  # subject, and queue group or b"" for plain subscriptions


class Interest:
    """The interest of one account at this server; stored as `Account.interest`."""

    def __init__(self, account: Account, changed: Callable[[Interest], None]) -> None:
        self.account = account
        self.counts: dict[Key, int] = {}
        self._changed = changed  # called at the first change after each `take_changes`
        self._changes: dict[Key, None] = {}  # an ordered set
        self._withdrawn: set[Key] = set()
        self.awaited: Awaited | None = None  # None: messages without a receiver are not held
        for sub in account.subs.subscriptions():
            if not sub.is_remote:
                self.subscribed(sub)

    def subscribed(self, sub: Subscription) -> None:
        """Count a subscription that was added."""
        for key in keys_of(sub):
            count = self.counts[key] = self.counts.get(key, 0) + 1
            if count == 1 or sub.queue or key in self._withdrawn:
                # the new subscription is not withdrawn, and needs these messages
                self._withdrawn.discard(key)
                self._note(key)
        if self.awaited is not None:
            self.awaited.look_soon()

    def unsubscribed(self, sub: Subscription) -> None:
        """Count a subscription that was removed."""
        for key in keys_of(sub):
            count = self.counts.pop(key) - 1
            if count:
                self.counts[key] = count
            else:
                self._withdrawn.discard(key)
            if not count or sub.queue:
                self._note(key)

    def weight(self, key: Key) -> int:
        """Return the number of members of a queue group, 1 for plain subscriptions, or 0 if there are none."""
        count = 0 if key in self._withdrawn else self.counts.get(key, 0)
        return count if key[1] else min(count, 1)

    def withdraw(self, keys: Iterable[Key]) -> bool:
        """Withdraw interest, so that other servers stop sending messages for it; return whether any was withdrawn.

        `keys` has the key of each subscription that leaves. A key that further subscriptions share is not withdrawn.
        The subscriptions remain, and receive messages in transit.
        """
        withdrawn = [
            key
            for key, count in Counter(keys).items()
            if self.counts.get(key) == count and key not in self._withdrawn
        ]
        for key in withdrawn:
            self._withdrawn.add(key)
            self._note(key)
        return bool(withdrawn)

    def take_changes(self) -> list[Key]:
        """Return the keys that have changed since the last call, oldest first."""
        changes, self._changes = list(self._changes), {}
        return changes

    def _note(self, key: Key) -> None:
        first = not self._changes
        self._changes[key] = None
        if first:
            self._changed(self)


def keys_of(sub: Subscription) -> tuple[Key, ...]:
    """Return the keys of the interest that is sent to other servers for `sub`; () if its sink has `stays_here` set.

    If the sink has `told_as`, the keys have these subjects instead of the subscription's own.
    """
    if getattr(sub.sink, "stays_here", False):
        return ()
    subjects: tuple[bytes, ...] | None = getattr(sub.sink, "told_as", None)
    return ((sub.subject, sub.queue),) if subjects is None else tuple((each, b"") for each in subjects)
