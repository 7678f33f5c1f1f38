"""The `websocket` block: the port for WebSocket clients.

Source: nats.docs "WebSocket"; errors of nats-server 2.15.1, tests/conformance/test_websocket_config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from pyjs.base.gotext import quoted
from pyjs.config.access.authorization import single_login_keys
from pyjs.config.errors import Place, Problem, Refused
from pyjs.config.kinds import (
    BOOL,
    DURATION,
    DURATION_OR_SECONDS,
    INT,
    LISTEN_HERE,
    STRING,
    STRING_MAP,
    STRINGS,
    fill,
    port_in_range,
)
from pyjs.config.options import NS_PER_S, Options, WebSocketLogins, WebSocketOptions
from pyjs.config.ports.advertised import check_advertised
from pyjs.config.table import Key, Kind, Reading, Table
from pyjs.config.tls import TLS_BLOCK
from pyjs.config.values import Value

HTTP_PORT, HTTPS_PORT = 80, 443
RESERVED_HEADERS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")
RESERVED_PREFIX = "sec-websocket-"


def _read_handshake_timeout(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a duration, or a whole number of seconds, and return it in nanoseconds."""
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        return value.data * NS_PER_S
    return DURATION.read(reading, key, value, target)


def _read_logins(reading: Reading, key: Key, value: Value, target: object) -> WebSocketLogins:
    logins = fill(reading, LOGINS, key, value, "user: alice, password: secret", WebSocketLogins())
    if logins.token and (logins.user or logins.password):
        raise Refused(value.place, "authorization has a user and a token", "keep one of the two")
    return logins


def _is_sendable(text: str) -> bool:
    """Return whether `text` can be the value of an HTTP header: only printable characters of Latin-1."""
    return text.isprintable() and all(ord(char) < 256 for char in text)


def _check_headers(reading: Reading, key: Key, value: Value, data: object) -> None:
    assert isinstance(data, dict)
    for name, text in data.items():
        cause = ""
        if name.lower() in RESERVED_HEADERS:
            cause = f"websocket: invalid header {quoted(name)} not allowed"
        elif name.lower().startswith(RESERVED_PREFIX):
            cause = f'websocket: invalid header {quoted(name)}, "Sec-WebSocket-" prefix not allowed'
        elif not name.isascii() or not name.replace("-", "").isalnum() or not _is_sendable(text):
            cause = f"websocket: header {quoted(name)} cannot be sent"
        if cause:
            raise Refused(value.place, cause, "use another name, and one line of Latin-1 text")


