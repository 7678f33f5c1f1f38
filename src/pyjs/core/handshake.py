"""CONNECT and INFO as data: what a client says of itself, what the server says of itself.

Knows nothing of sessions. Field names, order and defaults as nats-server 2.15: tests/conformance/scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from typing import Any


class BadConnect(ValueError):
    """The CONNECT arguments are not the JSON they should be; the connection is closed without a word."""


@dataclass(slots=True)
class ConnectOptions:
    """What CONNECT said. The defaults are those of a client that leaves the key out, or never connects."""

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


_FIELDS: dict[str, tuple[str, type]] = {
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
}


def parse_connect(line: bytes, previous: ConnectOptions) -> ConnectOptions:
    """Return the options of a CONNECT; keys it leaves out stay as in `previous`.

    Raises:
        BadConnect: not a JSON object, or a known key has a value of another type.
    """
    values = {each.name: getattr(previous, each.name) for each in fields(ConnectOptions)}
    for key, value in _read_any(line).items():
        field = _FIELDS.get(key.lower())
        if field is None or value is None:
            continue
        name, kind = field
        if type(value) is not kind:
            raise BadConnect(f"CONNECT key {key} needs a {kind.__name__}, not {value!r}")
        values[name] = value
    return ConnectOptions(*values.values())


def _read_any(line: bytes) -> dict[str, Any]:
    try:
        given: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadConnect(str(error)) from None
    if not isinstance(given, dict):
        raise BadConnect("CONNECT needs a JSON object")
    return given


def info_line(fields: dict[str, object]) -> bytes:
    """Return the INFO line; nats-server puts a space before the line end and clients have seen it there."""
    return b"INFO " + orjson.dumps(fields) + b" \r\n"
