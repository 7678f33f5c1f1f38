"""The bodies of PubAcks that refuse a publish.

The compiled ingest calls this module only for refused messages, so its speed does not matter.
"""

from __future__ import annotations

import orjson

from pyjs.base.gotext import quoted
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.headers import value_of

# Reasons for error 10077, by the numbers in stream.pyx.
_NO_ROOM = {
    1: "maximum messages exceeded",
    2: "maximum bytes exceeded",
    3: "maximum messages per subject exceeded",
    4: "subject exceeds 65535 bytes",
    5: "no sequence is left",
}
# The errors that stream.pyx names only by their numbers.
_REFUSALS = {
    row.err_code: row
    for row in (
        errcodes.ACCOUNT_RESOURCES_EXCEEDED,
        errcodes.ATOMIC_PUBLISH_DISABLED,
        errcodes.INSUFFICIENT_RESOURCES,
        errcodes.MESSAGE_INCR_MISSING,
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
IS_DUPLICATE = "msgid is duplicate"  # shown in a trace; the publisher gets a PubAck instead
# Errors whose text in a trace differs.
_TRACED = {
    errcodes.STREAM_NOT_MATCH.err_code: "expected stream does not match",
    errcodes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
    errcodes.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
    errcodes.MESSAGE_TTL_DISABLED.err_code: "message TTL disabled",
}


def refusal(err_code: int, seq: int, last_msg_id: bytes) -> ApiError:
    """Return the error `err_code`; `seq` is a value in its message or, for 10077, the number of the reason."""
    row = _REFUSALS[err_code]
    return row.error(seq=seq, err=_NO_ROOM.get(seq, ""), id=last_msg_id.decode("utf-8", "replace"))


def failure_body(stream: str, error: ApiError) -> bytes:
    """Return the body of the reply to a publish that is refused with `error`."""
    return orjson.dumps({"error": error.as_json(), "stream": stream, "seq": 0})


def store_error(error: Exception | None) -> ApiError:
    """Return the error that publishers get when the store refuses messages."""
    return errcodes.STREAM_STORE_FAILED.error(err=error or "the store refused the message")


def rollup_error(scope: bytes, allowed: bool) -> ApiError | None:
    """Return the error for a Nats-Rollup header, or None if it is valid and allowed."""
    if not allowed:
        return errcodes.STREAM_ROLLUP_FAILED.error(err="rollup not permitted")
    if scope.lower() in (b"sub", b"all"):
        return None
    shown = scope.decode("utf-8", "replace").lower()
    return errcodes.STREAM_ROLLUP_FAILED.error(err=f'rollup value invalid: "{shown}"')


def traced_refusal(error: ApiError, subject: bytes, headers: bytes) -> tuple[str, bytes]:
    """Return the message of `error` for a trace, and the subject, or b"" if nats-server does not show the subject."""
    if error.err_code == errcodes.STREAM_STORE_FAILED.err_code:
        return error.description, subject
    if error.err_code == errcodes.STREAM_ROLLUP_FAILED.err_code:
        return error.description, b""
    if error.err_code == errcodes.STREAM_WRONG_LAST_SEQUENCE.err_code:
        actual = error.description.rpartition(" ")[2]
        given = value_of(headers, b"Nats-Expected-Last-Subject-Sequence").decode("utf-8", "replace")
        if given and given != actual:
            return f"last sequence by subject mismatch: {given} vs {actual}", b""
        given = value_of(headers, b"Nats-Expected-Last-Sequence").decode("utf-8", "replace")
        return f"last sequence mismatch: {given} vs {actual}", b""
    if error.err_code == errcodes.STREAM_WRONG_LAST_MSG_ID.err_code:
        actual = error.description.rpartition(": ")[2]
        given = value_of(headers, b"Nats-Expected-Last-Msg-Id").decode("utf-8", "replace")
        return f"last msgid mismatch: {quoted(given)} vs {quoted(actual)}", b""
    return _TRACED.get(error.err_code, str(error)), b""
