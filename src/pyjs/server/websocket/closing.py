"""Close frames, whose status is the reason why a connection ends.

Source: RFC 6455, section 7.4; statuses as nats-server 2.15, tests/conformance/test_websocket.py.
"""

from __future__ import annotations

import struct

CLOSE_HEAD = 0x88  # FIN, opcode 8
TEXT_MAX = 123  # bytes; the payload of a control frame has up to 125, the status takes two of them
NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
INVALID_DATA = 1007
POLICY = 1008
TOO_BIG = 1009
SERVER_ERROR = 1011
TLS_HANDSHAKE = 1015
RESERVED = (1004, 1005, 1006, TLS_HANDSHAKE)  # endpoints must not send these
BY_REASON = {
    "Client Closed": NORMAL,
    "Authentication Timeout": POLICY,
    "Authentication Failure": POLICY,
    "Slow Consumer (Pending Bytes)": POLICY,
    "Slow Consumer (Write Deadline)": POLICY,
    "Maximum Account Connections Exceeded": POLICY,
    "Maximum Connections Exceeded": POLICY,
    "Maximum Control Line Exceeded": POLICY,
    "Maximum Subscriptions Exceeded": POLICY,
    "Missing Account": POLICY,
    "Authentication Expired": POLICY,
    "Credentials Revoked": POLICY,
    "TLS Handshake Failure": TLS_HANDSHAKE,
    "Parse Error": PROTOCOL_ERROR,
    "Protocol Violation": PROTOCOL_ERROR,
    "Bad Client Protocol Version": PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": TOO_BIG,
    "Write Error": GOING_AWAY,
    "Read Error": GOING_AWAY,
    "Stale Connection": GOING_AWAY,
    "Server Shutdown": GOING_AWAY,
}


class BadClose(ValueError):
    """Raised for an invalid close frame from the client; the exception's message is the reason."""


def close_frame(status: int, text: str) -> bytes:
    """Return a close frame; if `text` is too long, it is truncated, with an ellipsis at the end."""
    encoded = text.encode()
    if len(encoded) > TEXT_MAX:
        encoded = encoded[: TEXT_MAX - 3].decode(errors="ignore").encode() + b"..."  # whole characters only
    return struct.pack(">BBH", CLOSE_HEAD, 2 + len(encoded), status) + encoded


def reason_frame(reason: str) -> bytes:
    """Return the close frame for a session that was closed for `reason`."""
    return close_frame(BY_REASON.get(reason, SERVER_ERROR), reason)


def answer_to_close(payload: bytes) -> bytes:
    """Return the answer to a close frame from the client; `payload` is the payload of the client's frame.

    A reason that is not valid UTF-8 is answered with status 1007.

    Raises:
        BadClose: the frame has an invalid size or status.
    """
    if not payload:
        return bytes((CLOSE_HEAD, 0))
    if len(payload) == 1:
        raise BadClose("close frame payload cannot be 1 byte")
    status = int.from_bytes(payload[:2], "big")
    if not 1000 <= status < 5000 or 1016 <= status < 3000 or status in RESERVED:
        raise BadClose(f"invalid close status code {status}")
    try:
        return close_frame(status, payload[2:].decode())
    except UnicodeDecodeError:
        return close_frame(INVALID_DATA, "invalid utf8 body in close frame")
