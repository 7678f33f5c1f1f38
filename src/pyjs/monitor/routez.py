"""/routez: the routes to the other servers of the cluster and, if requested, their subscriptions.

Fields and their order follow nats-server 2.15.1 (tests/conformance/test_cluster.py). nats-server has several
connections to each server; this server has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import duration_text, time_text, uptime_text
from pyjs.monitor.json_text import JsonDict, JsonValue, filled

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.cluster.route import Route
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.state import Monitored
    from pyjs.subjects.sublist import Subscription

STEP = 1000  # subscriptions between two yields


def routez(monitored: Monitored, arguments: Arguments, now_ns: int) -> Generator[None, None, JsonDict]:
    """Return the body of /routez with all routes; yield between steps.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
    """
    detail = arguments.text("subs").lower() == "detail"
    listed = detail or arguments.flag("subs")
    return (yield from routes_page(monitored, listed, detail, now_ns))


def routes_page(
    monitored: Monitored, listed: bool, detail: bool, now_ns: int
) -> Generator[None, None, JsonDict]:
    """Return all routes; yield between steps.

    `listed` adds the subjects of the routes' subscriptions, and `detail` all attributes of these subscriptions.
    """
    node = monitored.node
    routes = [] if node.cluster is None else list(node.cluster.routes.values())
    entries: list[JsonValue] = []
    for route in routes:
        entries.append((yield from _entry(route, listed, detail, now_ns)))
    return {
        "server_id": node.server_id,
        "server_name": node.server_name,
        "now": time_text(now_ns),
        "num_routes": len(entries),
        "routes": entries,
    }


def _entry(route: Route, listed: bool, detail: bool, now_ns: int) -> Generator[None, None, JsonDict]:
    info = route.info
    assert info is not None
    entry: JsonDict = {
        "rid": route.rid,
        "remote_id": info.server_id,
        "remote_name": info.server_name,
        "did_solicit": route.dial is not None,
        "is_configured": route.dial is not None and not route.dial.learned,
        "ip": route.peer.ip,
        "port": route.peer.port,
        "start": time_text(route.started_at_ns),
        "last_activity": time_text(route.last_activity_ns),
        **filled({"rtt": duration_text(route.rtt_ns) if route.rtt_ns else ""}),
        "uptime": uptime_text(now_ns - route.started_at_ns),
        "idle": uptime_text(now_ns - route.last_activity_ns),
        "pending_size": route.pending_size,
        "in_msgs": route.in_msgs,
        "out_msgs": route.out_msgs,
        "in_bytes": route.in_bytes,
        "out_bytes": route.out_bytes,
        "subscriptions": route.num_subscriptions,
    }
    if listed:
        name = "subscriptions_list_detail" if detail else "subscriptions_list"
        entry[name] = yield from _subscriptions(route, detail)
    return entry | {"compression": "off"}


def route_counters(route: Route) -> JsonDict:
    """Return the counters of a route in the form of the server statistics."""
    return {
        "rid": route.rid,
        "name": "" if route.info is None else route.info.server_name,
        "sent": {"msgs": route.out_msgs, "bytes": route.out_bytes},
        "received": {"msgs": route.in_msgs, "bytes": route.in_bytes},
        "pending": route.pending_size,
    }


def _subscriptions(route: Route, detail: bool) -> Generator[None, None, list[JsonValue]]:
    out: list[JsonValue] = []
    for account, remote in list(route.remote.items()):
        for sub in list(remote.subscriptions.values()):
            out.append(_detail(sub, account, route.rid) if detail else sub.subject.decode("utf-8", "replace"))
            if len(out) % STEP == 0:
                yield
    return out


def _detail(sub: Subscription, account: str, rid: int) -> JsonDict:
    subject, queue = (text.decode("utf-8", "replace") for text in (sub.subject, sub.queue))
    return {
        "account": account,
        "subject": subject,
        **filled({"qgroup": queue}),
        "sid": f"{account} {subject} {queue}".rstrip(),
        "msgs": sub.delivered,
        "cid": rid,
    }
