"""Addresses of the servers and credentials: plain values that Spark may pickle and send to its workers.

A secret can be given as `env:NAME` or `file:PATH`. Then only the machine that connects reads the value, and
neither a query plan nor a pickle contains it. A secret that is given directly is in the pickle, but no repr
shows it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyjs_spark.errors import BadCredentials, SparkError

PORT = 4222
SCHEMES = ("nats", "tls")


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """Addresses of the servers, credentials, and settings of TLS and timeouts."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str = ""
    password: str = ""
    token: str = ""
    nkey_seed_file: str = ""
    creds_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_hostname: str = ""  # the name in the server's certificate, if it differs from the address
    # whether TLS starts before the server's INFO, like the server's `handshake_first`
    tls_first: bool = False
    api_prefix: str = "$JS.API"  # $JS.<domain>.API in a domain
    timeout_s: float = 10.0  # seconds for connecting, and for one request

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={self._shown(field.name)}" for field in fields(self))
        return f"ConnectSettings({shown})"

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        if name == "servers":
            return repr(tuple(_without_user(server) for server in value))
        is_secret = name in ("password", "token") and value and not value.startswith(("env:", "file:"))
        return "'***'" if is_secret else repr(value)


@dataclass(frozen=True, slots=True)
class Address:
    """One parsed address of the list of servers."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Address({self})"


def parse_address(server: str) -> Address:
    """Return the address in a string such as `nats://user:password@host:port`.

    All parts except the host are optional.

    Raises:
        SparkError: the string is not an address; the error does not repeat a password.
    """
    shown = _without_user(server)
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        port = PORT if parts.port is None else parts.port
    except ValueError as error:
        raise SparkError(f"servers: {shown!r} is no address ({error}); write nats://host:4222") from None
    if parts.scheme not in SCHEMES:
        raise SparkError(
            f"servers: {shown!r} has the scheme {parts.scheme}; only nats:// and tls:// work here"
        )
    if not parts.hostname:
        raise SparkError(f"servers: {shown!r} names no host; write nats://host:4222")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise SparkError(f"servers: {shown!r} has more than a host and a port; write nats://host:4222")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.hostname, port, parts.scheme == "tls", user, password)


def resolve_secret(name: str, value: str) -> str:
    """Return the secret that `value` denotes: the value itself, or the content of `env:NAME` or `file:PATH`.

    Raises:
        BadCredentials: the variable does not exist, or the file cannot be read.
    """
    kind, colon, where = value.partition(":")
    try:
        if kind + colon == "env:":
            return os.environ[where]
        return Path(where).read_text("utf-8").strip() if kind + colon == "file:" else value
    except KeyError:
        text = (
            f"{name}: the environment variable {where} is not set where the connection is made; set it there"
        )
        raise BadCredentials(text) from None
    except OSError as error:
        raise BadCredentials(f"{name}: the file {where} cannot be read: {error.strerror}") from None


def _without_user(server: str) -> str:
    head, at, host = server.rpartition("@")
    scheme = head.partition("://")[0] + "://" if "://" in head else ""
    return f"{scheme}***@{host}" if at else server
