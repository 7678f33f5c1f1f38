"""The port for WebSocket clients: its socket, its connections before their upgrade, and the order of their requests.

An upgrade takes some 0.2 ms. Each iteration of the loop answers only a few requests, so that a flood of requests
does not delay clients for long. A connection whose request is not complete in time is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.server.addresses import ListenFailed, host_port, listen, urls
from pyjs.server.connection import Connection
from pyjs.server.failures import fail, log_exception
from pyjs.server.listener import Listener
from pyjs.server.open_connections import OpenConnections
from pyjs.server.tls.context import TlsSettings, tls_settings
from pyjs.server.tls.port import TlsPort
from pyjs.server.tls.transport import TlsTransport
from pyjs.server.websocket.outgoing import Packer
from pyjs.server.websocket.transport import WebSocketTransport

if TYPE_CHECKING:
    import asyncio

    from pyjs.config.options import Options, WebSocketOptions
    from pyjs.server.driver import Driver

NS_PER_S = 1_000_000_000
HANDSHAKE_S = 5.0  # seconds for TLS and the request, if handshake_timeout is not set
ANSWERS_MAX = 8  # requests answered in one iteration of the loop: some 2 ms
HELD_SIZE_MAX = 32 * 1024 * 1024  # bytes of all incomplete requests; beyond this, new requests are refused


class WebSocketPort:
    """The WebSocket port of one server; upgraded connections are in the server's `connections`."""

    def __init__(self, driver: Driver, options: Options, connections: OpenConnections[Connection]) -> None:
        """Listen on the port of `options`.

        Raises:
            StartFailed: the server cannot listen on the port.
            TlsFailed: a certificate is unusable.
        """
        self.loop = driver.loop
        self.log = driver.node.log
        self.options: WebSocketOptions = options.websocket
        self.handshake_s = self.options.handshake_timeout_ns / NS_PER_S or HANDSHAKE_S
        self.driver = driver
        self._connections = connections
        self._tls = TlsPort(driver.loop, self.log, driver.after)
        self._tls.settings = self._read_tls(options)
        self._pending: OpenConnections[WebSocketTransport] = OpenConnections()  # not upgraded yet
        self._complete: deque[WebSocketTransport] = deque()  # connections with complete requests
        self._answering = False  # `_answer` is scheduled
        self.held_size = 0  # bytes of unanswered requests
        self.packer = Packer(driver.loop.call_later)
        try:
            sock = listen(self.options.host, self.options.port, shared=options.worker is not None)
        except ListenFailed as error:
            fail(f"Unable to listen for websocket connections: {error}", error.remedy("websocket.port"))
        self.listener = Listener(driver.loop, sock, "Websocket", self.log)
        self.port = driver.node.websocket_port = self.listener.port

    @property
    def scheme(self) -> str:
        """The scheme of the port's URLs."""
        return "ws" if self._tls.settings is None else "wss"

    @property
    def urls(self) -> list[str]:
        """The URLs of the port, with addresses of this machine."""
        return urls(self.scheme, self.options.host, self.port)

    @property
    def max_payload(self) -> int:
        """The maximum payload size of a message, in bytes."""
        return self.driver.node.settings.max_payload

    @property
    def is_full(self) -> bool:
        """Whether the memory for incomplete requests is used up."""
        return self.held_size > HELD_SIZE_MAX

    async def start(self) -> None:
        """Start accepting connections."""
        await self.listener.start(self._protocol)
        self.log.info(
            f"Listening for websocket clients on {self.scheme}://{host_port(self.options.host, self.port)}"
        )
        if self._tls.settings is None:
            self.log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    def read_reloaded(self, options: Options) -> TlsSettings | None:
        """Return the TLS settings of reloaded options, or None if they have no TLS; `reloaded` takes the result.

        Raises:
            TlsFailed: a certificate is unusable.
        """
        return self._read_tls(options)

    def reloaded(self, options: Options, tls: TlsSettings | None) -> None:
        """Apply reloaded options, of which only the certificates may differ."""
        self.options = options.websocket
        self._tls.settings = tls

    def stop(self) -> None:
        """Abort the connections that are not upgraded yet."""
        self._complete.clear()
        for transport in self._pending:
            transport.abort()

    async def close(self) -> None:
        """Wait until each connection is either upgraded or closed, then stop the handshake thread."""
        await self._pending.wait_empty()
        await self._tls.close()

    def _read_tls(self, options: Options) -> TlsSettings | None:
        tls = options.websocket.tls
        if not tls.certificates:
            return None
        limit_ns = options.websocket.handshake_timeout_ns or int(HANDSHAKE_S * NS_PER_S)
        # Every connection begins with a handshake.
        tls = replace(
            tls, handshake_first_ns=0, allow_plain=False, timeout_ns=limit_ns, connection_rate_limit=0
        )
        return tls_settings(tls)

    def _protocol(self) -> asyncio.Protocol:
        transport = WebSocketTransport(self)
        settings = self._tls.settings
        return transport if settings is None else TlsTransport(self._tls, settings, transport)

    # -- called by a connection --------------------------------------------------------------------------------
    def opened(self, transport: WebSocketTransport) -> None:
        """Add a connection that is waiting for its request."""
        self._pending.add(transport)
        self.listener.accepted(transport.transport)

    def enqueue(self, transport: WebSocketTransport) -> None:
        """Queue a connection whose request is complete."""
        self._complete.append(transport)
        if not self._answering:
            self._answering = True
            self.loop.call_soon(self._answer)

    def upgraded(self, transport: WebSocketTransport) -> None:
        """Remove a connection that was upgraded, and now belongs to a client."""
        self._pending.discard(transport)

    def closed(self, transport: WebSocketTransport) -> None:
        """Remove a closed connection."""
        self._pending.discard(transport)

    def new_connection(self) -> Connection:
        """Return the connection of a new client."""
        return Connection(self.driver, self._connections, self.listener)

    def _answer(self) -> None:
        for _ in range(min(ANSWERS_MAX, len(self._complete))):
            transport = self._complete.popleft()
            try:
                transport.answer_request()
            except Exception as error:  # one request failed: answer the others
                transport.transport.abort()
                log_exception(self.log, "websocket: an upgrade failed", error)
        self._answering = bool(self._complete)
        if self._answering:
            self.loop.call_soon(self._answer)
