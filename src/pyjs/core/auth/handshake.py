"""CONNECT and INFO: the options that a client sends, and the fields that the server sends.

This module knows nothing of sessions. Field names, order and defaults follow nats-server 2.15:
tests/conformance/scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import orjson

from pyjs.base.bounds import INT64
from pyjs.base.json_scan import JsonFault, documents

if TYPE_CHECKING:
    from typing import Any

    from pyjs.core.link import Credentials


class BadConnect(ValueError):
    """Raised when the arguments of CONNECT are invalid; the connection is closed without -ERR."""


@dataclass(slots=True, repr=False)
class ConnectOptions:
    """The options of CONNECT. The defaults apply to missing keys, and to clients without CONNECT."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    user: str = ""
    password: str = ""
    auth_token: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    account: str = ""
    new_account: bool = False
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    proxy_sig: str = ""


OPTION_NAMES = tuple(each.name for each in fields(ConnectOptions))
options_of = attrgetter(*OPTION_NAMES)

# The known keys, each with its option ("" if client connections do not use it) and type.
CONNECT_FIELDS: dict[str, tuple[str, type]] = {
    "verbose": ("verbose", bool),
    "pedantic": ("pedantic", bool),
    "echo": ("echo", bool),
    "headers": ("headers", bool),
    "no_responders": ("no_responders", bool),
    "protocol": ("protocol", int),
    "user": ("user", str),
    "pass": ("password", str),
    "auth_token": ("auth_token", str),
    "name": ("name", str),
    "lang": ("lang", str),
    "version": ("version", str),
    "account": ("account", str),
    "new_account": ("new_account", bool),
    "nkey": ("nkey", str),
    "jwt": ("jwt", str),
    "sig": ("sig", str),
    "proxy_sig": ("proxy_sig", str),
    "import": ("", dict),
    "export": ("", dict),
}


def parse_connect(line: bytes, previous: ConnectOptions) -> ConnectOptions:
    """Return the options of a CONNECT; missing keys keep their value in `previous`.

    Raises:
        BadConnect: `line` is not a JSON object, or a known key has a value of another type or out of range.
    """
    values = dict(zip(OPTION_NAMES, options_of(previous), strict=True))
    for key, value in _read_any(line).items():
        field = CONNECT_FIELDS.get(key.lower())
        if field is None or value is None:
            continue
        name, kind = field
        if type(value) is not kind or (isinstance(value, int) and not INT64.low <= value <= INT64.high):
            raise BadConnect(
                f"CONNECT key {key} needs a {kind.__name__} in range, not a {type(value).__name__}"
            )
        if name:
            values[name] = value
    return ConnectOptions(*values.values())


def connect_refusal(options: ConnectOptions, has_headers: bool) -> tuple[str, str] | None:
    """Return the close reason and the -ERR text if the options are not acceptable, otherwise None."""
    if options.protocol not in (0, 1):
        return "Bad Client Protocol Version", "invalid client protocol"
    if options.no_responders and not has_headers:
        return "No Responders Requires Headers", "no responders requires headers support"
    return None


def with_credentials(options: ConnectOptions, others: Credentials | None) -> ConnectOptions:
    """Return `options` with missing credentials taken from `others`, which may be None."""
    if others is None:
        return options
    return replace(
        options,
        jwt=options.jwt or others.jwt,
        user=options.user or others.user,
        password=options.password or others.password,
        auth_token=options.auth_token or others.token,
    )


def _read_any(line: bytes) -> dict[str, Any]:
    try:
        given: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        given = _read_slowly(line)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadConnect("CONNECT needs a JSON object")
    return given


def _read_slowly(line: bytes) -> object:
    """Return the only JSON document in `line`, which orjson could not parse.

    Raises:
        BadConnect: there is not exactly one valid document.
    """
    try:
        found = list(documents(line))
    except JsonFault as fault:
        raise BadConnect(str(fault)) from None
    if len(found) != 1:
        raise BadConnect(f"CONNECT needs one JSON object, not {len(found)}")
    return found[0]


def info_line(fields: dict[str, object]) -> bytes:
    """Return the INFO line; like nats-server's, it has a space before the line end."""
    return b"INFO " + orjson.dumps(fields) + b" \r\n"
