"""The bodies of PubAcks that refuse a publish.

Called by the compiled ingest for refused messages only, so the few Python calls do not matter.
"""

from __future__ import annotations

import re

import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.message_ttl import parse_ttl_ns
from pyjs.subjects.tokens import is_valid_literal

# Reasons of 10077, by the numbers in stream.pyx.
_NO_ROOM = {
    1: "maximum messages exceeded",
    2: "maximum bytes exceeded",
    3: "maximum messages per subject exceeded",
    4: "subject exceeds 65535 bytes",
    5: "no sequence is left",
}
# The errors that stream.pyx has only numbers for.
_REFUSALS = {
    row.err_code: row
    for row in (
        errcodes.ACCOUNT_RESOURCES_EXCEEDED,
        errcodes.INSUFFICIENT_RESOURCES,
        errcodes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID,
        errcodes.STREAM_HEADER_EXCEEDS_MAXIMUM,
        errcodes.STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        errcodes.STREAM_NOT_MATCH,
        errcodes.STREAM_SEALED,
        errcodes.STREAM_STORE_FAILED,
        errcodes.STREAM_WRONG_LAST_MSG_ID,
        errcodes.STREAM_WRONG_LAST_SEQUENCE,
    )
}
_BIG_INT = re.compile(rb"[+-]?[0-9]+")


def refusal_body(stream: str, err_code: int, seq: int, last_msg_id: bytes) -> bytes:
    """Return the reply body for `err_code`; `seq` fills the text, or is a reason of 10077."""
    row = _REFUSALS[err_code]
    error = row.error(seq=seq, err=_NO_ROOM.get(seq, ""), id=last_msg_id.decode("utf-8", "replace"))
    return failure_body(stream, error)


def failure_body(stream: str, error: ApiError) -> bytes:
    """Return the reply body for `error`."""
    return orjson.dumps({"error": error.as_json(), "stream": stream, "seq": 0})


def store_error(error: Exception | None) -> ApiError:
    """Return the error for publishers when the store refuses messages."""
    return errcodes.STREAM_STORE_FAILED.error(err=error or "the store refused the message")


def rollup_error(scope: bytes, allowed: bool) -> ApiError | None:
    """Return the error of a Nats-Rollup header, or None if it is valid and allowed."""
    if not allowed:
        return errcodes.STREAM_ROLLUP_FAILED.error(err="rollup not permitted")
    if scope.lower() in (b"sub", b"all"):
        return None
    shown = scope.decode("utf-8", "replace").lower()
    return errcodes.STREAM_ROLLUP_FAILED.error(err=f'rollup value invalid: "{shown}"')


def later_refusal(point: int, headers: bytes, subject: bytes) -> ApiError | None:
    """Return the error of a header whose feature is not implemented, or None if this `point` has none.

    Points are the places where nats-server checks these headers: 0 before any condition, 1 after the expected stream,
    2 after the expected sequences, 3 just before storing.
    """
    if point == 0:
        return _refused_first(headers)
    if point == 1:
        return _refused_after_stream(headers)
    return _refused_after_sequences(headers, subject) if point == 2 else _refused_last(headers)


def _refused_first(headers: bytes) -> ApiError | None:
    """Return the error of a header that is refused before any condition: atomic batches, counters."""
    if _value(headers, b"Nats-Batch-Id"):
        return errcodes.ATOMIC_PUBLISH_DISABLED.error()
    increment = _value(headers, b"Nats-Incr")
    if increment:
        valid = _BIG_INT.fullmatch(increment)
        return (errcodes.MESSAGE_INCR_DISABLED if valid else errcodes.MESSAGE_INCR_INVALID).error()
    return None


def _refused_after_stream(headers: bytes) -> ApiError | None:
    """Return the error of a TTL in a stream without `allow_msg_ttl`; checked after the expected stream."""
    ttl = _value(headers, b"Nats-TTL")
    return errcodes.MESSAGE_TTL_DISABLED.error() if ttl and parse_ttl_ns(ttl) else None


def _refused_after_sequences(headers: bytes, subject: bytes) -> ApiError | None:
    """Return the error of a schedule or a forged source header; checked after the expected sequences."""
    if _value(headers, b"Nats-Schedule"):
        return errcodes.MESSAGE_SCHEDULES_DISABLED.error()
    scheduler = _value(headers, b"Nats-Scheduler")
    following = _value(headers, b"Nats-Schedule-Next")
    if following == b"purge" and scheduler != subject and is_valid_literal(scheduler):
        return errcodes.MESSAGE_SCHEDULES_DISABLED.error()
    if following or scheduler:
        return errcodes.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()
    if _value(headers, b"Nats-Stream-Source"):
        return errcodes.MESSAGE_SOURCE_HDR_NOT_ALLOWED.error()
    return None


def _refused_last(headers: bytes) -> ApiError | None:
    """Return the error of an invalid TTL; checked just before storing."""
    ttl = _value(headers, b"Nats-TTL")
    return errcodes.MESSAGE_TTL_INVALID.error() if ttl and parse_ttl_ns(ttl) is None else None


def _value(headers: bytes, name: bytes) -> bytes:
    """Return the value of the first header `name`, or b"" if there is none."""
    found = headers.partition(b"\r\n%b:" % name)[2]
    return found.partition(b"\r\n")[0].lstrip(b" ")
