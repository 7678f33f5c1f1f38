"""The monitoring port of a server with workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyjs.server.addresses import ListenFailed, host_port, listen, urls
from pyjs.server.failures import fail
from pyjs.server.listener import Listener
from pyjs.server.monitoring.encrypted import monitoring_protocol
from pyjs.server.monitoring.port import MonitorPort
from pyjs.server.system.process import SystemProcess
from pyjs.server.workers.router import WorkersRouter

if TYPE_CHECKING:
    from pyjs.server.tls.port import TlsPort
    from pyjs.server.workers.supervisor import Supervisor

CLOSING_S = 1.0  # for connections to take their last output


class WorkersMonitoring:
    """The open monitoring port."""

    def __init__(self, supervisor: Supervisor, tls: TlsPort) -> None:
        """Take the port of the options.

        Raises:
            StartFailed: the port cannot be listened to.
        """
        options = supervisor.options
        loop = asyncio.get_running_loop()
        self._log = supervisor.log
        self._tls = tls
        self._host = options.monitoring.host or options.host
        self._scheme = "https" if options.monitoring.https_port else "http"
        try:
            sock = listen(self._host, options.monitoring.http_port or options.monitoring.https_port)
        except ListenFailed as error:
            fail(f"Can't start monitoring: can't listen to the monitor port: {error}")
        router = WorkersRouter(supervisor, SystemProcess(supervisor.started_ns))
        self._port = MonitorPort(loop, router.answer, supervisor.log)
        self._listener = Listener(loop, sock, "Monitor", supervisor.log)

    async def start(self) -> None:
        """Start answering requests."""
        await self._listener.start(lambda: monitoring_protocol(self._tls, self._port, self._listener))
        self._log.info(f"Starting {self._scheme} monitor on {host_port(self._host, self._listener.port)}")

    @property
    def urls(self) -> list[str]:
        """Return the URLs of the pages on this machine."""
        return urls(self._scheme, self._host, self._listener.port)

    async def close(self) -> None:
        """Stop answering, after the last answers were sent."""
        self._listener.close()
        self._port.stop()
        try:
            await asyncio.wait_for(self._port.connections.wait_empty(), CLOSING_S)
        except TimeoutError:
            for connection in self._port.connections:
                connection.abort()
