"""The list of streams, and one stream with its state, its replicas and the reasons for its level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.manage.stream_info import inflow_report, know_lag, stream_state
from pyjs.jetstream.why.streams import why_stream
from pyjs.monitor.dashboard.levels import stream_level
from pyjs.monitor.dashboard.lists import page_of, wanted_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.lists import Wanted
    from pyjs.monitor.dashboard.site import Fields, Site, Steps
    from pyjs.monitor.dashboard.survey import StreamRow

SUBJECTS_MAX = 3  # subjects of a stream in a list
SUBJECTS_COST = 8  # subjects that are searched in the time of one row
SORTS: dict[str, Callable[[StreamRow], Any]] = {
    "name": lambda row: (row.name, row.account),
    "msgs": lambda row: row.msgs,
    "bytes": lambda row: row.size,
    "rate": lambda row: row.rate,
    "consumers": lambda row: row.num_consumers,
    "pending": lambda row: row.num_pending,
    "level": lambda row: (row.level, row.num_pending),
}


def streams(site: Site, arguments: Arguments) -> Steps:
    """Return a page of the list of streams; yield between steps.

    The argument `replicated=true` selects the replicated streams, and adds their replicas.
    """
    wanted = wanted_by(arguments, SORTS, "name")
    replicated = arguments.flag("replicated")
    snapshot = yield from site.survey.fresh()
    rows, total = yield from page_of(
        snapshot.streams,
        wanted,
        SORTS[wanted.sort],
        lambda row: _matches(site, row, wanted, replicated),
        lambda row: 1 + _num_subjects(site, row) // SUBJECTS_COST if wanted.search else 1,
    )
    shown = [_row(site, row, replicated) for row in rows]
    return {**wanted.fields(total), "of": len(snapshot.streams), "streams": shown}


def _num_subjects(site: Site, row: StreamRow) -> int:
    found = site.stream(row.account, row.name)
    return 0 if found is None else len(found[1].config.subjects or ())


def _matches(site: Site, row: StreamRow, wanted: Wanted, replicated: bool) -> bool:
    found = site.stream(row.account, row.name)
    if replicated and (found is None or found[1].config.num_replicas < 2):
        return False
    if wanted.search in row.name.lower() or wanted.search in row.account.lower():
        return True
    subjects = () if found is None else found[1].config.subjects
    return any(wanted.search in subject.lower() for subject in subjects or ())


def _row(site: Site, row: StreamRow, replicated: bool) -> Fields:
    """Return `row` as JSON, with the current numbers of the stream if it is open on this server."""
    fields: Fields = {
        "account": row.account,
        "name": row.name,
        "msgs": row.msgs,
        "bytes": row.size,
        "consumers": row.num_consumers,
        "pending": row.num_pending,
        "ack_pending": row.num_ack_pending,
        "rate": row.rate,
        "level": row.level.name.lower(),
        "kind": row.kind,
    }
    found = site.stream(row.account, row.name)
    if found is None:
        return fields
    js, stream = found
    config = stream.config
    subjects = config.subjects or ()
    fields |= {
        "msgs": stream.store.msgs,
        "bytes": stream.store.bytes,
        "consumers": len(stream.consumers),
        "subjects": list(subjects[:SUBJECTS_MAX]),
        "num_subjects": len(subjects),
        "storage": config.storage,
        "replicas": config.num_replicas,
    }
    return fields | ({"cluster": cluster_of(js, stream)} if replicated else {})


def cluster_of(js: JetStream, stream: Stream) -> Fields:
    """Return the leader and the replicas of a stream, as this server sees them; {} without a cluster."""
    member = js.shared.member
    return {} if member is None else member.reports.stream(js, stream)


def stream_view(site: Site, arguments: Arguments) -> Steps:
    """Return the state of one stream, its limits, and the reasons for its level.

    Raises:
        BadArgument: the stream is not open on this server.
    """
    js, stream = site.stream_in(arguments)
    reasons = why_stream(js, stream)
    level, _ = stream_level(reasons)
    yield
    yield from know_lag(js, stream)
    return {
        "at": site.clock.now_ns(),
        "account": js.account.name,
        "name": stream.name,
        "level": level.name.lower(),
        "reasons": [reason.as_json() for reason in reasons],
        "state": stream_state(stream),
        "storage": stream.config.storage,
        "retention": stream.config.retention,
        "max_msgs": stream.config.max_msgs,
        "max_bytes": stream.config.max_bytes,
        "cluster": cluster_of(js, stream),
        **inflow_report(js, stream),
    }


def config_view(site: Site, arguments: Arguments) -> Steps:
    """Return the configuration of the stream or, if the request names a consumer, of the consumer.

    Raises:
        BadArgument: the stream or the consumer is not open on this server.
    """
    yield
    if arguments.text("consumer"):
        return {"config": as_json(site.consumer_in(arguments)[2].config)}
    return {"config": as_json(site.stream_in(arguments)[1].config)}
