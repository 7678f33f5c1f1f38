"""A fair queue: round robin over accounts, and within an account over its connections.

The items of one connection stay in order. An item that is put back (`put_back`) becomes the first of its
connection, but all other connections are served before that connection. This module knows nothing of the items.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import TypeAlias

    Owner: TypeAlias = tuple[Hashable, Hashable]  # account, connection

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A group of queues, one for each connection of each account; `take` serves them in turn."""

    __slots__ = ("_accounts", "count")

    def __init__(self) -> None:
        # The accounts and queues are served in the order of the keys. Invariant: no queue and no account is
        # empty.
        self._accounts: dict[Hashable, dict[Hashable, deque[T]]] = {}
        self.count = 0  # number of items

    def add(self, owner: Owner, item: T) -> None:
        """Queue `item` as the last of its connection."""
        self._queue_of(owner).append(item)
        self.count += 1

    def put_back(self, owner: Owner, item: T) -> None:
        """Queue an unfinished item as the first of its connection."""
        self._queue_of(owner).appendleft(item)
        self.count += 1

    def first(self) -> T | None:
        """Return the item that `take` will return next, or None if the queue is empty.

        Items that are added later do not change which item is next.
        """
        for connections in self._accounts.values():
            return next(iter(connections.values()))[0]
        return None

    def take(self) -> tuple[Owner, T]:
        """Remove and return the next item, with its owner; the queue must not be empty."""
        account = next(iter(self._accounts))
        connections = self._accounts.pop(account)
        connection = next(iter(connections))
        queue = connections.pop(connection)
        item = queue.popleft()
        if queue:
            connections[connection] = queue
        if connections:
            self._accounts[account] = connections
        self.count -= 1
        return (account, connection), item

    def _queue_of(self, owner: Owner) -> deque[T]:
        account, connection = owner
        connections = self._accounts.get(account)
        if connections is None:
            connections = self._accounts[account] = {}
        queue = connections.get(connection)
        if queue is None:
            queue = connections[connection] = deque()
        return queue
