"""The monitoring port of a server with workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyjs.server.monitoring.pages import Pages
from pyjs.server.system.process import SystemProcess
from pyjs.server.workers.router import WorkersRouter

if TYPE_CHECKING:
    from pyjs.server.tls.port import TlsPort
    from pyjs.server.workers.supervisor import Supervisor

CLOSING_S = 1.0  # seconds for which connections may read their last output


class WorkersMonitoring:
    """The open monitoring port of a server with workers."""

    def __init__(self, supervisor: Supervisor, tls: TlsPort) -> None:
        """Listen on the monitoring port in the options of `supervisor`.

        Raises:
            StartFailed: the server cannot listen on the port.
        """
        router = WorkersRouter(supervisor, SystemProcess(supervisor.started_ns))
        loop = asyncio.get_running_loop()
        self.pages = Pages(loop, supervisor.options, tls, router.answer, supervisor.log)

    async def start(self) -> None:
        """Start answering requests."""
        await self.pages.start()

    async def close(self) -> None:
        """Close the port and its connections, and abort the connections that are still open after `CLOSING_S`."""
        self.pages.listener.close()
        connections = self.pages.stop()
        try:
            await asyncio.wait_for(connections.wait_empty(), CLOSING_S)
        except TimeoutError:
            for connection in connections:
                connection.abort()
