"""The header of the PROXY protocol, versions 1 and 2: the address of a proxy's client.

    v1:  "PROXY " ("TCP4" | "TCP6") source destination source-port destination-port CRLF, or "PROXY UNKNOWN" ... CRLF
    v2:  signature(12) version(4) command(4) family(4) transport(4) size(16) | size bytes: source(4 or 16),
         destination, source port(16), destination port(16), anything

Numbers are big-endian. This module knows nothing of sockets: it reads the bytes received so far, at most 64 KiB of
them.

Source: https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt; error messages are nats-server 2.15.1's,
tests/conformance/test_proxy_protocol.py.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

PREFIX_V1 = b"PROXY "
SIGNATURE_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
PREFIX_SIZE = 6  # bytes that determine the version
LINE_SIZE_MAX = 107  # maximum bytes of a header of version 1, CRLF included
FIXED_SIZE = 16  # bytes of a header of version 2 before the addresses
VERSION_2 = 0x20
LOCAL, PROXY = 0, 1
UNSPECIFIED, IPV4, IPV6 = 0x00, 0x10, 0x20
STREAM = 1
SIZES = {IPV4: 12, IPV6: 36}  # minimum bytes of the addresses
INVALID = "invalid PROXY protocol header"
UNSUPPORTED = "unsupported PROXY protocol feature"


class BadHeader(ValueError):
    """Raised for an invalid header; the exception's message is the reason."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A complete PROXY header."""

    size: int  # bytes of the header, which the client's bytes follow; 0: there is no header
    ip: str = ""  # address of the client; "": the proxy connects on its own behalf
    port: int = 0


def read_header(data: bytes) -> ProxyHeader | None:
    """Return the header at the start of a connection, or None if more bytes are needed.

    If the connection has no header, the size of the returned header is 0.

    Raises:
        BadHeader: the header is invalid.
    """
    prefix = data[:PREFIX_SIZE]
    if len(prefix) < PREFIX_SIZE:
        return None
    if prefix == PREFIX_V1:
        return _read_line(data)
    if prefix == SIGNATURE_V2[:PREFIX_SIZE]:
        return _read_binary(data)
    return ProxyHeader(0)


def missing(data: bytes) -> str:
    """Return the beginning of the error message for an incomplete header."""
    if len(data) < PREFIX_SIZE:
        return "failed to read protocol version"
    if data.startswith(PREFIX_V1):
        return "failed to read v1 line"
    if len(data) < len(SIGNATURE_V2):
        return "failed to read v2 signature"
    if len(data) < FIXED_SIZE:
        return "failed to read v2 header"
    if data[12] & 0x0F == LOCAL:
        return "failed to discard LOCAL command address data"
    if data[13] & 0xF0 == UNSPECIFIED:
        return "failed to discard UNSPEC address address data"
    return f"failed to read {'IPv6' if data[13] & 0xF0 == IPV6 else 'IPv4'} address data"


def ends_between_parts(data: bytes) -> bool:
    """Return whether nats-server reports "EOF", and not "unexpected EOF", if the input ends after `data`."""
    if data.startswith(PREFIX_V1) or len(data) in (0, PREFIX_SIZE, len(SIGNATURE_V2), FIXED_SIZE):
        return True
    return len(data) > FIXED_SIZE and (data[12] & 0x0F == LOCAL or data[13] & 0xF0 == UNSPECIFIED)


def _read_line(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:LINE_SIZE_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= LINE_SIZE_MAX:
            raise BadHeader(f"{INVALID}: v1 line too long")
        return None
    size = len(line) + 2
    words = line[PREFIX_SIZE:].decode("utf-8", "replace").split()
    if words[:1] == ["UNKNOWN"]:
        return ProxyHeader(size)
    if len(words) != 5:
        raise BadHeader(f"{INVALID}: invalid v1 format")
    protocol, *addresses = words[:3]
    ips = [_ip(text) for text in addresses]
    source_port, _ = _port(words[3], "source"), _port(words[4], "dest")
    is_v6 = [":" in text for text in addresses]
    if protocol == "TCP4" and any(is_v6):
        raise BadHeader(f"{INVALID}: TCP4 with IPv6 address")
    if protocol == "TCP6" and not all(is_v6):
        raise BadHeader(f"{INVALID}: TCP6 with IPv4 address")
    if protocol not in ("TCP4", "TCP6"):
        raise BadHeader(f"{INVALID}: invalid protocol {protocol}")
    return ProxyHeader(size, ips[0], source_port)


def _ip(text: str) -> str:
    try:
        if "%" not in text:
            return _plain(ipaddress.ip_address(text))
    except ValueError:
        pass
    raise BadHeader(f"{INVALID}: invalid address")


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text; an IPv4 address mapped to IPv6 becomes plain IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)


def _port(text: str, which: str) -> int:
    cause = "invalid syntax"
    if text.isascii() and text.isdigit():
        if len(text.lstrip("0")) <= 5 and int(text) <= 0xFFFF:
            return int(text)
        cause = "value out of range"
    raise BadHeader(f'invalid {which} port: strconv.ParseUint: parsing "{text}": {cause}')


def _read_binary(data: bytes) -> ProxyHeader | None:
    signature = data[: len(SIGNATURE_V2)]
    if len(signature) < len(SIGNATURE_V2):
        return None
    if signature != SIGNATURE_V2:
        raise BadHeader(f"{INVALID}: invalid signature")
    if len(data) < FIXED_SIZE:
        return None
    version, command = data[12] & 0xF0, data[12] & 0x0F
    if version != VERSION_2:
        raise BadHeader(f"{INVALID}: invalid version 0x{version:02x}")
    size = FIXED_SIZE + int.from_bytes(data[14:16], "big")
    if command == LOCAL:
        return ProxyHeader(size) if len(data) >= size else None
    if command != PROXY:
        raise BadHeader(f"unknown PROXY protocol command: 0x{command:02x}")
    return _read_addresses(data, size)


def _read_addresses(data: bytes, size: int) -> ProxyHeader | None:
    family, transport = data[13] & 0xF0, data[13] & 0x0F
    if transport != STREAM:
        raise BadHeader(f"{UNSUPPORTED}: only STREAM protocol supported")
    if family not in (IPV4, IPV6, UNSPECIFIED):
        raise BadHeader(f"{UNSUPPORTED}: unsupported address family 0x{family:02x}")
    if family in SIZES and size - FIXED_SIZE < SIZES[family]:
        name = "IPv4" if family == IPV4 else "IPv6"
        raise BadHeader(f"{name} address data too short: {size - FIXED_SIZE} bytes")
    if len(data) < size:
        return None
    if family == UNSPECIFIED:
        return ProxyHeader(size)
    width = 4 if family == IPV4 else 16
    source = data[FIXED_SIZE : FIXED_SIZE + width]
    port_at = FIXED_SIZE + 2 * width
    port = int.from_bytes(data[port_at : port_at + 2], "big")
    return ProxyHeader(size, _plain(ipaddress.ip_address(source)), port)
