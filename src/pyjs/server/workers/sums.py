"""Pure functions that combine the JSON pages of all workers into one: counters are added, lists are merged.

All other values come from the first worker, which either has all streams or assigns the streams to the workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyjs.base.units import parse_duration_ns
from pyjs.monitor.json_text import number
from pyjs.monitor.own.whyz import CLIENTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Json: TypeAlias = "dict[str, Any]"

# /varz: fields to add up; a dot leads to a field of a nested object.
ADDED = (
    "mem cpu connections total_connections in_msgs out_msgs in_bytes out_bytes in_client_msgs in_client_bytes"
    " out_client_msgs out_client_bytes slow_consumers stale_connections stalled_clients subscriptions gomaxprocs"
).split()
CLIENTS_ONLY = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")  # the traffic between workers is not counted
ADDED_MAPS = ("slow_consumer_stats", "stale_connection_stats", "pyjs_faults")
# /jsz: fields to add up, of the server and of an account. Each worker reserves the bytes of all streams.
JETSTREAM_ADDED = (
    "memory storage streams streams_leader consumers consumers_leader messages bytes lost_msgs lost_bytes"
).split()
ACCOUNT_ADDED = ("memory", "storage")
SCRUB_ADDED = ("checked_bytes", "damaged")
SUBLIST_ADDED = ("num_subscriptions", "num_cache", "num_inserts", "num_removes", "num_matches")
LAST = "9999"  # sorts after every time

# /connz: sort argument -> (key, descending)
SORTS: dict[str, tuple[Callable[[Json], Any], bool]] = {
    "cid": (lambda c: c["cid"], False),
    "start": (lambda c: time_key(c["start"]), False),
    "subs": (lambda c: c["subscriptions"], True),
    "pending": (lambda c: c["pending_bytes"], True),
    "msgs_to": (lambda c: c["out_msgs"], True),
    "msgs_from": (lambda c: c["in_msgs"], True),
    "bytes_to": (lambda c: c["out_bytes"], True),
    "bytes_from": (lambda c: c["in_bytes"], True),
    "last": (lambda c: time_key(c["last_activity"]), True),
    "idle": (lambda c: time_key(c["last_activity"]), False),
    "uptime": (lambda c: time_key(c["start"]), True),
    "stop": (lambda c: time_key(c.get("stop", LAST)), True),
    "reason": (lambda c: c.get("reason", ""), False),
    "rtt": (lambda c: parse_duration_ns(c["rtt"]), True),
}


def time_key(text: str) -> tuple[str, str]:
    """Return a sort key for a UTC time in RFC 3339, whose fraction may have up to nine digits."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    return seconds, fraction.ljust(9, "0")


def varz(pages: Sequence[Json]) -> Json:
    """Return the combined /varz page of all workers."""
    answer = dict(pages[0])
    for name in ADDED:
        source = name.replace("_", "_client_", 1) if name in CLIENTS_ONLY else name
        answer[name] = number(round(sum(page[source] for page in pages), 1))
    for name in ADDED_MAPS:
        if any(name in page for page in pages):
            answer[name] = added([page.get(name, {}) for page in pages])
    answer["routes"] = answer["remotes"] = 0
    answer["cluster"] = {}
    blocks = [page["jetstream"] for page in pages if page.get("jetstream")]
    if blocks and "stats" in blocks[0]:
        stats = _usage([each["stats"] for each in blocks if "stats" in each], ACCOUNT_ADDED)
        answer["jetstream"] = blocks[0] | {"stats": stats}
    return answer


def jsz(pages: Sequence[Json]) -> Json:
    """Return the combined /jsz page of workers that share the streams."""
    answer = _usage(pages, JETSTREAM_ADDED)
    if set_aside := [path for page in pages for path in page.get("damaged", ())]:
        answer["damaged"] = set_aside
    scrubs = [page["scrub"] for page in pages if "scrub" in page]
    if scrubs:
        sums = {name: sum(each[name] for each in scrubs) for name in SCRUB_ADDED}
        answer["scrub"] = scrubs[0] | sums | {"running": any(each["running"] for each in scrubs)}
    if "account_details" in answer:
        by_name: dict[str, list[Json]] = {}
        for page in pages:
            for each in page.get("account_details", ()):
                by_name.setdefault(each["name"], []).append(each)
        answer["account_details"] = [_account_detail(parts) for parts in by_name.values()]
    return answer


def _account_detail(parts: Sequence[Json]) -> Json:
    answer = _usage(parts, ACCOUNT_ADDED)
    streams = [each for part in parts for each in part.get("stream_detail", ())]
    return answer | ({"stream_detail": streams} if streams else {})


