"""Payloads of several messages, composed by the tests."""

from __future__ import annotations

import struct


def message(subject: bytes, headers: list[str], payload: bytes) -> bytes:
    """Return one item of kind 1, a message."""
    block = (
        "".join(["NATS/1.0\r\n", *(f"{line}\r\n" for line in headers), "\r\n"]).encode() if headers else b""
    )
    size = 12 + len(subject) + len(block) + len(payload)
    return struct.pack("<IBBHI", size, 1, 0, len(subject), len(block)) + subject + block + payload


def payload_of(items: list[bytes]) -> bytes:
    """Return the payload that consists of these items."""
    return struct.pack("<BBHI", 1, 0, 0, len(items)) + b"".join(items)
