"""$JS.API.PYJS.WHY.<stream>[.<consumer>]: why a stream refuses publishes, or a consumer delivers nothing.

This is an extension of pyjs-server: nats-server does not answer these subjects. docs/why.md lists the reasons. The
modules that compose reports are imported by the first request, so that an idle server needs less memory.
"""

from __future__ import annotations

from pyjs.core.auth.identity import Sender
from pyjs.core.session import ClientSession
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.endpoint import ApiCall, Counted, Endpoint, JsonDict, Steps
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.manage.consumers import not_open

TYPE_PREFIX = "io.pyjs.api.v1."


def why(call: ApiCall) -> Steps:
    """Return, in steps, the report about a stream or one of its consumers."""
    from pyjs.jetstream.why.report import consumer_report, stream_report

    call.require_empty()
    stream = yield from call.current_stream()
    is_own = _is_own(call)
    if len(call.args) == 1:
        return (yield from stream_report(call.js, stream, shows_clients=is_own))
    consumer = stream.consumers.get(call.args[1])
    if consumer is None:
        raise errcodes.CONSUMER_NOT_FOUND.error()
    if not isinstance(consumer, Consumer):
        raise not_open(consumer)
    report = yield from consumer_report(call.js, stream, consumer, shows_clients=is_own)
    if report is None:
        raise errcodes.CONSUMER_NOT_FOUND.error()
    return report


def leaderless(call: ApiCall, views: list[JsonDict]) -> JsonDict:
    """Return the report about a stream without a leader, or about one of its consumers."""
    from pyjs.jetstream.why.leaderless import leaderless_report

    consumer = call.args[1] if len(call.args) > 1 else ""
    account = {"account": call.js.account.name} if _is_own(call) else {}
    return account | leaderless_report(call.js, call.args[0], consumer, views)


def _is_own(call: ApiCall) -> bool:
    """Return whether the client belongs to the stream's account, and does not use an import of another account."""
    asks, account = call.request.session, call.js.account
    if isinstance(asks, ClientSession):
        return asks.account is account
    return isinstance(asks, Sender) and asks.fields.get("acc") == account.name


ENDPOINTS = (
    Endpoint(
        "PYJS.WHY",
        why,
        max_args=2,
        type_prefix=TYPE_PREFIX,
        response="why_response",
        changes=False,
        counted=Counted.ERRORS,
        leaderless=leaderless,
    ),
)
