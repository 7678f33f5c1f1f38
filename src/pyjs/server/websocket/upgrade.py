"""The upgrade of one HTTP request to a WebSocket connection, or its refusal.

`websockets` parses the request, negotiates compression and writes the answer. Before that, this module does
the checks of nats-server, in the same order and with the same messages: the client gets the status, and the reason is
logged.

Source: RFC 6455, section 4.2; tests/conformance/test_websocket_upgrade.py.
"""

from __future__ import annotations

import base64
import binascii
import http
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request
from websockets.server import ServerProtocol

from pyjs.config.ports.websocket import origin_of
from pyjs.core.link import Credentials
from pyjs.server.websocket.outgoing import FRAME_MAX_BROWSER, Terms

if TYPE_CHECKING:
    from websockets.datastructures import Headers

    from pyjs.config.options import WebSocketOptions

KEY_SIZE = 16
NO_MASKING = "Nats-No-Masking"
COMPRESSION = ServerPerMessageDeflateFactory(server_no_context_takeover=True, client_no_context_takeover=True)


class UpgradeRefused(Exception):
    """Raised to refuse a request with an HTTP status; the exception's message is for the log."""

    def __init__(self, status: int, cause: str) -> None:
        super().__init__(cause)
        self.status = status


class NotHttp(Exception):
    """Raised for input that is not an HTTP request."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An accepted upgrade: the answer to the client, and the properties of the connection."""

    answer: bytes
    terms: Terms
    forwarded_for: str
    credentials: Credentials
    is_leafnode: bool  # the client is a leaf node, which this server does not support


def upgrade(head: bytes, options: WebSocketOptions, *, encrypted: bool) -> Upgrade:
    """Check a complete request, and return the accepted upgrade.

    `encrypted` is whether the connection uses TLS.

    Raises:
        UpgradeRefused: the upgrade is not acceptable.
        NotHttp: the input is not an HTTP request.
    """
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise NotHttp
    protocol = ServerProtocol(extensions=[COMPRESSION] if options.compression else None)
    try:
        return _negotiated(protocol, head, words, options, encrypted=encrypted)
    finally:
        # Break a cycle of a hundred objects; frames do not use the protocol object.
        protocol.parser.close()
        protocol.handshake_exc = protocol.parser_exc = None


def _negotiated(
    protocol: ServerProtocol, head: bytes, words: list[bytes], options: WebSocketOptions, *, encrypted: bool
) -> Upgrade:
    protocol.receive_data(b"GET %b HTTP/1.1\r\n" % words[1] + head.partition(b"\r\n")[2])
    request = next(iter(protocol.events_received()), None)
    if not isinstance(request, Request):
        raise NotHttp
    path = words[1].partition(b"?")[0]
    _check(words[0], path, request.headers)
    _check_origin(request.headers, options, encrypted=encrypted)
    response = protocol.accept(request)
    if response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
        raise UpgradeRefused(400, str(protocol.handshake_exc))
    masked = _first(request.headers, NO_MASKING) != "true"
    if not masked:
        response.headers[NO_MASKING] = "true"
    for name, value in options.headers.items():
        response.headers[name] = value
    return Upgrade(
        response.serialize(),
        _terms(request.headers, protocol, masked=masked),
        _forwarded_for(request.headers),
        _credentials(request.headers, options),
        path.endswith(b"/leafnode"),
    )


def _check(method: bytes, path: bytes, headers: Headers) -> None:
    if path.endswith(b"/mqtt"):
        raise UpgradeRefused(404, "mqtt websocket endpoint not enabled")
    if method != b"GET":
        raise UpgradeRefused(405, "request method must be GET")
    if not _first(headers, "Host"):
        raise UpgradeRefused(400, "'Host' missing in request")
    for name, token in (("Upgrade", "websocket"), ("Connection", "Upgrade")):
        if not _has_token(headers, name, token):
            raise UpgradeRefused(400, f"invalid value for header '{name}'")
    key = _first(headers, "Sec-WebSocket-Key")
    if not key:
        raise UpgradeRefused(400, "key missing")
    try:
        decoded = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != KEY_SIZE:
        raise UpgradeRefused(400, "invalid websocket key")
    if not _has_token(headers, "Sec-WebSocket-Version", "13"):
        raise UpgradeRefused(400, "invalid version")


def _check_origin(headers: Headers, options: WebSocketOptions, *, encrypted: bool) -> None:
    """Raise UpgradeRefused if the request has an Origin header that `options` do not allow."""
    if not options.same_origin and not options.allowed_origins:
        return
    given = _first(headers, "Origin") or _first(headers, "Sec-WebSocket-Origin")
    if not given:
        return
    try:
        origin = origin_of(given)
        own = origin_of(f"{'https' if encrypted else 'http'}://{_first(headers, 'Host')}")
    except ValueError as error:
        raise UpgradeRefused(403, f"origin not allowed: {error}") from None
    if options.same_origin and origin != own:
        raise UpgradeRefused(403, "origin not allowed: not same origin")
    if options.allowed_origins and origin not in map(origin_of, options.allowed_origins):
        raise UpgradeRefused(403, "origin not allowed: not in the allowed list")


def _terms(headers: Headers, protocol: ServerProtocol, *, masked: bool) -> Terms:
    deflate = next((each for each in protocol.extensions if isinstance(each, PerMessageDeflate)), None)
    agent = _first(headers, "User-Agent")
    return Terms(
        masked,
        0 if deflate is None else deflate.local_max_window_bits,
        FRAME_MAX_BROWSER if agent.startswith("Mozilla/") else 0,
        "Version/" in agent and "Safari/" in agent,  # Safari cannot read fragmented compressed messages
    )


def _forwarded_for(headers: Headers) -> str:
    given = _first(headers, "X-Forwarded-For")
    try:
        return given if ipaddress.ip_address(given) else ""
    except ValueError:
        return ""


def _credentials(headers: Headers, options: WebSocketOptions) -> Credentials:
    """Return the credentials in the configured cookies; if a cookie is repeated, the last one counts."""
    values: dict[str, str] = {}
    for line in headers.get_all("Cookie"):
        for pair in line.split(";"):
            name, equals, value = pair.strip().partition("=")
            if equals:
                values[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    names = options.jwt_cookie, options.user_cookie, options.pass_cookie, options.token_cookie
    return Credentials(*(values.get(name, "") if name else "" for name in names))


def _first(headers: Headers, name: str) -> str:
    values = headers.get_all(name)
    return values[0] if values else ""


def _has_token(headers: Headers, name: str, token: str) -> bool:
    tokens = (each.strip(" \t") for line in headers.get_all(name) for each in line.split(","))
    return any(each.lower() == token.lower() for each in tokens)
