"""/jsz: JetStream of the server, of its accounts, and on demand of every stream and consumer.

Source: monitoring section of nats.docs; paging, field order and what is left out as seen on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyjs.base.gotext import time_text
from pyjs.monitor.arguments import Arguments
from pyjs.monitor.json_text import JsonDict
from pyjs.node import API_LEVEL

if TYPE_CHECKING:
    from pyjs.monitor.state import Monitored

LIMIT = 1024
UINT64 = 1 << 64  # nats-server shows "no limit", -1, as an unsigned number


@dataclass(frozen=True, slots=True)
class JszOptions:
    """What was asked."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumers: bool = False
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = LIMIT


def jsz_options(arguments: Arguments) -> JszOptions:
    """Return the options that the query string asks for; details imply what they are details of.

    Raises:
        BadArgument: in the words of nats-server.
    """
    accounts, streams, consumers = (arguments.flag(name) for name in ("accounts", "streams", "consumers"))
    arguments.flag("direct-consumers")  # those of mirrors and sources, of which there are none
    config = arguments.flag("config")
    offset = max(arguments.integer("offset"), 0)
    limit = arguments.integer("limit")
    arguments.flag("leader-only")  # this server leads itself
    raft = arguments.flag("raft")
    arguments.flag("stream-leader-only")
    streams = streams or consumers
    account = arguments.text("acc")
    accounts = accounts or (streams and not account)
    return JszOptions(account, accounts, streams, consumers, config, raft, offset, limit or LIMIT)


def jsz(monitored: Monitored, options: JszOptions, now_ns: int) -> JsonDict:
    """Return the totals, and the accounts that `options` ask for."""
    head: JsonDict = {"server_id": monitored.node.server_id, "now": time_text(now_ns)}
    jetstream = monitored.node.jetstream
    if jetstream is None:
        return _no_stats() | head | {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}} | _no_totals()
    answer = jetstream_stats(monitored) | head
    answer["config"] = jetstream_config(monitored)
    answer["limits"] = jetstream_limits(monitored)
    accounts: dict[str, Any] = jetstream.accounts
    answer |= _totals(accounts, options)
    chosen = _chosen(accounts, options)
    if chosen:
        answer["account_details"] = [account_detail(monitored, name, accounts[name], options) for name in chosen]
    answer["total"] = len(accounts)
    return answer


def _no_stats() -> JsonDict:
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
    }


def _no_totals() -> JsonDict:
    return {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0, "total": 0}


def jetstream_stats(monitored: Monitored) -> JsonDict:
    """Return what JetStream uses and did, from the engine's own counters."""
    return {}


def jetstream_config(monitored: Monitored) -> JsonDict:
    """Return the limits and the directory in effect."""
    return {}


def jetstream_limits(monitored: Monitored) -> JsonDict:
    """Return the bounds on what streams and consumers may ask for; those that are set."""
    return {}


def _totals(accounts: dict[str, Any], options: JszOptions) -> JsonDict:
    return {}


def _chosen(accounts: dict[str, Any], options: JszOptions) -> list[str]:
    return []


def account_detail(monitored: Monitored, name: str, account: Any, options: JszOptions) -> JsonDict:
    """Return one account."""
    return {}