def _usage(parts: Sequence[Json], names: Sequence[str]) -> Json:
    """Return the first part, with sums of the fields `names` and of the counters of the API."""
    answer = dict(parts[0])
    for name in names:
        if any(name in part for part in parts):
            answer[name] = sum(part.get(name, 0) for part in parts)
    apis = [part["api"] for part in parts if "api" in part]
    if apis:
        names = [name for name in ("total", "errors", "inflight") if any(name in each for each in apis)]
        answer["api"] = apis[0] | {name: sum(each.get(name, 0) for each in apis) for name in names}
    return answer


def added(maps: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return, for each name, the sum of its values in all maps."""
    sums: dict[str, int] = {}
    for each in maps:
        for name, value in each.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def connz(pages: Sequence[Json], sort: str, offset: int, limit: int) -> Json:
    """Return the combined /connz page: up to `limit` connections from `offset` on, sorted by `sort`.

    Each page of `pages` must start at offset 0.
    """
    found: list[Json] = [each for page in pages for each in page["connections"] or ()]
    key, descending = SORTS[sort]
    found.sort(key=lambda c: c["cid"])
    found.sort(key=key, reverse=descending)
    shown = found[offset : offset + limit]
    return pages[0] | {
        "num_connections": len(shown),
        "total": sum(page["total"] for page in pages),
        "offset": offset,
        "limit": limit,
        "connections": shown if any(page["connections"] is not None for page in pages) else None,
    }


def subsz(pages: Sequence[Json], offset: int, limit: int) -> Json:
    """Return the combined /subsz page: up to `limit` subscriptions from `offset` on, in the order of the workers."""
    answer = pages[0] | sublist_stats(pages)
    answer |= {"total": sum(page["total"] for page in pages), "offset": offset, "limit": limit}
    answer.pop("subscriptions_list", None)
    listed = [each for page in pages for each in page.get("subscriptions_list", ())][offset : offset + limit]
    return answer | ({"subscriptions_list": listed} if listed else {})


def sublist_stats(parts: Sequence[Json]) -> Json:
    """Return the combined counters of several subscription lists."""
    answer: Json = {name: sum(part[name] for part in parts) for name in SUBLIST_ADDED}
    answer["cache_hit_rate"] = _weighted(parts, "cache_hit_rate", "num_matches")
    answer["max_fanout"] = max(part["max_fanout"] for part in parts)
    answer["avg_fanout"] = _weighted(parts, "avg_fanout", "num_cache")
    return answer


def _weighted(parts: Sequence[Json], name: str, by: str) -> float | int:
    weight = sum(part[by] for part in parts)
    return number(sum(part[name] * part[by] for part in parts) / weight) if weight else 0


def accountz(pages: Sequence[Json]) -> Json:
    """Return the names of the accounts of all workers, or the details of one account."""
    answer = dict(pages[0])
    if "account_detail" not in answer:
        names = dict.fromkeys(name for page in pages for name in page["accounts"])
        return answer | {"accounts": list(names)}
    details = [page["account_detail"] for page in pages]
    detail = dict(details[0])
    for name in ("client_connections", "subscriptions"):
        detail[name] = sum(each[name] for each in details)
    detail["sublist_stats"] = sublist_stats([each["sublist_stats"] for each in details])
    return answer | {"account_detail": detail}


def accstatz(pages: Sequence[Json]) -> Json:
    """Return the combined /accstatz page: the counters of the accounts of all workers."""
    by_name: dict[str, list[Json]] = {}
    for page in pages:
        for each in page["account_statz"]:
            by_name.setdefault(each["acc"], []).append(each)
    return pages[0] | {"account_statz": [_account_statz(parts) for parts in by_name.values()]}


def whyz(pages: Sequence[Json], offset: int, limit: int) -> Json:
    """Return the combined /whyz page: up to `limit` streams from `offset` on, and the last disconnected clients."""
    streams = [each for page in pages for each in page["streams"]]
    streams.sort(key=lambda each: (each["account"], each["stream"]))
    clients = [each for page in pages for each in page["clients"]]
    clients.sort(key=lambda each: time_key(each["stop"]), reverse=True)
    answer = pages[0] | {
        "total": sum(page.get("total", 0) for page in pages),
        "offset": offset,
        "limit": limit,
    }
    return answer | {"streams": streams[offset : offset + limit], "clients": clients[:CLIENTS_MAX]}


def _account_statz(parts: Sequence[Json]) -> Json:
    answer = dict(parts[0])
    for name in ("conns", "total_conns", "num_subscriptions", "slow_consumers"):
        answer[name] = sum(part[name] for part in parts)
    for name in ("sent", "received"):
        answer[name] = parts[0][name] | {
            each: sum(part[name][each] for part in parts) for each in ("msgs", "bytes")
        }
    return answer
