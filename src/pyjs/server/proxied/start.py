"""The start of a client connection that may come through a proxy: the PROXY header, which precedes all other input.

This protocol reads the header and passes the bytes after the header to the protocol above, which then replaces this
protocol on the transport. As in nats-server, a client that sends no header is treated as a client without a proxy. A
connection that sends nothing within PREFIX_S is closed.

Source: behaviour of nats-server 2.15.1, in tests/conformance/test_proxy_protocol.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pyjs.server.addresses import host_port, plain_ip
from pyjs.wire.proxy_header import PREFIX_SIZE, BadHeader, ends_between_parts, missing, read_header

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.server.connection import Connection
    from pyjs.server.driver import Driver
    from pyjs.server.tls.transport import TlsTransport

PREFIX_S = 10.0  # seconds for the first bytes
HEADER_S = 5.0  # seconds for the rest of the header


class ProxiedStart(asyncio.Protocol):
    """A protocol that reads the input of one connection up to the end of the PROXY header."""

    def __init__(self, driver: Driver, connection: Connection, above: Connection | TlsTransport) -> None:
        self._driver = driver
        self._connection = connection
        self._above = above  # the protocol above: the connection, or its TlsTransport
        self._data = b""
        self._over = False  # the client sends no more
        self._timer: Timer | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect the protocol above, and start the time limit for the header."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._driver.after(PREFIX_S, self._timed_out)
        self._connection.ready = False  # send no PING before the header
        self._above.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Read the PROXY header; after its end, hand the transport and further input to the protocol above."""
        if self._over:
            return
        had_prefix = len(self._data) >= PREFIX_SIZE
        self._data += data
        try:
            header = read_header(self._data)
        except BadHeader as bad:
            self._fail(str(bad))
            return
        if header is None:
            if not had_prefix and len(self._data) >= PREFIX_SIZE:
                self._expect(HEADER_S)
            return
        self._finish()
        self._connection.came_from(header.ip, header.port)
        if self._above is self._connection:
            self._connection.ready = True  # with TLS, the end of the handshake sets it
        self._transport.set_protocol(self._above)
        rest = self._data[header.size :]
        if rest:
            self._above.data_received(rest)

    def eof_received(self) -> bool:
        """Close the connection, because its input ends before the end of the header."""
        if not self._over:
            word = "EOF" if ends_between_parts(self._data) else "unexpected EOF"
            self._fail(f"{missing(self._data)}: {word}")
        return True

    def pause_writing(self) -> None:
        """Pass the call to the protocol above."""
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call to the protocol above."""
        self._above.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the time limit, and pass the call to the protocol above."""
        self._finish()
        self._above.connection_lost(error)

    def _timed_out(self) -> None:
        own = self._transport.get_extra_info("sockname") or ("", 0)
        where = f"read tcp {host_port(plain_ip(own[0]), own[1])}->{self._address}"
        self._fail(f"{missing(self._data)}: {where}: i/o timeout")

    def _fail(self, cause: str) -> None:
        self._finish()
        self._connection.header_failed(f"Error reading PROXY protocol header from {self._address}: {cause}")

    def _finish(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _expect(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._driver.after(seconds, self._timed_out)

    @property
    def _address(self) -> str:
        address = self._transport.get_extra_info("peername") or ("", 0)
        return host_port(plain_ip(address[0]), address[1])
