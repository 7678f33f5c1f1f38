"""The monitoring endpoints of a server: their state, port and connections.

Imported lazily, only with a monitoring port: the views import a third of the server's modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored
from pyjs.server.addresses import ListenFailed, host_port, listen
from pyjs.server.failures import fail
from pyjs.server.listener import Listener
from pyjs.server.monitoring.encrypted import monitoring_protocol
from pyjs.server.monitoring.port import MonitorPort
from pyjs.server.system.process import SystemProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.config.options import Options, TlsOptions
    from pyjs.server.driver import Driver
    from pyjs.server.monitoring.http import HttpConnection
    from pyjs.server.open_connections import OpenConnections
    from pyjs.server.tls.port import TlsPort


class Monitoring:
    """The open monitoring port of one server."""

    def __init__(
        self, driver: Driver, options: Options, tls: TlsPort, certificate_ends: Callable[[TlsOptions], str]
    ) -> None:
        """Take the port that `options` name; new connections use the current settings of `tls`.

        Raises:
            StartFailed: the port cannot be listened to.
        """
        node = driver.node
        now_ns = node.clock.now_ns()
        self._clock = node.clock
        self._log = node.log
        self._tls = tls
        self._host = options.monitoring.host or options.host
        try:
            sock = listen(self._host, options.monitoring.http_port or options.monitoring.https_port)
        except ListenFailed as error:
            fail(f"Can't start monitoring: can't listen to the monitor port: {error}")
        self._monitored = Monitored(
            node, options, SystemProcess(now_ns), now_ns, certificate_ends=certificate_ends
        )
        router = Router(self._monitored, node.clock, node.log)
        self._port = MonitorPort(driver.loop, router.answer, node.log)
        self.listener = Listener(driver.loop, sock, "Monitor", node.log)
        self.port = self.listener.port

    async def start(self) -> None:
        """Start answering requests."""
        await self.listener.start(lambda: monitoring_protocol(self._tls, self._port, self.listener))
        scheme = "https" if self._monitored.options.monitoring.https_port else "http"
        self._log.info(f"Starting {scheme} monitor on {host_port(self._host, self.port)}")

    def ready(self) -> None:
        """Report the server as ready from now on."""
        self._monitored.ready = True

    def reloaded(self, options: Options) -> None:
        """Apply the options of a reload."""
        self._monitored.options = options
        self._monitored.config_loaded_at_ns = self._clock.now_ns()

    def stop(self) -> OpenConnections[HttpConnection]:
        """Stop answering; return the connections that may still send their last output."""
        self._port.stop()
        return self._port.connections
