"""/accountz and /accstatz: accounts in detail, and their counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import NS_PER_S, time_text
from pyjs.claims.account import account_issues
from pyjs.claims.token import decode
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.exchange import exchange_fields
from pyjs.monitor.json_text import JsonDict, filled
from pyjs.monitor.subsz import sublist_stats

if TYPE_CHECKING:
    from pyjs.core.account import Account
    from pyjs.core.trust.accounts import TrustedAccount, TrustedAccounts
    from pyjs.monitor.state import Monitored


def accountz(monitored: Monitored, arguments: Arguments, now_ns: int) -> JsonDict:
    """Return the names of all accounts or, with the argument `acc`, the details of one account.

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
    return answer | {"account_detail": _detail(monitored, account, now_ns)}


def _detail(monitored: Monitored, account: Account, now_ns: int) -> JsonDict:
    detail: JsonDict = {"account_name": account.name, "update_time": time_text(monitored.config_loaded_at_ns)}
    if account is monitored.node.system_account:
        detail["is_system"] = True
    trusted = None if monitored.node.trust is None else monitored.node.trust.accounts.get(account.name)
    if trusted is not None:
        detail["update_time"] = time_text(trusted.updated_ns)
    return detail | {
        "expired": trusted is not None and trusted.is_expired,
        "complete": trusted is None or _is_complete(monitored, trusted),
        "jetstream_enabled": account.jetstream is not None,
        "leafnode_connections": 0,
        "client_connections": len(account.sessions),
        "subscriptions": monitored.num_subscriptions(account),
        **exchange_fields(monitored.node, account.name),
        **_of_token(monitored.node.trust, account, now_ns),
        "sublist_stats": sublist_stats(monitored, [account]),
    }


def _is_complete(monitored: Monitored, trusted: TrustedAccount) -> bool:
    """Return whether all imports in the token of `trusted` are active."""
    shared = monitored.node.exchanges.get(trusted.name)
    return len(trusted.claims.imports) == (0 if shared is None else len(shared.imports))


def _of_token(trust: TrustedAccounts | None, account: Account, now_ns: int) -> JsonDict:
    """Return the display name of `account` and, if it has a token, the token and its claims."""
    fields: JsonDict = {"name_tag": account.tag}
    trusted = None if trust is None else trust.accounts.get(account.name)
    if trusted is None or not trusted.text:
        return fields
    claims = trusted.claims
    issues = account_issues(claims, now_ns // NS_PER_S)
    revoked: JsonDict = {key: time_text(at * NS_PER_S) for key, at in claims.revocations.items()}
    decoded: JsonDict = dict(decode(trusted.text).claims)
    shown: JsonDict = {"authorization": {}, "default_permissions": {"pub": {}, "sub": {}}}
    nats = decoded.get("nats")
    if isinstance(nats, dict):
        decoded["nats"] = shown | nats  # nats-server shows these fields even if they are empty
    return filled(
        {
            "jwt": trusted.text,
            "issuer_key": claims.head.issuer,
            "name_tag": account.tag,
            "tags": [*claims.head.tags],
            "decoded_jwt": decoded,
            "validation_result_jwt": [
                {"description": each.description, "blocking": each.blocking, "time_check": each.time_check}
                for each in issues
            ],
            "revoked_user": revoked,
        }
    )


def accstatz(monitored: Monitored, arguments: Arguments, now_ns: int) -> JsonDict:
    """Return the counters of the accounts that have connections or, with the argument `unused`, of all accounts.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
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
        "name": account.tag,
        "conns": connections,
        "leafnodes": 0,
        "total_conns": connections,
        "num_subscriptions": monitored.num_subscriptions(account),
        "sent": _flow(out_msgs, out_bytes),
        "received": _flow(in_msgs, in_bytes),
        "slow_consumers": 0,
    }


def _flow(msgs: int, size: int) -> JsonDict:
    nothing: JsonDict = {"msgs": 0, "bytes": 0}
    return {"msgs": msgs, "bytes": size, "gateways": nothing, "routes": nothing, "leafs": nothing}
