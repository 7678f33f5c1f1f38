"""The departure of this server from a JetStream cluster, without an error for clients that reconnect.

Leaderships move to other servers first; clients here wait meanwhile. Then each client gets the rest of its output and
an end of file. It connects to another server, and what it had sent until then is handled once its subscriptions are
known there: answers find it. So no request is lost between the two connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.server.connection import Connection
    from pyjs.server.driver import Driver
    from pyjs.server.open_connections import OpenConnections

HAND_OVER_S = 5.0
CALM_S = 0.1  # in which answers come to what clients have asked for
RETURN_S = 1.5  # in which a client connects to another server
LOOK_S = 0.01


class Leaving:
    """Clients of a server that leaves."""

    def __init__(self, driver: Driver, connections: OpenConnections[Connection]) -> None:
        self._driver = driver
        self._node = driver.node
        self._connections = connections
        self._over: asyncio.Event | None = None  # set when all leaderships have moved
        self._hanging_up: set[asyncio.Task[None]] = set()

    @property
    def is_needed(self) -> bool:
        """Whether other servers of a JetStream cluster are there to go on."""
        jetstream, cluster = self._node.jetstream, self._node.cluster
        return (
            jetstream is not None
            and jetstream.shared.member is not None
            and cluster is not None
            and bool(cluster.routes)
        )

    async def hand_over(self) -> None:
        """Move the leaderships; once at most. Clients wait from some moment on, until `go_on` or their end."""
        if self._over is None:
            self._over = asyncio.Event()
            assert self._node.cluster is not None
            self._node.cluster.start_lame_duck()
            self._node.turn_state.go_on(self._steps(self._over))
            self._driver.wake()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._over.wait()
        except TimeoutError:
            self._node.log.warn("Not all leaderships of this server could be handed over")

    def _steps(self, over: asyncio.Event) -> Generator[Step, None, None]:
        member = None if self._node.jetstream is None else self._node.jetstream.shared.member
        if member is not None:
            yield from member.leave_steps(self._pause)
        over.set()

    def _pause(self) -> None:
        for connection in self._connections:
            connection.park(on=True)

    def go_on(self) -> None:
        """Let clients go on for now."""
        for connection in self._connections:
            connection.park(on=False)

    def hang_up(self, connection: Connection) -> None:
        """Let one client go."""
        task = self._driver.loop.create_task(self._let_go(connection))
        self._hanging_up.add(task)
        task.add_done_callback(self._hanging_up.discard)

    async def hang_up_all(self) -> None:
        """Let all clients go, and wait until they have gone."""
        self._pause()
        if len(self._connections):
            await asyncio.sleep(CALM_S)
        for connection in self._connections:
            self.hang_up(connection)
        while self._hanging_up:
            await asyncio.wait(self._hanging_up)

    async def _let_go(self, connection: Connection) -> None:
        session = connection.session
        if not session.closed_reason:
            wanted = {sub.subject for sub in session.subscriptions.values() if not sub.queue}
            self._driver.turn_now()
            connection.hang_up()
            deadline = self._driver.loop.time() + RETURN_S
            while connection.has_more and self._driver.loop.time() < deadline:
                if connection.is_over and self._is_elsewhere(session.account.name, wanted):
                    break
                await asyncio.sleep(LOOK_S)  # nothing tells when a client has come to another server
            connection.hear_out()

    def _is_elsewhere(self, account: str, subjects: set[bytes]) -> bool:
        """Return whether one other server has all these subscriptions."""
        cluster = self._node.cluster
        if cluster is None:
            return True
        for route in cluster.routes.values():
            remote = route.remote.get(account)
            if remote is not None and all((each, b"") in remote.subscriptions for each in subjects):
                return True
        return False
