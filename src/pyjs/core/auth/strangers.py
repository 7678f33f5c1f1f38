"""Log lines about programs that do not speak the protocol of the client port.

Called when a connection is closed before its CONNECT. Source: tests/system/test_wrong_steps.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.session import ClientSession

METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT /")
HTTP = "HTTP request at the client port; monitoring pages are at `http_port` (-m), WebSocket clients at `websocket`"
TLS = "TLS handshake at a port without TLS; add `tls` to the configuration, or connect with nats:// instead of tls://"
HANDSHAKE = b"\x16\x03"  # type and major version of the first record


def report_stranger(session: ClientSession, first: bytes) -> None:
    """Log a warning if `first`, the first input of a connection, is an HTTP request or a TLS handshake."""
    if first.startswith(HANDSHAKE):
        session.host.log.warn(f"{session} - {TLS}")
    elif first.startswith(METHODS):
        session.host.log.warn(f"{session} - {HTTP}")
