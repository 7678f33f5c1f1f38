"""Chores that wait until something holds, or until a time.

Whoever changes what they may wait for calls `notify`; each waiter looks for itself and waits on. There are few
waiters, all of them requests or the steady work of one server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.base.timers import Timers
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn


class Waiters:
    """The waiting chores of one server."""

    def __init__(self, turn: Turn, timers: Timers) -> None:
        self._turn = turn
        self._timers = timers
        self._waiting: list[Chore] = []

    def notify(self) -> None:
        """Let every waiter look again, in this turn or the next one."""
        self._turn.chores.extend(self._waiting)
        self._waiting.clear()

    def until(self, holds: Callable[[], object], wait_ns: int = 0) -> Generator[Step, None, bool]:
        """Wait until something holds, for `wait_ns` at most (0: for any time); return whether it holds."""
        if holds():
            return True
        deadline_ns = self._turn.now + wait_ns if wait_ns else 0
        timer = self._timers.at(deadline_ns, self.notify) if deadline_ns else None
        try:
            while not holds():
                if deadline_ns and self._turn.now >= deadline_ns:
                    return False
                yield self._waiting.append
        finally:
            if timer is not None:
                timer.cancel()
        return True
