"""The port of the monitoring pages, for one server or for all its workers: its socket and its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.server.addresses import ListenFailed, host_port, listen, urls
from pyjs.server.failures import fail
from pyjs.server.listener import Listener
from pyjs.server.monitoring.encrypted import monitoring_protocol
from pyjs.server.monitoring.guard import Guard
from pyjs.server.monitoring.port import MonitorPort

if TYPE_CHECKING:
    import asyncio

    from pyjs.base.log import Log
    from pyjs.config.options import Options
    from pyjs.server.monitoring.http import HttpConnection
    from pyjs.server.monitoring.port import Handler
    from pyjs.server.open_connections import OpenConnections
    from pyjs.server.tls.port import TlsPort


class Pages:
    """The monitoring port of a server: its socket and its connections."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: Options, tls: TlsPort, handle: Handler, log: Log
    ) -> None:
        """Listen on the port of `options`; new connections use the current settings of `tls`.

        Raises:
            StartFailed: the server cannot listen on the port.
        """
        self._tls = tls
        self._host = options.monitoring.host or options.host
        self._scheme = "https" if options.monitoring.https_port else "http"
        self._log = log
        try:
            sock = listen(self._host, options.monitoring.http_port or options.monitoring.https_port)
        except ListenFailed as error:
            fail(
                f"Can't start monitoring: can't listen to the monitor port: {error}",
                error.remedy("http_port"),
            )
        guard = Guard(loop, options.monitoring.login, options.monitoring.base_path)
        self._port = MonitorPort(loop, handle, guard, log)
        self.listener = Listener(loop, sock, "Monitor", log)

    @property
    def port(self) -> int:
        """The port number."""
        return self.listener.port

    @property
    def urls(self) -> list[str]:
        """The URLs of the pages, with addresses of this machine."""
        return urls(self._scheme, self._host, self.port)

    async def start(self) -> None:
        """Start answering requests."""
        await self.listener.start(lambda: monitoring_protocol(self._tls, self._port, self.listener))
        self._log.info(f"Starting {self._scheme} monitor on {host_port(self._host, self.port)}")

    def stop(self) -> OpenConnections[HttpConnection]:
        """Start to close every connection, and return the connections that are still open.

        Each connection is closed after its written answers have been sent. The listener is not closed.
        """
        self._port.stop()
        return self._port.connections
