"""$JS.API.CONSUMER.*: create, update, report, pause, reset, unpin and delete consumers.

Pull requests are not handled here: each consumer subscribes to its own MSG.NEXT subject.

Source: nats.docs "JetStream wire API Reference"; order of checks, texts and extra fields probed on
nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bounds import INT64
from pyjs.base.gotext import ZERO_TIME, moment_text
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.endpoint import (
    ANY_ARGS,
    HEADERS,
    ApiCall,
    Counted,
    Endpoint,
    JsonDict,
    MaybeSteps,
    Steps,
    needs_cluster,
)
from pyjs.jetstream.config.consumer_requests import (
    OFFSET_REQUEST,
    PAUSE_REQUEST,
    RESET_REQUEST,
    UNPIN_REQUEST,
    CreateRequest,
    read_create,
)
from pyjs.jetstream.config.declared import changed
from pyjs.jetstream.config.json_strict import JsonFault, decode, parse_time_ns
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.info import consumer_info
from pyjs.jetstream.manage import consumers
from pyjs.jetstream.manage.engine import consumer_gate
from pyjs.jetstream.manage.stream_info import know_subjects
from pyjs.jetstream.names import identity
from pyjs.jetstream.rules.consumer import search_filters
from pyjs.jetstream.stream.features.headers import value_of, value_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES_PAGE = 1024
LIST_PAGE = 256
IDENTITY = b"Nats-Stream-Identity"
LIST_STEP = 16  # number of consumers reported in one turn: half a millisecond


def create(call: ApiCall) -> Steps:
    """Create or update a consumer. The subject ends with CREATE.<stream>[.<consumer>[.<filter>]]."""
    request = read_create(call.body, call.js.options.strict)
    name = call.args[1] if len(call.args) > 1 else request.config.name
    _check_names(call, request, name)
    config = request.config
    if len(call.args) == 1:
        errcodes.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME.raise_if(config.durable_name)
        return (yield from _alone(call, request))
    if config.durable_name and config.durable_name != name:
        raise errcodes.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.error()
    subject_filter = ".".join(call.args[2:])
    errcodes.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED.raise_if(subject_filter and config.filter_subjects)
    if subject_filter and config.filter_subject != subject_filter:
        raise errcodes.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH.error()
    return (yield from _alone(call, request._replace(config=changed(config, name=name))))


def create_durable(call: ApiCall) -> Steps:
    """Create or update a durable consumer. The subject ends with DURABLE.CREATE.<stream>.<consumer>."""
    request = read_create(call.body, call.js.options.strict)
    name = call.args[1]
    _check_names(call, request, name)
    errcodes.CONSUMER_DURABLE_NAME_NOT_SET.raise_if(not request.config.durable_name)
    errcodes.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.raise_if(request.config.durable_name != name)
    return (yield from _alone(call, request._replace(config=changed(request.config, name=name))))


def info(call: ApiCall) -> JsonDict | Steps:
    """Return the info of one consumer."""
    call.require_empty()
    if call.is_replicated or not _consumer(call).cursor.count_some():
        return _info_steps(call)
    return _report(call, _consumer(call))


def _info_steps(call: ApiCall) -> Steps:
    stream = yield from call.current_stream()
    yield from consumers.count_pending(call.js, stream, _consumer(call))
    return _report(call, _consumer(call))


def names(call: ApiCall) -> JsonDict | Steps:
    """Return the names of a stream's consumers, one page per request."""

    def page() -> JsonDict:
        found, offset = _page(call)
        shown = found[offset : offset + NAMES_PAGE]
        return {"total": len(found), "offset": offset, "limit": NAMES_PAGE, "consumers": shown}

    return _when_current(call, page)


def _when_current(call: ApiCall, report: Callable[[], JsonDict]) -> JsonDict | Steps:
    """Return the result of `report`.

    For a replicated stream, return steps that first apply all entries that were committed before the request.
    """
    if not call.is_replicated:
        return report()

    def steps() -> Steps:
        yield from call.current_stream()
        return report()

    return steps()


