"""/accountz and /accstatz: accounts in detail, and their counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.exchange import exchange_fields
from pyjs.monitor.json_text import JsonDict
from pyjs.monitor.subsz import sublist_stats

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.monitor.state import Monitored


def accountz(monitored: Monitored, arguments: Arguments, now_ns: int) -> JsonDict:
    """Return the names of all accounts, or the details of the requested one.

    Raises:
        BadArgument: there is no such account.
    """
    node = monitored.node
    answer: JsonDict = {"server_id": node.server_id, "now": time_text(now_ns)}
    if node.system_account is not None:
        answer["system_account"] = node.system_account.name
    wanted = arguments.text("acc")
    if not wanted:
        return answer | {"accounts": [*node.accounts]}
    account = node.accounts.get(wanted)
    if account is None:
        raise BadArgument(f"Account {wanted} does not exist")
    return answer | {"account_detail": _detail(monitored, account)}


def _detail(monitored: Monitored, account: Account) -> JsonDict:
    detail: JsonDict = {"account_name": account.name, "update_time": time_text(monitored.config_loaded_at_ns)}
    if account is monitored.node.system_account:
        detail["is_system"] = True
    return detail | {
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.jetstream is not None,
        "leafnode_connections": 0,
        "client_connections": len(account.sessions),
        "subscriptions": len(account.subs),
        **exchange_fields(monitored.node, account.name),
        "name_tag": account.name,
        "sublist_stats": sublist_stats([account]),
    }


def accstatz(monitored: Monitored, arguments: Arguments, now_ns: int) -> JsonDict:
    """Return the counters of every account that has connections, or of all with `unused`.

    Raises:
        BadArgument: with nats-server's text.
    """
    unused = arguments.flag("unused")
    node = monitored.node
    accounts = [account for account in node.accounts.values() if unused or account.sessions]
    return {
        "server_id": node.server_id,
        "now": time_text(now_ns),
        "account_statz": [account_statz(monitored, account) for account in accounts],
    }


def account_statz(monitored: Monitored, account: Account) -> JsonDict:
    """Return the connections and counters of one account."""
    in_msgs, in_bytes, out_msgs, out_bytes = monitored.node.counters(account)
    connections = sum(session.account is account for session in monitored.node.sessions.values())
    return {
        "acc": account.name,
        "name": account.name,
        "conns": connections,
        "leafnodes": 0,
        "total_conns": connections,
        "num_subscriptions": len(account.subs),
        "sent": _flow(out_msgs, out_bytes),
        "received": _flow(in_msgs, in_bytes),
        "slow_consumers": 0,
    }


def _flow(msgs: int, size: int) -> JsonDict:
    nothing: JsonDict = {"msgs": 0, "bytes": 0}
    return {"msgs": msgs, "bytes": size, "gateways": nothing, "routes": nothing, "leafs": nothing}
