"""One message as a direct get answers it.

What a batched answer adds to the headers stands at their end, in this order: Nats-Stream, Nats-Subject,
Nats-Sequence, Nats-Time-Stamp, Nats-Num-Pending, Nats-Last-Sequence. It is taken off again.

Source: ADR-31; both servers' answers are checked in tests/spark/test_direct.py.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from pyjs_spark.client import Reply
from pyjs_spark.errors import ProtocolError


class Stored(NamedTuple):
    """One message of a stream."""

    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def stored(answer: Reply) -> Stored:
    """Return the message in one part of a batched answer. Raises ProtocolError."""
    own, _, added = answer.headers.rpartition(b"\r\nNats-Stream:")
    named = dict(line.split(b": ", 1) for line in added.split(b"\r\n")[1:] if b": " in line)
    try:
        seq, ts = int(named[b"Nats-Sequence"]), ns_of(named[b"Nats-Time-Stamp"].decode())
        subject = named[b"Nats-Subject"]
    except (KeyError, ValueError):
        raise ProtocolError(f"a direct get was answered with the headers {answer.headers[:200]!r}") from None
    headers = own + b"\r\n\r\n" if own != b"NATS/1.0" else b""
    return Stored(seq, ts, subject, headers, answer.payload)


def ns_of(text: str) -> int:
    """Return the nanoseconds since 1970 of an RFC 3339 time, exactly. Raises ValueError."""
    whole, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if rest else ""
    at = datetime.datetime.fromisoformat(whole + zone)
    return int(at.timestamp()) * 10**9 + int(digits.ljust(9, "0")[:9] or 0)
