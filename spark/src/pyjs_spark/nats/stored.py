"""One message in the answer to a direct get.

A batched answer appends headers in this order: Nats-Stream, Nats-Subject, Nats-Sequence, Nats-Time-Stamp,
Nats-Num-Pending, Nats-Last-Sequence. The function `stored` removes these headers.

Source: ADR-31; both servers' answers are checked in spark/tests/read/test_direct.py.
"""

from __future__ import annotations

from typing import NamedTuple

from pyjs_spark.decode.wire import SEQ_MAX
from pyjs_spark.errors import ProtocolError
from pyjs_spark.nats.client import Reply
from pyjs_spark.times import parse_rfc3339


class Stored(NamedTuple):
    """One message of a stream."""

    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def stored(answer: Reply) -> Stored:
    """Return the stored message in one part of a batched answer. Raises ProtocolError."""
    own, _, added = answer.headers.rpartition(b"\r\nNats-Stream:")
    named = dict(line.split(b": ", 1) for line in added.split(b"\r\n")[1:] if b": " in line)
    try:
        seq, ts = int(named[b"Nats-Sequence"]), parse_rfc3339(named[b"Nats-Time-Stamp"].decode())
        subject = named[b"Nats-Subject"]
        if not 0 < seq <= SEQ_MAX:
            raise ValueError(seq)
    except (KeyError, ValueError):
        raise ProtocolError(f"a direct get was answered with the headers {answer.headers[:200]!r}") from None
    headers = own + b"\r\n\r\n" if own != b"NATS/1.0" else b""
    return Stored(seq, ts, subject, headers, answer.payload)
