"""A connection to the monitoring port over TLS: an HttpConnection on a TlsTransport.

Handshakes run in the same thread as those of the client port, not on the event loop, so that a flood of handshakes
does not delay connected clients. No client certificate is requested, since the port has no users.

Source: behaviour of nats-server, in tests/conformance/test_https.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.server.addresses import host_port
from pyjs.server.monitoring.http import HttpConnection
from pyjs.server.tls.context import TlsSettings
from pyjs.server.tls.transport import TlsTransport, end_http

if TYPE_CHECKING:
    import asyncio

    from pyjs.core.link import TlsPeer
    from pyjs.server.listener import Listener
    from pyjs.server.monitoring.port import MonitorPort
    from pyjs.server.tls.port import TlsPort


class HttpsConnection(HttpConnection):
    """An HttpConnection over TLS."""

    def __init__(self, port: MonitorPort, listener: Listener) -> None:
        super().__init__(port, listener)
        self.ready = False

    def encrypted(self, peer: TlsPeer) -> None:
        """Mark the connection as ready: the TLS handshake is complete."""
        self.ready = True

    def handshake_failed(self, cause: str, *, expected: bool) -> None:
        """Log the failed handshake and close the connection; a plain HTTP request is answered first."""
        cause = end_http(self.transport, cause)
        peer = self.transport.get_extra_info("peername") or ("", 0)
        self._port.log.error(f"monitoring: TLS handshake error from {host_port(peer[0], peer[1])}: {cause}")

    def throttled(self) -> None:
        """Close the connection now, because too many connections were opened in this second."""
        self.transport.abort()

    def note(self, text: str) -> None:
        """Ignore `text`: connections to the monitoring port write no debug log lines."""


def monitoring_protocol(tls: TlsPort, port: MonitorPort, listener: Listener) -> asyncio.Protocol:
    """Return a protocol for a new connection to the monitoring port, with TLS if that port has it."""
    settings = tls.settings
    if settings is None or settings.pages is None:
        return HttpConnection(port, listener)
    # Every connection begins with a handshake.
    options = replace(
        settings.options, handshake_first_ns=0, allow_plain=False, connection_rate_limit=0, pinned_certs=()
    )
    return TlsTransport(tls, TlsSettings(options, settings.pages, None), HttpsConnection(port, listener))
