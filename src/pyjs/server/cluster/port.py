"""The port for other servers of the cluster, and connections to the ports of other servers.

`cluster.mesh` decides which servers to connect to. After each turn, this module starts the connections that
are due; a connection attempt ends after DIAL_S seconds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.errors import reason_of
from pyjs.cluster.route import Route
from pyjs.server.addresses import ListenFailed, client_urls, host_port, listen, listen_at_path, urls
from pyjs.server.cluster.leaving import Leaving
from pyjs.server.cluster.route_socket import RouteSocket
from pyjs.server.connection import Connection
from pyjs.server.failures import fail
from pyjs.server.listener import Listener
from pyjs.server.open_connections import OpenConnections
from pyjs.server.tls.context import TlsSettings, client_context, tls_settings
from pyjs.server.tls.port import TlsPort
from pyjs.server.tls.transport import TlsTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.cluster.cluster import Cluster
    from pyjs.cluster.mesh import Dial
    from pyjs.config.options import Options, Worker
    from pyjs.core.link import Peer
    from pyjs.jetstream.spread.spread_node import SpreadNode
    from pyjs.server.driver import Driver

DIAL_S = 2.0
KNOWN_S = 2.0  # seconds for which the client port waits for servers that answer slowly
FIRST_WORKER = 1

# the first for listening, the second for connecting
RouteTls: TypeAlias = "tuple[TlsSettings | None, ssl.SSLContext | None]"


def _read_tls(options: Options) -> RouteTls:
    """Read the certificates of routes; return the settings for listening and the context for connecting.

    Both are None if routes have no TLS. With TLS, both sides present a certificate, and the handshake precedes all
    other input.

    Raises:
        TlsFailed: a certificate is unusable.
    """
    tls = options.cluster.tls
    if not tls.certificates:
        return None, None
    tls = replace(tls, verify=True, handshake_first_ns=0, allow_plain=False, connection_rate_limit=0)
    return tls_settings(tls), client_context(tls)


class RouteConnection(RouteSocket, Connection):
    """The asyncio protocol of one route, which is a connection to another server."""

    def __init__(self, port: RoutePort, dial: Dial | None) -> None:
        super().__init__(port.driver, port.connections, port.listener)
        self.driver = port.driver
        self._cluster = port.cluster
        self._dial = dial

    def _open(self, peer: Peer) -> Route:
        self.route = route = self._cluster.open_route(peer, self, self._dial)
        return route

    def connection_lost(self, error: Exception | None) -> None:
        """Detach the route from the link, and end it after the next turn."""
        super().connection_lost(error)
        self.route = None  # break the cycle: the route refers to this connection

    def eof_received(self) -> bool:
        """Close the route.

        Return False with TLS, which cannot close one direction only; asyncio then closes the transport.
        """
        super().eof_received()
        return self.transport.can_write_eof()


class RoutePort:
    """The port for other servers of the cluster, and all routes of this server."""

    def __init__(
        self, driver: Driver, options: Options, cluster: Cluster, clients: OpenConnections[Connection]
    ) -> None:
        """Listen on the port of `options`; `clients` holds the connections of the client port.

        Raises:
            StartFailed: the server cannot listen on the port.
            TlsFailed: a certificate is unusable.
        """
        self.driver = driver
        self.cluster = cluster
        self.connections: OpenConnections[Connection] = OpenConnections()
        self.leaving = Leaving(driver, clients)
        self._options = options.cluster
        self._tls = TlsPort(driver.loop, driver.node.log, driver.after)
        self._tls.settings, self._dial_context = _read_tls(options)
        cluster.set_own_urls(tuple(client_urls(options, driver.node.port)))
        self._dialing: set[asyncio.Task[None]] = set()
        self._stopped = False
        try:
            sock = self._listening()
        except ListenFailed as error:
            text = f"Error listening on router port: {self._options.port} - {error}"
            fail(text, error.remedy("cluster.port"))
        self.listener = Listener(driver.loop, sock, "Route", driver.node.log)
        self.port = cluster.port = self._options.port if self._options.local else self.listener.port

    @property
    def urls(self) -> list[str]:
        """The URLs of the port, with addresses of this machine."""
        return urls("nats", self._options.host, self.port)

    def _listening(self) -> socket.socket:
        options = self._options
        return listen_at_path(options.host) if options.local else listen(options.host, options.port)

    async def start(self) -> None:
        """Accept other servers, and connect to the servers in the configuration."""
        await self.listener.start(self._protocol)
        if not self._options.local:
            self._announce()
        self.cluster.start()
        self.driver.after_turn_with(self.cluster.dials, self._dial_due)
        self.driver.wake()

    def _announce(self) -> None:
        log = self.driver.node.log
        log.info(f"Cluster name is {self._options.name}" if self._options.name else "The cluster has no name")
        log.info(f"Listening for route connections on {host_port(self._options.host, self.port)}")

    async def wait_known(self) -> None:
        """Wait up to KNOWN_S seconds, until the subscriptions of every server that answers are known here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await self._wait(self.cluster.is_settled)

    async def wait_met(self, count: int, spread: SpreadNode | None) -> None:
        """Wait until the subscriptions of `count` other workers are known.

        With `spread`, wait until their streams are known too.
        """
        await self._wait(lambda: sum(route.synced for route in self.cluster.routes.values()) >= count)
        if spread is not None:
            await self._wait(lambda: spread.has_met)

    async def wait_streams(self, worker: Worker | None, spread: SpreadNode | None) -> None:
        """Wait until the other workers have closed their streams.

        Without `spread`, only the first worker has streams.
        """
        if spread is not None:
            spread.closed_all()
            await self._wait(spread.have_all_closed)
        elif worker is not None and worker.number != FIRST_WORKER:
            await self._wait(lambda: FIRST_WORKER not in self._numbers())

    def _numbers(self) -> list[int]:
        """Return the numbers of the workers with an open route."""
        return [route.info.route_port for route in self.cluster.routes.values() if route.info is not None]

    async def _wait(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true; this is checked at once and after each turn."""
        held = asyncio.Event()

        def look() -> None:
            if holds():
                held.set()

        self.driver.after_turn.append(look)
        try:
            look()
            await held.wait()
        finally:
            self.driver.after_turn.remove(look)

    def read_reloaded(self, options: Options) -> RouteTls:
        """Read the certificates of `options`, without using them yet.

        Raises:
            TlsFailed: a certificate is unusable.
        """
        return _read_tls(options)

    def reloaded(self, options: Options, tls: RouteTls) -> None:
        """Use new certificates for new routes, and advertise the address for clients in `options`."""
        self._tls.settings, self._dial_context = tls
        self.cluster.set_own_urls(tuple(client_urls(options, self.driver.node.port)))

    def _protocol(self) -> asyncio.BaseProtocol:
        connection = RouteConnection(self, None)
        settings = self._tls.settings
        return connection if settings is None else TlsTransport(self._tls, settings, connection)

    async def close(self) -> None:
        """Stop the handshake thread; all connections must be closed."""
        await self._tls.close()

    def close_port(self) -> None:
        """Stop accepting other servers, and stop connecting to them."""
        self._stopped = True
        self.listener.close()
        for task in self._dialing:
            task.cancel()

    def stop(self) -> None:
        """Close all routes."""
        self.cluster.stop()

    def _dial_due(self) -> None:
        """Start the connections to other servers that are due."""
        for dial in self.cluster.take_dials():
            if not self._stopped:
                task = self.driver.loop.create_task(self._dial(dial))
                self._dialing.add(task)
                task.add_done_callback(self._dialing.discard)

    async def _dial(self, dial: Dial) -> None:
        try:
            async with asyncio.timeout(DIAL_S):
                await self._connect(dial)
        except TimeoutError:
            self._failed(dial, "i/o timeout")
        except (socket.gaierror, UnicodeError):  # UnicodeError: it cannot be a name at all, such as a..b
            self._failed(dial, f"lookup {dial.host}: no such host")
        except ssl.SSLError as error:
            self._failed(
                dial,
                f"tls: {error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason}",
            )
        except OSError as error:
            self._failed(dial, f"connect: {reason_of(error).lower()}")

    async def _connect(self, dial: Dial) -> None:
        loop = self.driver.loop
        if self._options.local:
            await loop.create_unix_connection(lambda: RouteConnection(self, dial), dial.host)
            return
        await loop.create_connection(
            lambda: RouteConnection(self, dial), dial.host, dial.port, ssl=self._dial_context
        )

    def _failed(self, dial: Dial, cause: str) -> None:
        self.cluster.dial_failed(dial, f"dial tcp {dial}: {cause}")
        self.driver.wake()