def list_consumers(call: ApiCall) -> Steps:
    """Return the infos of a stream's consumers, one page per request."""
    yield from call.current_stream()
    found, offset = _page(call)
    page: list[JsonDict] = []
    everyone = call.stream().consumers
    for name in found[offset : offset + LIST_PAGE]:
        consumer = everyone.get(name)
        if isinstance(consumer, Consumer):
            yield from consumers.count_pending(call.js, call.stream(), consumer)
        if (
            isinstance(consumer, Consumer) and not consumer.closed
        ):  # otherwise it was deleted between two steps
            page.append(_report(call, consumer, listed=True))
        if len(page) % LIST_STEP == 0:
            yield None
    return {"total": len(found), "offset": offset, "limit": LIST_PAGE, "consumers": page}


def delete(call: ApiCall) -> Steps:
    """Delete a consumer."""
    call.require_empty()
    stream = call.stream()
    yield from consumers.delete(call.js, stream, _consumer(call))
    return {"success": True}


def pause(call: ApiCall) -> Steps:
    """Pause deliveries until a given time, or resume them."""
    text = call.read_optional(PAUSE_REQUEST).get("pause_until", ZERO_TIME)
    until_ns = None if text == ZERO_TIME else parse_time_ns(text)
    consumer = _consumer(call)
    yield from consumers.pause(call.js, call.stream(), consumer, until_ns)
    now_ns = call.js.shared.clock.now_ns()
    if until_ns is None:
        return dict(_NOT_PAUSED)
    out: JsonDict = {"paused": until_ns > now_ns, "pause_until": moment_text(until_ns)}
    if until_ns > now_ns:
        out["pause_remaining"] = INT64.clamp(until_ns - now_ns)
    return out


def unpin(call: ApiCall) -> JsonDict:
    """Unpin the pinned client of a priority group."""
    errcodes.INVALID_JSON.raise_if(not call.body.strip(), err="unexpected end of JSON input")
    try:
        given = decode(call.body, UNPIN_REQUEST, strict=False)
    except JsonFault as fault:
        raise errcodes.INVALID_JSON.error(err=fault.lenient_text()) from None
    group = given.get("group")
    if not group:
        raise errcodes.INVALID_JSON.error(err="consumer group not specified")
    consumer = _consumer(call)
    errcodes.CONSUMER_INVALID_PRIORITY_GROUP.raise_if(group not in consumer.config.priority_groups)
    consumer.unpin(group, "admin")
    return {}


def reset(call: ApiCall) -> MaybeSteps:
    """Reset a consumer to a sequence. If there is no such consumer, return None, and no answer is sent."""
    stream = call.js.streams.get(call.args[0])
    consumer = None if stream is None else stream.consumers.get(call.args[1])
    if stream is None or consumer is None:
        return None
    if not isinstance(consumer, Consumer):
        raise consumers.not_open(consumer)
    wanted = 0
    if call.body:
        errcodes.INVALID_JSON.raise_if(not call.body.strip(), err="unexpected end of JSON input")
        try:
            wanted = decode(call.body, RESET_REQUEST, strict=False).get("seq", 0)
        except JsonFault as fault:
            raise errcodes.INVALID_JSON.error(err=fault.lenient_text()) from None
    seq = consumers.reset(consumer, wanted)
    at_once = consumer.cursor.count_some()
    answer = _report(call, consumer) if at_once else {}
    yield from consumers.keep_reset(call.js, stream, consumer)
    if not at_once:  # nothing may be delivered between a reset and its snapshot, so the count must wait
        yield from consumers.count_pending(call.js, stream, consumer)
        answer = _report(call, consumer)
    answer["reset_seq"] = seq
    return (
        answer if value_or_none(call.request.headers, IDENTITY) is None else answer | _identity_header(call)
    )


def _report(call: ApiCall, consumer: Consumer, *, listed: bool = False) -> JsonDict:
    """Return the info of a consumer; in a cluster, it has the additional field `cluster`."""
    js = call.js
    cluster = None if js.shared.member is None else js.shared.member.reports.consumer(js, consumer)
    return consumer_info(consumer, js.shared.clock.now_ns(), listed=listed, cluster=cluster)


