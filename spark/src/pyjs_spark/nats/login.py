"""The first exchange of a connection: INFO, TLS, CONNECT with the credentials, PING, PONG."""

from __future__ import annotations

import json
import time
from typing import Any

from pyjs_spark import strict_json
from pyjs_spark.errors import AccessDenied, BadCredentials, ConnectionLost, ProtocolError
from pyjs_spark.nats import nkeys
from pyjs_spark.nats.byte_stream import ByteStream
from pyjs_spark.nats.settings import Address, ConnectSettings, resolve_secret

Info = dict[str, Any]


def log_in(address: Address, settings: ConnectSettings) -> tuple[ByteStream, Info]:
    """Connect and log in to one server; return the connection and the server's INFO.

    Raises:
        OSError, ConnectionLost, ProtocolError: the server cannot be reached.
        AccessDenied: the server refused these credentials.
        BadCredentials: a secret, seed or certificate cannot be used.
    """
    stream = ByteStream(address, settings.timeout_s)
    try:
        return stream, _shake_hands(stream, address, settings)
    except BaseException:
        stream.close()
        raise


def _shake_hands(stream: ByteStream, address: Address, settings: ConnectSettings) -> Info:
    deadline_s = time.monotonic() + settings.timeout_s
    if settings.tls_first:
        stream.start_tls(settings)
    line = _line(stream, deadline_s)
    if not line.startswith(b"INFO "):
        raise ProtocolError(f"it answered {line[:40]!r}, which is no NATS server; is the port right?")
    info = _info(line)
    if not settings.tls_first and _wants_tls(address, settings, info):
        if stream.start < stream.end:  # bytes received before TLS: an attacker could have inserted them
            raise ProtocolError("it said more than INFO before TLS began")
        stream.start_tls(settings)
    stream.send(b"CONNECT %b\r\nPING\r\n" % json.dumps(connect_options(address, settings, info)).encode())
    while (line := _line(stream, deadline_s)) != b"PONG":
        if line.startswith(b"-ERR"):
            raise AccessDenied(f"it refused the connection: {line[5:].decode('utf-8', 'replace')}")
        if line.startswith(b"INFO "):
            info = _info(line)
    return info


def _info(line: bytes) -> Info:
    try:
        return strict_json.an_object(line[5:])
    except ValueError:
        raise ProtocolError(
            f"it greets with {line[5:45]!r}, which is no NATS server; is the port right?"
        ) from None


def _wants_tls(address: Address, settings: ConnectSettings, info: Info) -> bool:
    asked = address.tls or bool(settings.tls_ca or settings.tls_cert or settings.tls_hostname)
    offered = bool(info.get("tls_required") or info.get("tls_available"))
    if asked and not offered:
        raise ProtocolError("it offers no TLS; turn it on there, or leave out tls:// and the tls options")
    return asked or bool(info.get("tls_required"))


def connect_options(address: Address, settings: ConnectSettings, info: Info) -> Info:
    """Return the fields of CONNECT, which include the secrets; the secrets are read only now, and are not stored.

    Raises:
        BadCredentials: a secret or seed cannot be read, or the server sent no nonce to sign.
    """
    options: Info = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "lang": "python",
        "name": "pyjs-spark",
        "version": "1",
    }
    if settings.user or address.password:
        options["user"] = settings.user or address.user
        options["pass"] = resolve_secret("password", settings.password) or address.password
    elif address.user:  # nats://token@host
        options["auth_token"] = address.user
    if settings.token:
        options["auth_token"] = resolve_secret("token", settings.token)
    nonce = str(info.get("nonce", ""))
    if settings.nkey_seed_file:
        key = nkeys.read_seed(settings.nkey_seed_file)
        options |= {"nkey": key.public, "sig": key.sign(_asked(nonce, "nkey_seed_file"))}
    elif settings.creds_file:
        jwt, key = nkeys.read_creds(settings.creds_file)
        options |= {"jwt": jwt, "sig": key.sign(_asked(nonce, "creds_file"))}
    return options


def _asked(nonce: str, option: str) -> str:
    if not nonce:
        raise BadCredentials(f"{option} is given, but the server asks for no key; it logs in by other means")
    return nonce


def _line(stream: ByteStream, deadline_s: float) -> bytes:
    """Return the next line without its end. Raises ConnectionLost at the deadline."""
    end = stream.line_end(deadline_s)
    if end < 0:
        raise ConnectionLost("it took the connection and then said nothing; does it expect TLS first?")
    line = bytes(stream.data[stream.start : end])
    stream.start = end + 2
    return line
