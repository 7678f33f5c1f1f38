"""$JS.API.STREAM.MSG.*: read or delete one stored message.

Source: nats.docs "JetStream wire API Reference"; forms and errors probed on nats-server 2.15.1.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from pyjs.base.bounds import wrapped_ns
from pyjs.base.errors import NotNow, StoreFailed
from pyjs.base.gotext import time_text
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.endpoint import ApiCall, Counted, Endpoint, JsonDict, Steps
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.manage.stream_info import know_subjects
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.stream import Stream
from pyjs.store import searches
from pyjs.store.store import StoredMessage, StreamStore

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.jetstream.stream.replicated.replica import Replica


def get(call: ApiCall) -> Steps:
    """Return the message that the request selects by sequence, subject or time."""
    given = call.read_required(stream_requests.GET_MSG_REQUEST)
    if given.get("batch", 0) > 0 or given.get("max_bytes", 0) > 0 or is_conflicting(given):
        raise errcodes.BAD_REQUEST.error()
    stream = call.stream()
    if stream.replica is not None:
        return _get_current(call, given)
    return _get(stream.store, given)


def _get_current(call: ApiCall, given: dict[str, Any]) -> Steps:
    """Return the message of a replicated stream, after applying all entries committed before the request."""
    store = (yield from call.current_stream()).store
    return (yield from _get(store, given))


def _get(store: StreamStore, given: dict[str, Any]) -> Steps:
    try:
        message = yield from find(store, given)
    except NotNow:
        raise errcodes.INSUFFICIENT_RESOURCES.error() from None
    if message is None:
        raise errcodes.NO_MESSAGE_FOUND.error()
    shown: JsonDict = {"subject": message.subject.decode("utf-8", "replace"), "seq": message.seq}
    if message.headers and not given.get("no_hdr"):
        shown["hdrs"] = base64.b64encode(message.headers).decode()
    if message.payload:
        shown["data"] = base64.b64encode(message.payload).decode()
    shown["time"] = time_text(message.ts)
    return {"message": shown}


def is_conflicting(given: dict[str, Any]) -> bool:
    """Return whether a request selects no message, or has selections that exclude each other."""
    seq, start = given.get("seq", 0), "start_time" in given
    last, following = given.get("last_by_subj", ""), given.get("next_by_subj", "")
    if not (seq or last or following or start):
        return True
    return bool((seq and last) or (seq and start) or (start and last) or (last and following))


def find(store: StreamStore, given: dict[str, Any]) -> Generator[None, None, StoredMessage | None]:
    """Search in steps for the message that a request without conflicts selects; return it, or None if there is none.

    Raises:
        NotNow: the message cannot be read for the moment.
    """
    catalogue, seq = store.catalogue, given.get("seq", 0)
    if given.get("last_by_subj"):
        return (yield from last_of(store, given["last_by_subj"].encode()))
    if "start_time" in given:
        seq = catalogue.seq_at(wrapped_ns(parse_time_ns(given["start_time"])))
        if seq == 0:
            return None
    if given.get("next_by_subj"):
        wanted = store.make_filter((given["next_by_subj"].encode(),))
        yield from know_subjects(store, wanted)
        return store.get((yield from searches.next_match(catalogue, max(seq, 1), wanted)))
    return store.get_next(b">", seq) if "start_time" in given else store.get(seq)


def last_of(store: StreamStore, subject: bytes) -> Generator[None, None, StoredMessage | None]:
    """Search in steps for the last message of a subject, which may have wildcards; return it, or None.

    Raises:
        NotNow: the message cannot be read for the moment.
    """
    wanted = store.make_filter((subject,))
    yield from know_subjects(store, wanted)
    return store.get((yield from searches.last_match(store.catalogue, store.last_seq, wanted)))


def delete(call: ApiCall) -> JsonDict | Steps:
    """Remove one message and, unless the request has `no_erase`, overwrite its bytes."""
    given = call.read_required(stream_requests.DELETE_MSG_REQUEST)
    stream = call.stream()
    errcodes.STREAM_SEALED.raise_if(stream.config.sealed)
    errcodes.STREAM_MSG_DELETE_FAILED.raise_if(stream.config.deny_delete, err="message delete not permitted")
    # nats-server does not count a failed removal as an API error, see tests/unit/jetstream/api/test_api.py.
    seq, erase = given.get("seq", 0), not given.get("no_erase", False)
    if stream.replica is not None:
        return _delete_steps(stream, stream.replica, seq, erase)
    return _removed(_remove(stream, seq, erase))


def _delete_steps(stream: Stream, replica: Replica, seq: int, erase: bool) -> Steps:
    """Remove a message from every replica."""
    missing = _not_there(stream, seq)
    if missing is None and not (yield from replica.operate(operations.delete(seq, erase))):
        missing = errcodes.SEQUENCE_NOT_FOUND.error(seq=seq)
    return _removed(missing)


def _removed(failure: ApiError | None) -> JsonDict:
    return {"success": True} if failure is None else {"error": failure.as_json()}


def _not_there(stream: Stream, seq: int) -> ApiError | None:
    """Return nats-server's error for a sequence outside the stream, or None for a sequence inside.

    Source: tests/conformance/scenarios/stream/message_delete_not_there.txt.
    """
    store = stream.store
    if seq and store.first_seq <= seq <= store.last_seq:
        return None
    if stream.config.storage == "memory":
        return errcodes.SEQUENCE_NOT_FOUND.error(seq=seq)
    text = "stream store EOF" if seq > store.last_seq else "no message found"
    return errcodes.STREAM_MSG_DELETE_FAILED.error(err=text)


def _remove(stream: Stream, seq: int, erase: bool) -> ApiError | None:
    missing = _not_there(stream, seq)
    if missing is not None:
        return missing
    try:
        removed = stream.delete_msg(seq, erase)
    except StoreFailed as error:
        return errcodes.STREAM_MSG_DELETE_FAILED.error(err=error)
    return None if removed else errcodes.SEQUENCE_NOT_FOUND.error(seq=seq)


ENDPOINTS = (
    Endpoint(
        "STREAM.MSG.GET", get, counted=Counted.ERRORS, changes=False
    ),  # nats-server does not count this error either
    Endpoint("STREAM.MSG.DELETE", delete, unsynced=errcodes.STREAM_MSG_DELETE_FAILED),
)