def _check_names(call: ApiCall, request: CreateRequest, name: str) -> None:
    errcodes.STREAM_MISMATCH.raise_if(request.stream_name != call.args[0])
    errcodes.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS.raise_if("/" in name or "\\" in name)


def _alone(call: ApiCall, request: CreateRequest) -> Steps:
    """Create or update a consumer with exclusive access to its name, or create one with a generated name."""
    name = request.config.durable_name or request.config.name
    if not name:
        return (yield from _answer(call, request))
    gate = consumer_gate(call.args[0], name)
    return (yield from call.js.gates.within(gate, True, lambda: _answer(call, request)))


def _answer(call: ApiCall, request: CreateRequest) -> Steps:
    stream = call.js.streams.get(call.args[0])
    if stream is not None:
        subjects = [subject.encode() for subject in request.config.filters]
        yield from know_subjects(stream.store, stream.store.make_filter(subjects))
    alone = stream is None or stream.replica is None
    errcodes.STREAM_REPLICAS_NOT_SUPPORTED.raise_if(alone and request.config.num_replicas > 1)
    covered = yield from search_filters(request.config)
    sources = request.config.direct or request.config.sourcing
    if sources:
        _check_identity(call)
    consumer = yield from consumers.create_or_update(call.js, call.stream(), request, covered)
    yield from consumers.count_pending(call.js, call.stream(), consumer)
    answer = _report(call, consumer)
    return answer | _identity_header(call) if sources else answer


def _check_identity(call: ApiCall) -> None:
    """Check that the stream is the one that another server expects, by the identity in the request's headers.

    Raises:
        ApiError: the request expects an earlier stream of this name.
    """
    expected, actual = value_of(call.request.headers, IDENTITY), identity(call.stream().created_ns)
    if expected and expected != actual:
        raise errcodes.CONSUMER_STREAM_IDENTITY_MISMATCH.error(msg=actual.decode())


def _identity_header(call: ApiCall) -> JsonDict:
    """Return the response field HEADERS with a header block that has the identity of the stream."""
    return {HEADERS: b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, identity(call.stream().created_ns))}


def _consumer(call: ApiCall) -> Consumer:
    consumer = call.stream().consumers.get(call.args[1])
    if consumer is None:
        raise errcodes.CONSUMER_NOT_FOUND.error()
    if not isinstance(consumer, Consumer):
        raise consumers.not_open(consumer)
    return consumer


def _page(call: ApiCall) -> tuple[list[str], int]:
    """Return the names of all listed consumers, and the requested offset after clamping."""
    offset = call.read_optional(OFFSET_REQUEST).get("offset", 0)
    names = call.stream().listing
    return names, min(max(offset, 0), len(names))


_EMPTY_PAGE: JsonDict = {"total": 0, "offset": 0, "limit": 0, "consumers": []}
_NOT_PAUSED: JsonDict = {"paused": False, "pause_until": ZERO_TIME}

ENDPOINTS = (
    Endpoint("CONSUMER.CREATE", create, 1, ANY_ARGS, beside=True),
    Endpoint(
        "CONSUMER.DURABLE.CREATE", create_durable, 2, 2, beside=True, response="consumer_create_response"
    ),
    Endpoint("CONSUMER.INFO", info, 2, 2, changes=False, of_consumer=True),
    Endpoint("CONSUMER.NAMES", names, on_error=_EMPTY_PAGE, changes=False),
    Endpoint("CONSUMER.LIST", list_consumers, on_error=_EMPTY_PAGE, changes=False),
    Endpoint("CONSUMER.DELETE", delete, 2, 2, of_consumer=True),
    Endpoint("CONSUMER.PAUSE", pause, 2, 2, on_error=_NOT_PAUSED, of_consumer=True),
    Endpoint("CONSUMER.UNPIN", unpin, 2, 2, of_consumer=True),
    Endpoint(  # on nats-server, the consumer itself answers, so the request is not counted
        "CONSUMER.RESET",
        reset,
        2,
        2,
        on_error={"reset_seq": 0},
        counted=Counted.NONE,
        of_consumer=True,
    ),
    Endpoint("CONSUMER.LEADER.STEPDOWN", needs_cluster, 2, 2),
)
