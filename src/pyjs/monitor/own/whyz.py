"""/whyz: streams that refuse publishes, consumers that deliver nothing, and disconnected clients, with the reasons.

The arguments `acc`, `stream` and `consumer` restrict the report. With `all=true` it also includes streams and
consumers without a problem. The API gives the same answer about one stream or consumer (jetstream/api/why.py).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import quoted, time_text
from pyjs.core.link import shown_reason
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.why.report import consumer_report, stream_report
from pyjs.jetstream.why.streams import why_away, why_stream
from pyjs.monitor.arguments import BadArgument
from pyjs.monitor.own.disconnects import meaning

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.core.closed import ClosedSession
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.server import JetStreamServer
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.state import Monitored

    Fields = dict[str, Any]
    Steps = Generator[None, None, Fields]

LIMIT = 256  # maximum number of streams in one answer; the next request continues with `offset`
CLIENTS_MAX = 64  # maximum number of disconnected clients; the newest are first
STEP = 8  # streams examined between two yields


class Wanted(NamedTuple):
    """The streams and consumers that a request selects, and the requested page."""

    account: str
    stream: str
    consumer: str
    all: bool  # include streams and consumers without a problem
    offset: int
    limit: int


def wanted_by(arguments: Arguments) -> Wanted:
    """Return the selection of a request.

    Raises:
        BadArgument: an argument is invalid, or names a consumer without its stream.
    """
    account, stream, consumer = (arguments.text(name) for name in ("acc", "stream", "consumer"))
    if consumer and not stream:
        raise BadArgument("consumer without stream: add stream=<name>")
    offset, limit = arguments.integer("offset"), arguments.integer("limit")
    return Wanted(
        account, stream, consumer, arguments.flag("all"), max(offset, 0), limit if limit > 0 else LIMIT
    )


def whyz(monitored: Monitored, wanted: Wanted, now_ns: int) -> Steps:
    """Return the body of /whyz; yield between steps.

    Raises:
        BadArgument: there is no report about the selection; the message states the reason.
    """
    head: Fields = {"server_id": monitored.node.server_id, "now": time_text(now_ns)}
    jetstream = monitored.node.jetstream
    if jetstream is None:
        if wanted.stream:
            raise BadArgument(
                "JetStream is not enabled on this server: start it with -js or a jetstream block"
            )
        return head | {"streams": [], "clients": (yield from _clients(monitored, wanted))}
    _check_account(monitored, jetstream, wanted)
    chosen = [js for name, js in jetstream.accounts.items() if wanted.account in ("", name)]
    if wanted.stream:
        return head | (yield from _one(chosen, wanted))
    streams, total = yield from _streams(chosen, wanted)
    page = {"total": total, "offset": wanted.offset, "limit": wanted.limit, "streams": streams}
    return head | page | {"clients": (yield from _clients(monitored, wanted))}


def _check_account(monitored: Monitored, jetstream: JetStreamServer, wanted: Wanted) -> None:
    """Raise BadArgument for an account that does not exist, or for a stream of an account without JetStream."""
    name = wanted.account
    if not name or name in jetstream.accounts:
        return
    if name not in monitored.node.accounts:
        raise BadArgument(f"there is no account {quoted(name)} on this server")
    if wanted.stream:
        raise BadArgument(f"account {quoted(name)} has no JetStream on this server")


def _one(chosen: list[JetStream], wanted: Wanted) -> Steps:
    """Return the report about the selected stream or consumer; yield between steps.

    Raises:
        BadArgument: there is no such report; the message states the reason.
    """
    for js in chosen:
        stream = js.streams.get(wanted.stream)
        if stream is None:
            away = _away_report(js, wanted.stream)
            if away["reasons"]:
                return away
            continue
        if not wanted.consumer:
            return (yield from stream_report(js, stream))
        consumer = stream.consumers.get(wanted.consumer)
        if isinstance(consumer, Consumer):
            report = yield from consumer_report(js, stream, consumer)
            if report is None:
                raise BadArgument(f"consumer {quoted(wanted.consumer)} was deleted")
            return report
        if consumer is not None and (causes := why_stream(js, stream)):
            named = {"account": js.account.name, "stream": stream.name, "consumer": wanted.consumer}
            return {**named, "reasons": [cause.as_json() for cause in causes]}
        if consumer is not None:
            raise BadArgument(
                f"consumer {quoted(wanted.consumer)} is open on the server that leads its stream: ask there"
            )
        raise BadArgument(f"stream {quoted(wanted.stream)} has no consumer {quoted(wanted.consumer)}")
    raise BadArgument(f"there is no stream {quoted(wanted.stream)} on this server")


def _away_report(js: JetStream, name: str) -> Fields:
    """Return the report about a stream that is not open on this server; an unknown stream has no `reasons`."""
    reasons = [reason.as_json() for reason in why_away(js, name)]
    return {"account": js.account.name, "stream": name, "accepts": False, "reasons": reasons}


def _streams(chosen: list[JetStream], wanted: Wanted) -> Generator[None, None, tuple[list[Any], int]]:
    """Return the page of the selected streams, and the number of all selected streams; yield between steps."""
    found: list[dict[str, Any]] = []
    total = 0
    for js in chosen:
        for at, name in enumerate(sorted({*js.streams, *js.offline, *js.unrecovered()})):
            if at % STEP == STEP - 1:
                yield
            stream = js.streams.get(name)
            row = _away_report(js, name) if stream is None else (yield from stream_report(js, stream))
            if wanted.all or row["reasons"] or row.get("silent_consumers"):
                total += 1
                if wanted.offset < total <= wanted.offset + wanted.limit:
                    found.append(row)
    return found, total


def _clients(monitored: Monitored, wanted: Wanted) -> Generator[None, None, list[Any]]:
    """Return recently closed clients, newest first; yield between steps.

    Unless `wanted.all` is set, clients that closed the connection themselves are left out.
    """
    newest: deque[ClosedSession] = deque(maxlen=CLIENTS_MAX)
    for part in monitored.node.closed.parts():
        newest.extend(
            each
            for each in part
            if (wanted.all or each.closed_reason != "Client Closed")
            and wanted.account in ("", each.account.name)
        )
        yield
    return [_client(each) for each in reversed(newest)]


def _client(closed: ClosedSession) -> Fields:
    return {
        "cid": closed.cid,
        "name": closed.options.name,
        "ip": closed.peer.ip,
        "port": closed.peer.port,
        "account": closed.account.name,
        "stop": time_text(closed.closed_at_ns),
        "reason": shown_reason(closed.closed_reason),
        "text": meaning(closed.closed_reason),
    }
