"""Addresses that the server advertises to clients and to other servers: `host`, `host:port` or `[IPv6]:port`.

Source: behaviour of nats-server 2.15.1. There, too, a port of 0 or -1 means the server's own port. nats-server also
starts with hosts to which no program can connect, such as an empty one or "a b"; these are refused here.
"""

from __future__ import annotations

import re

from pyjs.config.errors import Refused
from pyjs.config.table import Key, Reading
from pyjs.config.values import Value

ADVERTISED_FIX = 'write "example.com:4222", or "[::1]:4222" for IPv6'
PORT_MAX = 65535
NAME_SIZE_MAX = 253  # characters
# Of the characters of ASCII: letters, digits, - . and _.
_NAME = re.compile(r"[^\s\x00-\x1f\x7f!-,/:-@\[-^`{-~]+")


class BadAddress(ValueError):
    """Raised for a text that is no host or host:port."""


def advertised_address(text: str, own_port: int) -> tuple[str, int]:
    """Return the host in `text`, without brackets, and the port.

    If `text` has no port, or the port 0 or -1, the returned port is `own_port`.

    Raises:
        BadAddress: no program can connect to such an address.
    """
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_host = bool(bracket) and rest[:1] in ("", ":") and (_is_name(host) or _is_ipv6(host))
    else:
        host, colon, port = text.partition(":")
        rest = colon + port
        is_host = _is_name(host)
    if not is_host:
        raise BadAddress(text)
    return host, (_port(rest[1:]) if rest else 0) or own_port


def is_advertised(text: str) -> bool:
    """Return whether `text` is empty, or is an address to which other programs can connect."""
    try:
        return not text or bool(advertised_address(text, 1))
    except BadAddress:
        return False


def check_advertised(reading: Reading, key: Key, value: Value, data: object) -> None:
    """Refuse a text that is no host or host:port."""
    if not is_advertised(str(data)):
        raise Refused(value.place, f'"{key.name}" is "{data}", which is no host or host:port', ADVERTISED_FIX)


def _port(text: str) -> int:
    """Return the port in `text`, or 0 if it means the server's own port."""
    text = text.strip()
    if text == "-1":
        return 0
    is_port = text.isascii() and text.isdigit() and len(text) <= len(str(PORT_MAX)) and int(text) <= PORT_MAX
    if not is_port:
        raise BadAddress(text)
    return int(text)


def _is_name(host: str) -> bool:
    return (
        len(host) <= NAME_SIZE_MAX
        and bool(_NAME.fullmatch(host))
        and "" not in host.removesuffix(".").split(".")
    )


def _is_ipv6(host: str) -> bool:
    from ipaddress import IPv6Address  # few configurations need it

    try:
        return bool(IPv6Address(host))
    except ValueError:
        return False
