"""$JS.API.STREAM.*: create, update, report, delete and purge streams.

Source: nats.docs "JetStream wire API Reference"; texts and extra fields probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.api.endpoint import ANY_ARGS, ApiCall, Endpoint, JsonDict, Steps, is_empty, needs_cluster
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage import purging, streams
from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.manage.stream_info import (
    SUBJECTS_PAGE,
    deleted_details,
    know_lag,
    know_subjects,
    stream_info,
    stream_state,
    subjects_page,
)
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.subjects.tokens import is_valid_subject, subject_has_wildcard, subjects_overlap

if TYPE_CHECKING:
    from typing import Any

NAMES_PAGE = 1024
LIST_PAGE = 256
LIST_STEP = 16  # number of streams reported in one turn: half a millisecond


def create(call: ApiCall) -> Steps:
    """Create a stream, or confirm that it exists with the same configuration."""
    request = stream_requests.read_stream(call.body, call.js.options.strict)
    errcodes.STREAM_MISMATCH.raise_if(request.config.name != call.args[0])
    verdict = yield from streams.judge_subjects(call.js, request.config)
    try:
        stream = yield from streams.create(call.js, request.config, request.pedantic, verdict)
    except StoreFailed as error:
        raise errcodes.STREAM_CREATE.error(err=error) from error
    return stream_info(call.js, stream, domain=False) | {"did_create": True}


def update(call: ApiCall) -> Steps:
    """Update the configuration of a stream."""
    request = stream_requests.read_stream(call.body, call.js.options.strict)
    verdict = yield from streams.judge_subjects(call.js, request.config)
    config = streams.check(call.js, request.config, request.pedantic, verdict)
    errcodes.STREAM_MISMATCH.raise_if(config.name != call.args[0])
    try:
        stream = yield from streams.update(call.js, config, verdict)
    except StoreFailed as error:
        raise errcodes.STREAM_UPDATE.error(err=error) from error
    yield from know_lag(call.js, stream)
    return stream_info(call.js, stream)


def info(call: ApiCall) -> Steps:
    """Return the info of one stream; on request, with its subjects and its deleted sequences."""
    given = call.read_optional(stream_requests.INFO_REQUEST)
    stream = yield from call.current_stream()
    subjects, deleted, total, offset = None, None, 0, 0
    if given.get("subjects_filter"):
        page = subjects_page(stream, given["subjects_filter"], given.get("offset", 0))
        subjects, total, offset = yield from page
    if given.get("deleted_details"):
        deleted = yield from deleted_details(stream)
    yield from know_lag(call.js, stream)
    state = stream_state(stream, subjects, deleted)
    out: JsonDict = {"total": total, "offset": offset, "limit": SUBJECTS_PAGE if total else 0}
    out |= stream_info(call.js, stream, state=state, cluster=True)
    return out


def names(call: ApiCall) -> JsonDict:
    """Return one page of stream names; the request may have an offset and a subject filter."""
    given = call.read_optional(stream_requests.NAMES_REQUEST)
    found = [config.name for config in _matching(call.js, given.get("subject", ""))]
    page, offset = page_of(found, given.get("offset", 0), NAMES_PAGE)
    return {"total": len(found), "offset": offset, "limit": NAMES_PAGE, "streams": page or None}


def list_streams(call: ApiCall) -> Steps:
    """Return one page of stream infos; the request may have an offset and a subject filter."""
    given = call.read_optional(stream_requests.LIST_REQUEST)
    found = _matching(call.js, given.get("subject", ""))
    page, offset = page_of(found, given.get("offset", 0), LIST_PAGE)
    infos: list[JsonDict] = []
    offline: dict[str, str] = {}
    for name in [config.name for config in page]:
        if name in call.js.offline:
            offline[name] = call.js.offline[name].reason
        elif name in call.js.streams:  # otherwise it was deleted between two steps
            stream = call.js.streams[name]
            yield from know_lag(call.js, stream)
            if stream.closed:
                continue
            infos.append(stream_info(call.js, stream, listed=True))
            if len(infos) % LIST_STEP == 0:
                yield None
    out: JsonDict = {"total": len(found), "offset": offset, "limit": LIST_PAGE, "streams": infos}
    return out | ({"missing": list(offline), "offline": offline} if offline else {})


def delete(call: ApiCall) -> Steps:
    """Delete a stream and its messages."""
    call.require_empty()
    try:
        yield from streams.delete(call.js, call.args[0])
    except StoreFailed as error:
        raise errcodes.STREAM_DELETE.error(err=error) from error
    return {"success": True}


def purge(call: ApiCall) -> Steps:
    """Purge messages of a stream; return the number of purged messages."""
    given = call.read_optional(stream_requests.PURGE_REQUEST)
    before_seq, keep = given.get("seq", 0), given.get("keep", 0)
    errcodes.BAD_REQUEST.raise_if(before_seq and keep)
    stream = call.stream()
    errcodes.STREAM_SEALED.raise_if(stream.config.sealed)
    errcodes.STREAM_PURGE_FAILED.raise_if(stream.config.deny_purge, err="stream purge not permitted")
    subjects = given.get("filter", "").encode()
    if subjects:
        yield from know_subjects(stream.store, stream.store.make_filter((subjects,)))
        stream = call.stream()  # look it up again: it may have been deleted between two steps
    try:
        purged = yield from purging.purge(call.js, stream, subjects, before_seq, keep)
    except StoreFailed as error:
        raise errcodes.STREAM_PURGE_FAILED.error(err=error) from error
    return {"success": True, "purged": purged}


def snapshot(call: ApiCall) -> Steps:
    """Begin to send an archive of a stream; return the configuration and the state of the stream."""
    # Imported lazily, since it takes 5 ms and most servers send no archive.
    from pyjs.jetstream.transfer.snapshot import Flow, Snapshot

    errcodes.BAD_REQUEST.raise_if(is_empty(call.body))
    stream = yield from call.current_stream()
    given = call.read(stream_requests.SNAPSHOT_REQUEST)
    deliver = given.get("deliver_subject", "").encode()
    if not is_valid_subject(deliver) or subject_has_wildcard(deliver):
        raise errcodes.SNAPSHOT_DELIVER_SUBJECT_INVALID.error()
    state = stream_state(stream)
    client = audit.client_of(call.js.account, call.js.shared, call.request)
    flow = Flow(deliver, given.get("chunk_size", 0), given.get("window_size", 0))
    Snapshot(call.js, stream, flow, state, not given.get("no_consumers", False), client).begin()
    return {"config": as_json(stream.config), "state": state}


def restore(call: ApiCall) -> Steps:
    """Begin to receive an archive of a stream; return the subject for its chunks."""
    # Imported lazily, since it takes 20 ms and most servers receive no archive.
    from pyjs.jetstream.transfer.restore import Restore

    errcodes.BAD_REQUEST.raise_if(is_empty(call.body))
    request = stream_requests.read_restore(call.body, call.args[0], call.js.options.strict)
    errcodes.STREAM_MISMATCH.raise_if(request.config.name != call.args[0])
    verdict = yield from streams.judge_subjects(call.js, request.config)
    config = request.config.with_required_level()
    config = streams.check(call.js, config, False, verdict)
    stream_rules.check_single_server(config)
    streams.check_limits(call.js, config)
    errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.raise_if(config.name in call.js.streams)
    client = audit.client_of(call.js.account, call.js.shared, call.request)
    return {"deliver_subject": Restore(call.js, config, client).begin()}


def _matching(js: JetStream, subject: str) -> list[StreamConfig]:
    """Return the configurations of all streams, offline ones included, that match `subject` ("": all), by name."""
    configs = [*(each.config for each in js.streams.values()), *(each.config for each in js.offline.values())]
    return [each for each in sorted(configs, key=lambda config: config.name) if matches(each, subject)]


def matches(config: StreamConfig, subject: str) -> bool:
    """Return whether a subject of the stream overlaps with `subject`; "" overlaps with every stream."""
    raw = subject.encode()
    return not subject or any(subjects_overlap(each.encode(), raw) for each in config.subjects)


def page_of(items: list[Any], offset: int, limit: int) -> tuple[list[Any], int]:
    """Return the page of `items` that begins at `offset`, and the offset after clamping."""
    offset = min(max(offset, 0), len(items))
    return items[offset : offset + limit], offset


_PAGE = {"total": 0, "offset": 0, "limit": 0}

ENDPOINTS = (
    Endpoint("STREAM.CREATE", create),
    Endpoint("STREAM.UPDATE", update),
    Endpoint("STREAM.INFO", info, on_error=_PAGE, changes=False),
    Endpoint("STREAM.NAMES", names, 0, 0, on_error={**_PAGE, "streams": None}, changes=False),
    Endpoint("STREAM.LIST", list_streams, 0, 0, on_error={**_PAGE, "streams": []}, changes=False),
    Endpoint("STREAM.DELETE", delete),
    Endpoint("STREAM.PURGE", purge, on_error={"purged": 0}, unsynced=errcodes.STREAM_PURGE_FAILED),
    Endpoint("STREAM.SNAPSHOT", snapshot, changes=False),
    Endpoint("STREAM.RESTORE", restore, on_error={"deliver_subject": ""}),
    Endpoint("STREAM.LEADER.STEPDOWN", needs_cluster),
    Endpoint("STREAM.PEER.REMOVE", needs_cluster, response="stream_remove_peer_response"),
    Endpoint("STREAM.PEER.EVACUATE", needs_cluster, response="stream_evacuate_peer_response"),
    Endpoint("STREAM.CANCEL_MOVE", needs_cluster, 1, ANY_ARGS),
)
