"""Lame duck mode: take no more clients, tell those there to go elsewhere, close the rest one by one, end.

The closes are spread over the lame duck duration less the grace period, at most a second apart, each at a
random moment of the second half of its interval, so that reconnecting clients do not arrive elsewhere at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.session import ClientSession
    from pyjs.server.server import Server

NS_PER_S = 1_000_000_000
INTERVAL_MAX_NS = NS_PER_S
INTERVAL_MIN_NS = 1_000_000  # many clients: several per interval


class LameDuck:
    """The last minutes of a server."""

    def __init__(self, server: Server) -> None:
        self.active = False
        self._server = server
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[ClientSession] = []  # to be closed, the last one first
        self._per_interval = 1
        self._interval_ns = INTERVAL_MAX_NS

    def start(self) -> None:
        """Enter lame duck mode; the server ends when the last client is gone."""
        if self.active:
            return
        self.active = True
        server, options = self._server, self._server.options
        server.log.info("Entering lame duck mode, stop accepting new clients")
        server.close_client_listener()
        server.stop_jetstream()
        if not server.node.sessions:
            server.request_stop()
            return
        server.node.start_lame_duck()
        server.driver.wake()
        self._timer = server.loop.call_later(options.lame_duck_grace_period_ns / NS_PER_S, self._grace_over)

    def cancel(self) -> None:
        """Close nothing more: the server ends now."""
        if self._timer is not None:
            self._timer.cancel()

    def _grace_over(self) -> None:
        server, options = self._server, self._server.options
        server.log.info("Closing existing clients")
        self._waiting = list(reversed(server.node.sessions.values()))
        duration_ns = options.lame_duck_duration_ns - options.lame_duck_grace_period_ns
        count = len(self._waiting)
        interval_ns = (duration_ns if duration_ns > 0 else NS_PER_S) // max(count, 1)
        self._interval_ns = min(max(interval_ns, INTERVAL_MIN_NS), INTERVAL_MAX_NS)
        self._per_interval = max(1, INTERVAL_MIN_NS // max(interval_ns, 1))
        self._close_some()

    def _close_some(self) -> None:
        server = self._server
        for _ in range(min(self._per_interval, len(self._waiting))):
            self._waiting.pop().close("Server Shutdown")
        server.driver.wake()
        if not self._waiting:
            server.request_stop()
            return
        half = self._interval_ns // 2
        wait_ns = half + server.node.rng.below(half + 1)
        self._timer = server.loop.call_later(wait_ns / NS_PER_S, self._close_some)
