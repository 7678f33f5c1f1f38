"""Headers of the PROXY protocol, encoded and decoded."""

from __future__ import annotations

import pytest

from pyjs.wire.proxy_header import (
    SIGNATURE_V2,
    BadHeader,
    ProxyHeader,
    ends_between_parts,
    missing,
    read_header,
)

V1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 4222\r\n"
# Composed by hand from the specification: PROXY over TCP and IPv4, 12 bytes of addresses.
V2 = SIGNATURE_V2 + b"\x21\x11\x00\x0c" + b"\xc0\x00\x02\x01\xc0\x00\x02\x02\x30\x39\x10\x7e"


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (V1, ProxyHeader(len(V1), "192.0.2.1", 12345)),
        (V2, ProxyHeader(len(V2), "192.0.2.1", 12345)),
        (b"PROXY UNKNOWN\r\n", ProxyHeader(15)),
        (b"PROXY TCP6 ::1 ::2 1 2\r\n", ProxyHeader(24, "::1", 1)),
        (b"PROXY TCP6 ::ffff:1.2.3.4 ::2 1 2\r\n", ProxyHeader(35, "1.2.3.4", 1)),
        (SIGNATURE_V2 + b"\x20\x00\x00\x00", ProxyHeader(16)),
        (SIGNATURE_V2 + b"\x21\x01\x00\x02ab", ProxyHeader(18)),
        (
            SIGNATURE_V2 + b"\x21\x21\x00\x24" + bytes(15) + b"\1" + bytes(16) + b"\0\7\0\0",
            ProxyHeader(52, "::1", 7),
        ),
        (b"CONNECT {}\r\n", ProxyHeader(0)),
        (b"\x16\x03\x01\x00\x00\x00", ProxyHeader(0)),
    ],
)
def test_a_header_is_read_and_what_follows_stays(data: bytes, header: ProxyHeader) -> None:
    assert read_header(data) == header
    assert read_header(data + b"PING\r\n") == header


@pytest.mark.parametrize(
    "data", [V1, V2, SIGNATURE_V2 + b"\x20\x00\x00\x02ab", SIGNATURE_V2 + b"\x21\x01\x00\x01a"]
)
def test_a_part_of_a_header_needs_more(data: bytes) -> None:
    for end in range(len(data)):
        assert read_header(data[:end]) is None
        assert missing(data[:end]).startswith("failed to ")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PROXY " + b"x" * 101, "invalid PROXY protocol header: v1 line too long"),
        (b"PROXY TCP4 1.2.3.4\r\n", "invalid PROXY protocol header: invalid v1 format"),
        (b"PROXY TCP4 1.2.3.4 x 1 2\r\n", "invalid PROXY protocol header: invalid address"),
        (b"PROXY TCP6 fe80::1%a ::2 1 2\r\n", "invalid PROXY protocol header: invalid address"),
        (b"PROXY TCP4 ::1 ::2 1 2\r\n", "invalid PROXY protocol header: TCP4 with IPv6 address"),
        (b"PROXY TCP6 1.2.3.4 ::2 1 2\r\n", "invalid PROXY protocol header: TCP6 with IPv4 address"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "invalid PROXY protocol header: invalid protocol UDP4"),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 a 2\r\n",
            'invalid source port: strconv.ParseUint: parsing "a": invalid syntax',
        ),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            'invalid dest port: strconv.ParseUint: parsing "65536": value out of range',
        ),
        (b"\r\n\r\n\x00\r\nQUIZ\n", "invalid PROXY protocol header: invalid signature"),
        (SIGNATURE_V2 + b"\x11\x11\0\0", "invalid PROXY protocol header: invalid version 0x10"),
        (SIGNATURE_V2 + b"\x22\x11\0\0", "unknown PROXY protocol command: 0x02"),
        (
            SIGNATURE_V2 + b"\x21\x12\0\0",
            "unsupported PROXY protocol feature: only STREAM protocol supported",
        ),
        (
            SIGNATURE_V2 + b"\x21\x31\0\0",
            "unsupported PROXY protocol feature: unsupported address family 0x30",
        ),
        (SIGNATURE_V2 + b"\x21\x11\0\x0b", "IPv4 address data too short: 11 bytes"),
        (SIGNATURE_V2 + b"\x21\x21\0\x23", "IPv6 address data too short: 35 bytes"),
    ],
)
def test_a_wrong_header_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(BadHeader) as refused:
        read_header(data)
    assert str(refused.value) == text


def test_the_parts_of_an_incomplete_header_have_names() -> None:
    assert missing(b"") == "failed to read protocol version"
    assert missing(b"PROXY T") == "failed to read v1 line"
    assert missing(SIGNATURE_V2[:8]) == "failed to read v2 signature"
    assert missing(SIGNATURE_V2) == "failed to read v2 header"
    assert missing(V2[:-1]) == "failed to read IPv4 address data"
    assert missing(SIGNATURE_V2 + b"\x21\x21\0\x24") == "failed to read IPv6 address data"
    assert missing(SIGNATURE_V2 + b"\x20\x11\0\x0c") == "failed to discard LOCAL command address data"
    assert missing(SIGNATURE_V2 + b"\x21\x01\0\x0c") == "failed to discard UNSPEC address address data"
    assert ends_between_parts(SIGNATURE_V2)
    assert ends_between_parts(SIGNATURE_V2 + b"\x21\x01\0\x0ca")
    assert not ends_between_parts(V2[:-1])
    assert not ends_between_parts(V2[:7])
