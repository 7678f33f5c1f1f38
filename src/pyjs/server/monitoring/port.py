"""The monitoring port: its connections, the order of their answers, and time limits for peers.

Each iteration of the loop runs one step of one answer, connection by connection. A peer that requests thousands of
pages, or a long one, therefore delays clients and other peers by only one step at a time. A connection with an
incomplete request or unread answers is closed after some time.

This module knows nothing of paths and HTTP: a handler composes the answers, the connections parse and write.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.server.open_connections import OpenConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.base.log import Log
    from pyjs.monitor.dashboard.posted import Posted
    from pyjs.monitor.response import Response
    from pyjs.server.monitoring.guard import Guard
    from pyjs.server.monitoring.http import HttpConnection

    # Composes an answer in steps; a step yields None, or a future to wait for.
    Work = Generator[asyncio.Future[Any] | None, None, Response]
    # Arguments: the request target (path and query), and the request if it is a POST.
    Handler = Callable[[str, Posted | None], Work]

CONNECTIONS_MAX = 1000  # open at the same time; more are refused, to leave descriptors for clients
SWEEP_S = 1.0  # interval of the check for connections that take too long


class MonitorPort:
    """The shared state of the connections of one monitoring port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Handler, guard: Guard, log: Log) -> None:
        self.loop = loop
        self._handle = handle
        self._guard = guard
        self.log = log
        self.connections: OpenConnections[HttpConnection] = OpenConnections()
        self._waiting: deque[HttpConnection] = deque()  # connections with answers to work on; no duplicates
        self._stepping = False  # `_step` is scheduled
        self._sweeping: asyncio.TimerHandle | None = None

    def answer(self, target: str, authorization: bytes, posted: Posted | None) -> Work:
        """Compose the response to a request in steps; `authorization` is the value of its Authorization header."""
        refusal = yield from self._guard.check(target, authorization)
        return refusal if refusal is not None else (yield from self._handle(target, posted))

    def opened(self, connection: HttpConnection) -> bool:
        """Add a connection; return False if it must be refused, because more than `CONNECTIONS_MAX` are open."""
        self.connections.add(connection)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)
        return len(self.connections) <= CONNECTIONS_MAX

    def closed(self, connection: HttpConnection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)

    def enqueue(self, connection: HttpConnection) -> None:
        """Queue `connection` for a call of its `step`; it must not be in the queue already."""
        self._waiting.append(connection)
        if not self._stepping:
            self._stepping = True
            self.loop.call_soon(self._step)

    def _step(self) -> None:
        connection = self._waiting.popleft()
        self._stepping = bool(self._waiting)
        if self._stepping:
            self.loop.call_soon(self._step)
        connection.step()

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in self.connections:
            connection.check_deadline(now)
        self._sweeping = self.loop.call_later(SWEEP_S, self._sweep) if len(self.connections) else None

    def stop(self) -> None:
        """Stop the guard, and close every connection after its written answers have been sent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._guard.stop()
        for connection in self.connections:
            connection.close()