LOGINS = Table("websocket.authorization", single_login_keys(reloadable=False))
WEBSOCKET = Table(
    "websocket",
    (
        Key(
            "listen",
            LISTEN_HERE,
            "The address and port for WebSocket clients, or a port alone.",
            attrs=("host", "port"),
        ),
        Key("host", STRING, "The address for WebSocket clients.", ("net",), zero_is_default=True),
        Key("port", INT, "The port for WebSocket clients; -1: any free port, 0: none.", check=port_in_range),
        Key("advertise", STRING, "The address that /varz shows.", check=check_advertised),
        Key("no_tls", BOOL, "Allow a port without TLS."),
        Key(
            "tls",
            TLS_BLOCK,
            "Certificates and rules for encrypted connections to this port.",
        ),
        Key("same_origin", BOOL, "A page may connect only to the host from which it was loaded."),
        Key(
            "allowed_origins",
            STRINGS,
            "The origins whose pages may connect, such as https://example.com; empty: all.",
            ("allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
        ),
        Key("compression", BOOL, "Compress messages for clients that ask for it.", ("compress",)),
        Key(
            "handshake_timeout",
            Kind("duration", _read_handshake_timeout, "Duration | int"),
            "Maximum time for TLS handshake and upgrade together; a number is in seconds; 0: 5s.",
        ),
        Key(
            "headers",
            STRING_MAP,
            "Additional headers in the answer to an upgrade.",
            check=_check_headers,
        ),
        Key(
            "authorization",
            Kind("map", _read_logins, "{}", LOGINS),
            "The login for clients of this port, in place of the top-level `authorization` block.",
            ("authentication",),
        ),
        Key("no_auth_user", STRING, "The user of clients of this port that send no credentials."),
        Key("jwt_cookie", STRING, "The name of the cookie that supplies the JWT if a client sends none."),
        Key(
            "user_cookie",
            STRING,
            "The name of the cookie that supplies the user name if a client sends none.",
        ),
        Key(
            "pass_cookie", STRING, "The name of the cookie that supplies the password if a client sends none."
        ),
        Key("token_cookie", STRING, "The name of the cookie that supplies the token if a client sends none."),
        Key("ping_interval", DURATION_OR_SECONDS, "The time between two pings; 0: as for other clients."),
    ),
)


def read_websocket(reading: Reading, key: Key, value: Value, target: object) -> WebSocketOptions:
    """Read the block `websocket` into the options of `target`, and return them."""
    assert isinstance(target, Options)
    options = target.websocket
    options.place = str(value.place)
    return fill(reading, WEBSOCKET, key, value, "port: 8080, no_tls: true", options)


def origin_of(text: str) -> tuple[str, str, int]:
    """Return (scheme, host in lower case, port) of an origin; a missing port is that of HTTPS or HTTP.

    Raises:
        ValueError: `text` has no scheme, or its port is invalid; the message states the reason.
    """
    parts = urlsplit(text)
    if not parts.scheme:
        raise ValueError(f"parse {quoted(text)}: invalid URI for request")
    default = HTTPS_PORT if parts.scheme == "https" else HTTP_PORT
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"parse {quoted(text)}: invalid port") from None
    return parts.scheme, (parts.hostname or "").lower(), default if port is None else port


def check_websocket(
    options: Options, at: Callable[[str], Place], no_auth_user: Callable[[str, Place], list[Problem]]
) -> list[Problem]:
    """Return the problems of the block `websocket` in combination with other options.

    The function `no_auth_user` is called with the value and the place of the key `no_auth_user` of the block; it must
    return the problems of this value.
    """
    block = options.websocket
    if not block.port:
        return []
    place = at("websocket")
    if not block.tls.certificates and not block.no_tls:
        fix = "add tls { cert_file: ..., key_file: ... } to the block, or no_tls: true"
        return [Problem(place, "websocket requires TLS configuration", fix)]
    problems = _check_origins(block, at("websocket.allowed_origins"))
    if block.no_auth_user:
        problems += no_auth_user(block.no_auth_user, at("websocket.no_auth_user"))
    listed = bool(options.authorization.users) or any(each.users for each in options.accounts.values())
    for name, value in (("username", block.authorization.user), ("token", block.authorization.token)):
        if listed and value:
            cause = f"websocket authentication {name} not compatible with presence of users/nkeys"
            problems.append(Problem(place, cause, "remove it, and add a user to the list"))
    if block.jwt_cookie and not options.operator_keys:
        cause = (
            "trusted operators or trusted keys configuration is required for JWT authentication via cookie"
        )
        fix = "remove jwt_cookie, or add operator"
        problems.append(Problem(at("websocket.jwt_cookie"), f"{cause} {quoted(block.jwt_cookie)}", fix))
    return problems


def _check_origins(block: WebSocketOptions, place: Place) -> list[Problem]:
    fix = "write scheme and host: https://example.com"
    for text in block.allowed_origins:
        cause = ""
        try:
            scheme, host, _ = origin_of(text)
        except ValueError as error:
            return [Problem(place, f"unable to parse allowed origin: {error}", fix)]
        if scheme not in ("http", "https"):
            cause = "allowed origins must be absolute URLs with http or https scheme"
        elif not host:
            cause = "host is required"
        if cause:
            return [Problem(place, f"unable to parse allowed origin {quoted(text)}: {cause}", fix)]
    return []
