"""The bodies of PubAcks that refuse a publish.

Called by the compiled ingest when a message is refused; a refusal costs a few Python calls, which is fine.
"""

from __future__ import annotations

import orjson

from pyjs.base.errors import PyjsError
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError

# Reasons of 10077 as stream.pyx numbers them.
_NO_ROOM = {
    1: "maximum messages exceeded",
    2: "maximum bytes exceeded",
    3: "maximum messages per subject exceeded",
}
_LATER = {
    b"Nats-TTL": errcodes.MESSAGE_TTL_DISABLED,
    b"Nats-Incr": errcodes.MESSAGE_INCR_DISABLED,
    b"Nats-Batch-Id": errcodes.ATOMIC_PUBLISH_DISABLED,
    b"Nats-Schedule": errcodes.MESSAGE_SCHEDULES_DISABLED,
    b"Nats-Stream-Source": errcodes.MESSAGE_SOURCE_HDR_NOT_ALLOWED,
}


def refusal_body(stream: str, err_code: int, seq: int, last_msg_id: bytes) -> bytes:
    """Return the reply body for `err_code`; `seq` fills the text, or says why there is no room."""
    row = errcodes.BY_NUMBER[err_code]
    error = row.error(seq=seq, err=_NO_ROOM.get(seq, ""), id=last_msg_id.decode("utf-8", "replace"))
    return failure_body(stream, error)


def failure_body(stream: str, error: ApiError) -> bytes:
    """Return the reply body that carries `error`."""
    return orjson.dumps({"error": error.as_json(), "stream": stream, "seq": 0})


def store_error(error: PyjsError | None) -> ApiError:
    """Return what publishers are told when the store takes no more."""
    return errcodes.STREAM_STORE_FAILED.error(err=error or "the store refused the message")


def rollup_error(scope: bytes, allowed: bool) -> ApiError | None:
    """Return why a Nats-Rollup header cannot be obeyed, None: it can."""
    if not allowed:
        return errcodes.STREAM_ROLLUP_FAILED.error(err="rollup not permitted")
    if scope.lower() in (b"sub", b"all"):
        return None
    shown = scope.decode("utf-8", "replace").lower()
    return errcodes.STREAM_ROLLUP_FAILED.error(err=f'rollup value invalid: "{shown}"')


def later_feature(header_line: bytes) -> ApiError:
    """Return the refusal of a header whose feature no stream has enabled."""
    row = _LATER.get(header_line.partition(b":")[0], errcodes.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    return row.error()
