"""Combining the pages of several workers into one."""

from __future__ import annotations

from typing import Any

import pytest

from pyjs.server.workers import sums


def connection(cid: int, **fields: object) -> dict[str, Any]:
    usual = {
        "start": "2026-01-01T00:00:00Z",
        "last_activity": "2026-01-01T00:00:00Z",
        "subscriptions": 0,
        "pending_bytes": 0,
        "in_msgs": 0,
        "out_msgs": 0,
        "in_bytes": 0,
        "out_bytes": 0,
        "rtt": "0s",
    }
    return {"cid": cid} | usual | fields


def page(*connections: dict[str, Any]) -> dict[str, Any]:
    return {"server_id": "N", "total": len(connections), "connections": list(connections)}


@pytest.mark.parametrize(
    ("sort", "low", "high"),
    [
        ("subs", {"subscriptions": 1}, {"subscriptions": 9}),
        ("msgs_to", {"out_msgs": 1}, {"out_msgs": 9}),
        ("rtt", {"rtt": "800µs"}, {"rtt": "1.5ms"}),
        ("last", {"last_activity": "2026-01-01T00:00:00.5Z"}, {"last_activity": "2026-01-01T00:00:00.51Z"}),
        ("idle", {"last_activity": "2026-01-01T00:00:01Z"}, {"last_activity": "2026-01-01T00:00:00.9Z"}),
        ("uptime", {"start": "2026-01-01T00:00:00Z"}, {"start": "2026-01-01T00:00:00.1Z"}),
    ],
)
def test_connections_of_two_workers_are_sorted_together(
    sort: str, low: dict[str, Any], high: dict[str, Any]
) -> None:
    pages = [page(connection(1, **low)), page(connection(2, **high))]
    assert [each["cid"] for each in sums.connz(pages, sort, 0, 10)["connections"]] == [2, 1]


def test_a_page_of_connections_is_cut_out_of_all() -> None:
    pages = [page(connection(1), connection(3)), page(connection(2), connection(4))]
    answer = sums.connz(pages, "cid", 1, 2)
    assert [each["cid"] for each in answer["connections"]] == [2, 3]
    assert (answer["num_connections"], answer["total"], answer["offset"], answer["limit"]) == (2, 4, 1, 2)


def test_an_account_that_no_worker_knows_has_no_list() -> None:
    missing = {"server_id": "", "total": 0, "connections": None}
    assert sums.connz([missing, dict(missing)], "cid", 0, 10)["connections"] is None


def test_rates_of_subscription_lists_are_weighted() -> None:
    zero = dict.fromkeys(sums.SUBLIST_ADDED, 0)
    busy = zero | {"num_matches": 30, "cache_hit_rate": 1, "max_fanout": 2, "num_cache": 1, "avg_fanout": 2}
    idle = zero | {"num_matches": 10, "cache_hit_rate": 0, "max_fanout": 5, "num_cache": 3, "avg_fanout": 4}
    answer = sums.sublist_stats([busy, idle])
    assert answer["cache_hit_rate"] == 0.75
    assert answer["max_fanout"] == 5
    assert answer["avg_fanout"] == 3.5


def test_messages_between_workers_are_not_counted() -> None:
    one = dict.fromkeys(sums.ADDED, 0) | {"in_msgs": 7, "in_client_msgs": 5, "cpu": 1.25, "routes": 1}
    answer = sums.varz([one, one | {"pyjs_faults": {"turn": 2}}])
    assert answer["in_msgs"] == answer["in_client_msgs"] == 10
    assert answer["cpu"] == 2.5
    assert answer["routes"] == 0
    assert answer["pyjs_faults"] == {"turn": 2}


def test_accounts_of_all_workers_are_added() -> None:
    flow = {"msgs": 1, "bytes": 2, "routes": {}}
    of_a = {"acc": "A", "conns": 1, "total_conns": 1, "num_subscriptions": 2, "slow_consumers": 0}
    of_a |= {"sent": flow, "received": flow}
    answer = sums.accstatz([{"account_statz": [of_a]}, {"account_statz": [of_a, of_a | {"acc": "B"}]}])
    a, b = answer["account_statz"]
    assert (a["conns"], a["num_subscriptions"], a["sent"]["bytes"]) == (2, 4, 4)
    assert b["conns"] == 1


def test_streams_of_all_workers_are_added() -> None:
    def of(name: str, size: int) -> dict[str, Any]:
        detail = {"name": "$G", "memory": 0, "storage": size, "api": {"level": 1, "total": 2, "errors": 1}}
        detail["stream_detail"] = [{"name": name}]
        scrub = {"rate": 5, "running": name == "B", "checked_bytes": size, "damaged": 1}
        head = {
            "server_id": "N",
            "memory": 1,
            "storage": size,
            "reserved_storage": 9,
            "streams": 1,
            "bytes": size,
        }
        api = {"level": 1, "total": 3, "errors": 0}
        return head | {"api": api, "account_details": [detail], "scrub": scrub, "damaged": [name]}

    answer = sums.jsz([of("A", 10), of("B", 20)])
    assert (answer["storage"], answer["streams"], answer["bytes"], answer["reserved_storage"]) == (
        30,
        2,
        30,
        9,
    )
    assert answer["api"] == {"level": 1, "total": 6, "errors": 0}
    assert answer["damaged"] == ["A", "B"]
    assert answer["scrub"] == {"rate": 5, "running": True, "checked_bytes": 30, "damaged": 2}
    (account,) = answer["account_details"]
    assert (account["storage"], account["api"]["errors"]) == (30, 2)
    assert account["stream_detail"] == [{"name": "A"}, {"name": "B"}]


def test_the_usage_of_all_workers_is_in_varz() -> None:
    stats = {"memory": 1, "storage": 2, "reserved_memory": 7, "api": {"level": 1, "total": 3, "errors": 1}}
    one = dict.fromkeys(sums.ADDED, 0) | {"in_client_msgs": 0, "jetstream": {"config": {}, "stats": stats}}
    both = {"memory": 2, "storage": 4, "reserved_memory": 7, "api": {"level": 1, "total": 6, "errors": 2}}
    assert sums.varz([one, one])["jetstream"] == {"config": {}, "stats": both}
    assert "jetstream" not in sums.varz([dict.fromkeys(sums.ADDED, 0)])
