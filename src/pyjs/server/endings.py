"""Clean-up of closed connections; after each turn, a bounded part of it is done.

Ending a session removes its subscriptions, copies the session for monitoring and frees its buffers, which takes some
30 us. This module handles only callables, not sessions.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.server.failures import log_exception

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.clock import Clock
    from pyjs.base.log import Log

SHARE_NS = 2_000_000  # maximum time for calls after one turn, in ns
STRIDE = 8  # calls between two reads of the clock


class Endings:
    """A queue of calls that run after a turn, in the order in which they were added."""

    def __init__(self, clock: Clock, log: Log, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._log = log
        self._wake = wake  # requests a turn
        self.waiting: deque[Callable[[], object]] = deque()

    def add(self, end: Callable[[], object]) -> None:
        """Queue `end` and request a turn.

        `end` runs after that turn, or after a later one if many calls are queued.
        """
        self.waiting.append(end)
        self._wake()

    def after_turn(self) -> None:
        """Run queued calls for about `SHARE_NS` nanoseconds.

        An exception of a call is logged. If calls remain, another turn is requested.
        """
        deadline_ns = self._clock.now_ns() + SHARE_NS
        for at in range(len(self.waiting)):
            if at % STRIDE == 0 and at and self._clock.now_ns() >= deadline_ns:
                break
            try:
                self.waiting.popleft()()
            except Exception as error:  # one connection caused it; continue with the others
                log_exception(self._log, "A connection did not end as it should", error)
        if self.waiting:
            self._wake()
