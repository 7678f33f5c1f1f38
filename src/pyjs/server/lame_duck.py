"""Lame duck mode: refuse new clients, ask the others to move to another server, close the rest one by one, stop.

Clients are closed at intervals: the lame duck duration minus the grace period, divided by the number of clients, but
at most one second. Each close happens at a random moment in the second half of its interval, so that clients do not
all reconnect elsewhere at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.core.session import ClientSession
    from pyjs.server.driver import Driver

NS_PER_S = 1_000_000_000
INTERVAL_MAX_NS = NS_PER_S
INTERVAL_MIN_NS = 1_000_000  # with many clients, several are closed per interval


class LameDuck:
    """The procedure that closes the clients one by one in lame duck mode."""

    def __init__(
        self,
        driver: Driver,
        duration_ns: int,
        grace_period_ns: int,
        close: Callable[[ClientSession], None],
        ended: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._duration_ns = duration_ns
        self._grace_period_ns = grace_period_ns
        self._close = close
        self._ended = ended  # called after the last client was closed
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[ClientSession] = []  # clients to close, the next one last
        self._per_interval = 1
        self._interval_ns = INTERVAL_MAX_NS

    def start(self) -> None:
        """Notify the clients, and start closing them after the grace period.

        If there is no client, call `ended` at once.
        """
        node = self._driver.node
        if not node.sessions:
            self._ended()
            return
        node.start_lame_duck()
        self._driver.wake()
        self._timer = self._driver.loop.call_later(self._grace_period_ns / NS_PER_S, self._grace_over)

    def cancel(self) -> None:
        """Stop closing clients, because the server is stopping now."""
        if self._timer is not None:
            self._timer.cancel()

    def _grace_over(self) -> None:
        node = self._driver.node
        node.log.info("Closing existing clients")
        self._waiting = list(reversed(node.sessions.values()))
        spread_ns = self._duration_ns - self._grace_period_ns
        interval_ns = (spread_ns if spread_ns > 0 else NS_PER_S) // max(len(self._waiting), 1)
        self._interval_ns = min(max(interval_ns, INTERVAL_MIN_NS), INTERVAL_MAX_NS)
        self._per_interval = max(1, INTERVAL_MIN_NS // max(interval_ns, 1))
        self._close_some()

    def _close_some(self) -> None:
        for _ in range(min(self._per_interval, len(self._waiting))):
            self._close(self._waiting.pop())
        self._driver.wake()
        if not self._waiting:
            self._ended()
            return
        half_ns = self._interval_ns // 2
        wait_ns = half_ns + self._driver.node.rng.below(half_ns + 1)
        self._timer = self._driver.loop.call_later(wait_ns / NS_PER_S, self._close_some)
