"""The list of consumers, and one consumer with the reasons for its state, its receivers and its open deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyjs.base.gotext import time_text
from pyjs.jetstream.consumer.info import consumer_info
from pyjs.jetstream.why.consumers import NEVER_NS, why_consumer
from pyjs.jetstream.why.receivers import holders_of
from pyjs.jetstream.why.report import is_busy
from pyjs.monitor.arguments import BadArgument
from pyjs.monitor.dashboard.levels import consumer_level
from pyjs.monitor.dashboard.lists import page_of, wanted_by
from pyjs.monitor.own.consumer_reading import is_searched, prepare
from pyjs.monitor.own.samples import ages_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Fields, Site, Steps
    from pyjs.monitor.dashboard.survey import ConsumerRow

STEP = 16  # consumers read between two yields: about half a millisecond
ROWS = 100  # deliveries without an acknowledgement in an answer, unless requested otherwise
ROWS_MAX = 1_000
FILTERS_MAX = 3  # filter subjects of a consumer in a list
# The states of a delivery without an acknowledgement, by their numbers in consumer/acks/pending.pxd.
STATES = {1: "to be redelivered", 2: "given up", 3: "nak with delay", 4: "waits for ack"}
SORTS: dict[str, Callable[[ConsumerRow], Any]] = {
    "name": lambda row: (row.name, row.stream, row.account),
    "stream": lambda row: (row.stream, row.name, row.account),
    "pending": lambda row: row.num_pending,
    "ack_pending": lambda row: row.num_ack_pending,
    "redelivered": lambda row: row.num_redelivered,
    "rate": lambda row: row.rate,
    "level": lambda row: (row.level, row.num_pending, row.num_ack_pending),
}


def consumers(site: Site, arguments: Arguments) -> Steps:
    """Return a page of the consumers of all streams, or of the stream that `acc` and `stream` name."""
    wanted = wanted_by(arguments, SORTS, "-level")
    account, stream = arguments.text("acc"), arguments.text("stream")

    def matches(row: ConsumerRow) -> bool:
        if stream and (row.stream != stream or row.account != account):
            return False
        return any(wanted.search in each.lower() for each in (row.name, row.stream, row.account))

    snapshot = yield from site.survey.fresh()
    rows, total = yield from page_of(snapshot.consumers, wanted, SORTS[wanted.sort], matches)
    shown: list[Fields] = []
    for at, row in enumerate(rows):
        if at % STEP == STEP - 1:
            yield
        shown.append((yield from consumer_row(site, row)))
    return {**wanted.fields(total), "of": len(snapshot.consumers), "consumers": shown}


def consumer_row(site: Site, row: ConsumerRow) -> Steps:
    """Return the fields of `row` for a JSON object; yield between steps.

    If the consumer is open on this server, its current numbers, level and reason replace those of the row.
    """
    fields: Fields = {"account": row.account, "stream": row.stream, "name": row.name, "rate": row.rate}
    numbers = {"pending": row.num_pending, "ack_pending": row.num_ack_pending}
    level, kind, text = row.level, row.kind, ""
    found = site.consumer(row.account, row.stream, row.name)
    if found is not None:
        js, _, consumer = found
        yield from _ready(consumer)
        reasons = yield from why_consumer(consumer, js.account.turn.now)
        if reasons is not None:
            level, reason = consumer_level(reasons)
            kind, text = (reason.kind.value, reason.text) if reason else ("", "")
            numbers = _numbers(consumer, js.account.turn.now)
    return {**fields, **numbers, "level": level.name.lower(), "kind": kind, "text": text}


def _ready(consumer: Consumer) -> Generator[None, None, None]:
    """Yield if the next read of the consumer needs a step of its own; first prepare the read if it is a search."""
    if is_searched(consumer):
        yield from prepare(consumer)
        yield
    elif is_busy(consumer):
        yield


def _numbers(consumer: Consumer, now_ns: int) -> Fields:
    lag_ns, unacked_ns = ages_ns(consumer, now_ns)
    config, requests = consumer.config, consumer.requests
    return {
        "pending": consumer.cursor.num_pending(),
        "ack_pending": consumer.acks.pending.count,
        "redelivered": consumer.acks.pending.redelivered + len(consumer.acks.exhausted),
        "waiting": 0 if requests is None else requests.queue.count,
        "lag_ns": lag_ns,
        "unacked_ns": unacked_ns,
        "push": consumer.push is not None,
        "durable": bool(config.durable_name),
        "filters": list(config.filters[:FILTERS_MAX]),
        "num_filters": len(config.filters),
    }


def consumer_view(site: Site, arguments: Arguments) -> Steps:
    """Return the details of one consumer; `rows` limits the list of its unacknowledged deliveries.

    Raises:
        BadArgument: an argument is invalid, or the consumer is not open on this server or was deleted meanwhile.
    """
    js, _, consumer = site.consumer_in(arguments)
    rows = arguments.integer("rows") or ROWS
    if not 0 < rows <= ROWS_MAX:
        raise BadArgument(f"rows={rows}: use 1 to {ROWS_MAX}")
    yield from _ready(consumer)
    reasons = yield from why_consumer(consumer, js.account.turn.now)
    if reasons is None:
        raise BadArgument("the consumer was deleted")
    level, _ = consumer_level(reasons)
    member, now_ns = js.shared.member, site.clock.now_ns()
    holders = holders_of(consumer, is_shown=True)
    return {
        "at": now_ns,
        "level": level.name.lower(),
        "reasons": [reason.as_json() for reason in reasons],
        "account": js.account.name,
        **_numbers(consumer, js.account.turn.now),
        "info": consumer_info(
            consumer,
            now_ns,
            listed=True,
            config=False,
            cluster=None if member is None else member.reports.consumer(js, consumer),
        ),
        "receivers": holders.fields("clients")["clients"],
        "receivers_elsewhere": holders.elsewhere,
        "deliveries": _deliveries(consumer, rows, js.account.turn.now),
    }


def _deliveries(consumer: Consumer, limit: int, now_ns: int) -> list[Fields]:
    """Return the first unacknowledged deliveries of the consumer, at most `limit`."""
    skew = consumer.turn.skew
    return [
        {
            "seq": seq,
            "consumer_seq": consumer_seq,
            "deliveries": deliveries,
            "delivered": time_text(sent_ns + skew),
            "age_ns": max(now_ns - sent_ns, 0),
            "due_ns": max(due_ns - now_ns, 0) if 0 < due_ns - now_ns < NEVER_NS else 0,
            "state": STATES.get(where, ""),
        }
        for seq, consumer_seq, sent_ns, deliveries, where, due_ns in consumer.acks.pending.first(limit)
    ]
