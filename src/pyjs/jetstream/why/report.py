"""Reports for the API and for /whyz: a stream or a consumer, with its reasons as data and as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.why.consumers import why_consumer
from pyjs.jetstream.why.reasons import Kind
from pyjs.jetstream.why.streams import why_stream

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.why.reasons import Reason

    Fields = dict[str, Any]

CONSUMERS_MAX = 256  # maximum number of consumers in the report of a stream
CONSUMERS_STEP = 16  # consumers examined between two yields, in about half a millisecond
MANY_REQUESTS = 256
# A consumer that delivers nothing for one of these reasons has no problem.
QUIET = frozenset((Kind.UP_TO_DATE, Kind.STREAM_EMPTY))


def stream_report(
    js: JetStream, stream: Stream, *, shows_clients: bool = True
) -> Generator[None, None, Fields]:
    """Return the report about a stream and about those of its consumers that deliver nothing; yield between steps."""
    reasons, store = why_stream(js, stream), stream.store
    silent: list[dict[str, Any]] = []
    for at, consumer in enumerate(list(stream.consumers.values())):
        if at % CONSUMERS_STEP == CONSUMERS_STEP - 1 or is_busy(consumer):
            yield
        if not isinstance(consumer, Consumer) or len(silent) == CONSUMERS_MAX:
            continue  # the report is full, or only the leader on another server has the consumer open
        found = yield from why_consumer(consumer, js.account.turn.now, shows_clients=shows_clients)
        if found and stops(found) and found[0].kind not in QUIET:
            silent.append({"consumer": consumer.name, "kind": found[0].kind.value, "text": found[0].text})
    return {
        **({"account": js.account.name} if shows_clients else {}),
        "stream": stream.name,
        "accepts": not stops(reasons),
        "reasons": [reason.as_json() for reason in reasons],
        "messages": store.msgs,
        "bytes": store.bytes,
        "num_consumers": len(stream.consumers),
        "silent_consumers": silent,
        "ts": time_text(js.shared.clock.wall_ns()),
    }


def consumer_report(
    js: JetStream, stream: Stream, consumer: Consumer, *, shows_clients: bool = True
) -> Generator[None, None, Fields | None]:
    """Return the report about a consumer, or None if it was deleted meanwhile; yield between steps."""
    reasons = yield from why_consumer(consumer, js.account.turn.now, shows_clients=shows_clients)
    if reasons is None:
        return None
    requests = consumer.requests
    return {
        **({"account": js.account.name} if shows_clients else {}),
        "stream": stream.name,
        "consumer": consumer.name,
        "delivers": not stops(reasons),
        "reasons": [reason.as_json() for reason in reasons],
        "num_pending": consumer.cursor.num_pending(),
        "num_ack_pending": consumer.acks.pending.count,
        "num_waiting": 0 if requests is None else requests.queue.count,
        "ts": time_text(js.shared.clock.wall_ns()),
    }


def is_busy(consumer: object) -> bool:
    """Return whether a consumer has so many waiting requests that examining them takes noticeable time."""
    requests = consumer.requests if isinstance(consumer, Consumer) else None
    return requests is not None and requests.queue.count >= MANY_REQUESTS


def stops(reasons: list[Reason]) -> bool:
    """Return whether any of the reasons stops all deliveries, or all publishes."""
    return any(reason.stops for reason in reasons)
