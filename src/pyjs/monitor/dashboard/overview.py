"""The overview: traffic, memory, storage, connections, the cluster, and the assets that need attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs import __version__
from pyjs.base.gotext import time_text, uptime_text
from pyjs.jetstream.why.streams import why_away, why_stream
from pyjs.monitor.dashboard.consumers import consumer_row
from pyjs.monitor.dashboard.levels import Level, stream_level
from pyjs.monitor.dashboard.lists import STEP
from pyjs.monitor.dashboard.messages import is_allowed
from pyjs.monitor.jsz import jetstream_config, jetstream_stats

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Fields, Site, Steps
    from pyjs.monitor.dashboard.survey import Snapshot, StreamRow

ATTENTION_MAX = 8  # streams, and consumers, that need attention


def overview(site: Site, arguments: Arguments) -> Steps:
    """Return the overview; yield between steps.

    The field `at` is the time of the counters, in ns since the epoch.
    """
    snapshot = yield from site.survey.fresh()
    monitored, now_ns = site.monitored, site.clock.now_ns()
    node = monitored.node
    return {
        "server": server_fields(site),
        "at": snapshot.at_ns,
        "now": time_text(now_ns),
        "uptime": uptime_text(now_ns - node.started_at_ns),
        **snapshot.traffic._asdict(),
        "connections": snapshot.num_connections,
        "connections_max": monitored.options.limits.max_connections,
        "total_connections": node.total_connections,
        "subscriptions": sum(map(monitored.num_subscriptions, node.accounts.values())),
        "slow_consumers": node.slow_consumers,
        "output_pending": snapshot.pending_size,
        "mem": monitored.process.memory_size(),
        "cpu": monitored.process.cpu_percent(now_ns),
        "routes": 0 if node.cluster is None else len(node.cluster.routes),
        "jetstream": (yield from _jetstream(site, snapshot)),
        "attention": (yield from _attention(site, snapshot)),
    }


def server_fields(site: Site) -> Fields:
    """Return the fields that every view has: the identity of the server, and which parts are on."""
    node = site.monitored.node
    return {
        "name": node.server_name,
        "id": node.server_id,
        "version": __version__,
        "cluster": "" if node.cluster is None else node.cluster.options.name,
        "jetstream": node.jetstream is not None,
        "messages": is_allowed(site),
    }


def _jetstream(site: Site, snapshot: Snapshot) -> Generator[None, None, Fields | None]:
    if site.monitored.node.jetstream is None:
        return None
    totals = [0, 0, 0, 0]
    for start in range(0, len(snapshot.streams), STEP):
        for row in snapshot.streams[start : start + STEP]:
            numbers = row.msgs, row.last_seq, row.num_pending, row.num_ack_pending
            totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        yield
    levels: dict[str, int] = dict.fromkeys((level.name.lower() for level in Level), 0)
    for start in range(0, len(snapshot.consumers), STEP):
        for each in snapshot.consumers[start : start + STEP]:
            levels[each.level.name.lower()] += 1
        yield
    return {
        "config": jetstream_config(site.monitored),
        **jetstream_stats(site.monitored),
        "streams": len(snapshot.streams),
        "consumers": len(snapshot.consumers),
        "msgs": totals[0],
        "stored": totals[1],
        "pending": totals[2],
        "ack_pending": totals[3],
        "levels": levels,
    }


def _attention(site: Site, snapshot: Snapshot) -> Generator[None, None, list[Any]]:
    """Return the streams that need attention, followed by the consumers that need it; yield between steps.

    Each of the two parts begins with the worst.
    """
    found: list[Fields] = []
    for row in (yield from _worst(snapshot.streams)):
        found.append(_stream_problem(site, row))
        yield
    for each in (yield from _worst(snapshot.consumers)):
        found.append((yield from consumer_row(site, each)))
        yield
    return found


def _worst(rows: list[Any]) -> Generator[None, None, list[Any]]:
    """Return up to ATTENTION_MAX rows with the highest levels, WARNING or above; yield between steps."""
    worst: list[Any] = []
    for start in range(0, len(rows), STEP):
        worst += [row for row in rows[start : start + STEP] if row.level >= Level.WARNING]
        worst.sort(key=lambda row: (row.level, row.num_pending), reverse=True)
        del worst[ATTENTION_MAX:]
        yield
    return worst


def _stream_problem(site: Site, row: StreamRow) -> Fields:
    fields: Fields = {"account": row.account, "stream": row.name}
    level, kind, text = row.level, row.kind, ""
    if (found := site.stream(row.account, row.name)) is not None:
        level, reason = stream_level(why_stream(*found))
        kind, text = (reason.kind.value, reason.text) if reason else ("", "")
    elif (js := site.engine(row.account)) is not None:
        text = next((reason.text for reason in why_away(js, row.name)), "")
    return {**fields, "level": level.name.lower(), "kind": kind, "text": text}
