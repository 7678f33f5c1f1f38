"""The port for other servers of the cluster, and connections to the ports of others.

Whom to connect to is up to `cluster.mesh`; after each turn this module takes what is due. A connection attempt ends
after DIAL_S.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from pyjs.base.errors import reason_of
from pyjs.server.addresses import ListenFailed, host_port, listen, urls
from pyjs.server.connection import Connection
from pyjs.server.failures import fail
from pyjs.server.listener import Listener
from pyjs.server.open_connections import OpenConnections

if TYPE_CHECKING:
    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.mesh import Dial
    from pyjs.cluster.route import Route
    from pyjs.config.options import Options
    from pyjs.core.link import Peer
    from pyjs.server.driver import Driver

DIAL_S = 2.0


class RouteConnection(Connection):
    """One route and its transport."""

    def __init__(self, port: RoutePort, dial: Dial | None) -> None:
        super().__init__(port.driver, port.connections, port.listener)
        self._cluster = port.cluster
        self._dial = dial

    def _open(self, peer: Peer) -> Route:
        return self._cluster.open_route(peer, self, self._dial)


class RoutePort:
    """The routes of one server."""

    def __init__(self, driver: Driver, options: Options, cluster: Cluster) -> None:
        """Listen on the port of `options`.

        Raises:
            StartFailed: the port cannot be listened to.
        """
        self.driver = driver
        self.cluster = cluster
        self.connections: OpenConnections[Connection] = OpenConnections()
        self._options = options.cluster
        self._dialing: set[asyncio.Task[None]] = set()
        self._stopped = False
        try:
            sock = listen(self._options.host, self._options.port)
        except ListenFailed as error:
            fail(f"Error listening on router port: {self._options.port} - {error}")
        self.listener = Listener(driver.loop, sock, "Route", driver.node.log)
        self.port = cluster.port = self.listener.port

    @property
    def urls(self) -> list[str]:
        """Return the URLs of the port on this machine."""
        return urls("nats", self._options.host, self.port)

    async def start(self) -> None:
        """Accept other servers, and connect to those of the configuration."""
        log = self.driver.node.log
        await self.listener.start(lambda: RouteConnection(self, None))
        log.info(f"Cluster name is {self._options.name}" if self._options.name else "The cluster has no name")
        log.info(f"Listening for route connections on {host_port(self._options.host, self.port)}")
        self.cluster.start()
        self.driver.after_turn.append(self._dial_due)

    def stop(self) -> None:
        """Accept nobody, connect to nobody, and close all routes."""
        self._stopped = True
        self.listener.close()
        for task in self._dialing:
            task.cancel()
        self.cluster.stop()

    def _dial_due(self) -> None:
        """Connect to the servers that are due."""
        for dial in self.cluster.take_dials():
            if not self._stopped:
                task = self.driver.loop.create_task(self._dial(dial))
                self._dialing.add(task)
                task.add_done_callback(self._dialing.discard)

    async def _dial(self, dial: Dial) -> None:
        try:
            async with asyncio.timeout(DIAL_S):
                await self.driver.loop.create_connection(
                    lambda: RouteConnection(self, dial), dial.host, dial.port
                )
        except TimeoutError:
            self._failed(dial, "i/o timeout")
        except socket.gaierror:
            self._failed(dial, f"lookup {dial.host}: no such host")
        except OSError as error:
            self._failed(dial, f"connect: {reason_of(error).lower()}")

    def _failed(self, dial: Dial, cause: str) -> None:
        self.cluster.dial_failed(dial, f"dial tcp {dial}: {cause}")
        self.driver.wake()
