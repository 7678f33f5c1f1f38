"""Chores that wait for a condition, with or without a time limit.

Code that changes a state which conditions read must call `notify`. Each waiter then checks its condition. A timer
wakes only the waiter that set it, so many waiting requests do not wake each other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.base.timers import Timers
    from pyjs.core.account import Account
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn

INTEREST_NS = NS_PER_S  # maximum wait until this server knows the subscriber to a reply subject
# maximum wait for a server of a stream, before a request to the stream is refused
OFFLINE_NS = 500 * NS_PER_MS
LOOK_NS = 10 * NS_PER_MS  # interval of checks of a condition without a notification


class Waiters:
    """The waiting chores of one server."""

    def __init__(self, turn: Turn, timers: Timers) -> None:
        self._turn = turn
        self._timers = timers
        self._waiting: dict[Chore, None] = {}  # oldest first

    @property
    def now_ns(self) -> int:
        """The time of this turn, in ns."""
        return self._turn.now

    def notify(self) -> None:
        """Make every waiter check its condition, in this turn or the next one."""
        self._turn.chores.extend(self._waiting)
        self._waiting.clear()

    def until(self, holds: Callable[[], object], wait_ns: int = 0) -> Generator[Step, None, bool]:
        """Wait until `holds` returns a true value, and return True; return False after `wait_ns` (0: no limit)."""
        if holds():
            return True
        if not wait_ns:
            while not holds():
                yield self._park
            return True
        deadline_ns = self._turn.now + wait_ns
        mine: list[Chore] = []
        timer = self._timers.at(deadline_ns, partial(self._wake, mine))
        try:
            while not holds():
                if self._turn.now >= deadline_ns:
                    return False
                yield partial(self._park, mine=mine)
        finally:
            timer.cancel()
        return True

    def until_heard(self, account: Account, reply: bytes) -> Generator[Step, None, None]:
        """Wait until this server knows the subscriber to a reply subject, up to INTEREST_NS.

        If the client is connected to another server, its interest and its request arrive on different connections.
        """
        for _ in range(INTEREST_NS // LOOK_NS):
            if not reply or account.has_interest(reply):
                return
            yield from self.until(lambda: account.has_interest(reply), LOOK_NS)

    def _park(self, chore: Chore, mine: list[Chore] | None = None) -> None:
        self._waiting[chore] = None
        if mine is not None:
            mine[:] = [chore]

    def _wake(self, chores: list[Chore]) -> None:
        """Make the chores that still wait check their conditions."""
        for chore in chores:
            if chore in self._waiting:
                del self._waiting[chore]
                self._turn.chores.append(chore)
