"""/connz: the connections, open and closed.

Source: monitoring section of nats.docs; sort orders, texts and field order seen on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import duration_text, time_text, uptime_text
from pyjs.core.auth.users import GLOBAL_ACCOUNT
from pyjs.core.closed import ClosedSession, ClosedSubscription
from pyjs.core.link import shown_reason
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.json_text import JsonDict, JsonValue, filled, pretty_piece, text
from pyjs.subjects.sublist import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.core.link import TlsPeer
    from pyjs.core.session import ClientSession
    from pyjs.monitor.state import Monitored

    Connection = ClientSession | ClosedSession

LIMIT = 1024
# Number of connections, or of subscriptions of one connection, reported between two yields; these take about a
# millisecond.
CONNECTIONS_STEP = 64
SUBSCRIPTIONS_STEP = 1000
DEPTH = 2  # levels of JSON around the list: the answer, `connections`
STATES = {"": "open", "open": "open", "closed": "closed", "any": "all", "all": "all"}
NS_PER_MS = 1_000_000

# sort argument -> (function that returns the key of a connection at a time, whether the order is descending)
SORTS: dict[str, tuple[Callable[[Connection, int], int | str], bool]] = {
    "cid": (lambda c, now: c.cid, False),
    "start": (lambda c, now: c.cid, False),
    "subs": (lambda c, now: c.num_subscriptions, True),
    "pending": (lambda c, now: c.pending_size(), True),
    "msgs_to": (lambda c, now: c.out_msgs, True),
    "msgs_from": (lambda c, now: c.in_msgs, True),
    "bytes_to": (lambda c, now: c.out_bytes, True),
    "bytes_from": (lambda c, now: c.in_bytes, True),
    "last": (lambda c, now: c.last_activity_ns, True),
    "idle": (lambda c, now: now - c.last_activity_ns, True),
    "uptime": (lambda c, now: (c.closed_at_ns or now) - c.started_at_ns, False),
    "stop": (lambda c, now: c.closed_at_ns, True),
    "reason": (lambda c, now: shown_reason(c.closed_reason), False),
    "rtt": (lambda c, now: c.rtt_ns, True),
}


@dataclass(frozen=True, slots=True)
class ConnzOptions:
    """The options of a request for /connz."""

    sort: str = "cid"
    auth: bool = False
    subs: bool = False
    subs_detail: bool = False
    offset: int = 0
    limit: int = LIMIT
    cid: int = 0
    state: str = "open"
    user: str = ""
    account: str = ""
    mqtt_client: str = ""


def connz_options(arguments: Arguments) -> ConnzOptions:
    """Return the options of a request for /connz, read from its arguments.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
    """
    auth = arguments.flag("auth")
    subs_detail = arguments.text("subs").lower() == "detail"
    subs = False if subs_detail else arguments.flag("subs")
    offset = max(arguments.integer("offset"), 0)
    limit = arguments.integer("limit")
    cid = arguments.unsigned("cid")
    state = STATES.get(arguments.text("state").lower())
    if state is None:
        raise BadArgument(f"Error decoding state for {arguments.text('state')}")
    sort = arguments.text("sort") or "cid"
    if sort not in SORTS:
        raise BadArgument(f"invalid sorting option: {sort}")
    if sort in ("stop", "reason") and state != "closed":
        raise BadArgument(f"sort by {sort} only valid on closed connections")
    return ConnzOptions(
        sort=sort,
        auth=auth,
        subs=subs,
        subs_detail=subs_detail,
        offset=offset,
        limit=1 if cid else (limit if limit > 0 else LIMIT),
        cid=cid,
        state=state,
        user=arguments.text("user"),
        account=arguments.text("acc"),
        mqtt_client=arguments.text("mqtt_client"),
    )


def connz(monitored: Monitored, options: ConnzOptions, now_ns: int) -> Generator[None, None, JsonDict]:
    """Return the body of /connz with the requested page of connections; yield between steps."""
    if options.account and options.account not in monitored.node.accounts:
        return _page(monitored, options, now_ns, "", 0, None)
    found, total = yield from _selected(monitored, options)
    key, descending = SORTS[options.sort]
    found.sort(key=lambda c: c.cid)
    found.sort(key=lambda c: key(c, now_ns), reverse=descending)
    page = found[options.offset : options.offset + options.limit]
    entries: list[object] = []
    for number, c in enumerate(page):
        if number % CONNECTIONS_STEP == CONNECTIONS_STEP - 1:
            yield
        entry = yield from connection_entry(c, options, now_ns)
        entries.append(pretty_piece(entry, DEPTH))
    return _page(monitored, options, now_ns, monitored.node.server_id, total, entries)


def _page(
    monitored: Monitored,
    options: ConnzOptions,
    now_ns: int,
    server_id: str,
    total: int,
    entries: list[object] | None,
) -> JsonDict:
    return {
        "server_id": server_id,
        "now": time_text(now_ns),
        "num_connections": len(entries or ()),
        "total": total,
        "offset": options.offset,
        "limit": options.limit,
        "connections": entries,  # type: ignore[dict-item]  # pieces of the answer's text
    }


def _selected(
    monitored: Monitored, options: ConnzOptions
) -> Generator[None, None, tuple[list[Connection], int]]:
    # The total counts all connections of the account; the other filters do not affect it.
    found: list[Connection] = []
    closed = monitored.node.closed.parts()  # copied at the same moment as the open ones
    if options.state != "closed":
        found += monitored.node.sessions.values()
    if options.state != "open":
        for some in closed:
            found += some
            yield
    if options.account:
        found = [c for c in found if c.account.name == options.account]
    total = len(found)
    if options.cid:
        return [c for c in found if c.cid == options.cid][:1], total
    if options.user:
        found = [c for c in found if user_name(c) == options.user]
    if options.mqtt_client:
        found = []  # this server has no MQTT connections
    return found, total


def user_name(connection: Connection) -> str:
    """Return the user name of the connection's client, or "" before the login."""
    return connection.user.name if connection.user else ""


def connection_entry(c: Connection, options: ConnzOptions, now_ns: int) -> Generator[None, None, JsonDict]:
    """Return the entry of the connection `c` in /connz; yield between steps if it lists many subscriptions."""
    rtt_ns = c.rtt_ns if not 1000 < c.rtt_ns < NS_PER_MS else c.rtt_ns // 1000 * 1000
    until_ns = c.closed_at_ns or now_ns
    entry: JsonDict = {
        "cid": c.cid,
        "kind": "Client",
        "type": c.peer.kind if c.peer.kind != "in_process" else "nats",
        "ip": c.peer.ip,
        "port": c.peer.port,
        "start": time_text(c.started_at_ns),
        "last_activity": time_text(c.last_activity_ns),
    }
    if c.closed_at_ns:
        entry["stop"] = time_text(c.closed_at_ns)
        entry["reason"] = shown_reason(c.closed_reason)
    entry |= {
        "rtt": duration_text(rtt_ns),
        "uptime": uptime_text(until_ns - c.started_at_ns),
        "idle": uptime_text(until_ns - c.last_activity_ns),
        "pending_bytes": c.pending_size(),
        "in_msgs": c.in_msgs,
        "out_msgs": c.out_msgs,
        "in_bytes": c.in_bytes,
        "out_bytes": c.out_bytes,
    }
    entry |= filled({"stalls": c.stalls}) | {"subscriptions": c.num_subscriptions}
    yield from _add_identity(entry, c, options)
    return entry


def _add_identity(entry: JsonDict, c: Connection, options: ConnzOptions) -> Generator[None, None, None]:
    entry |= filled({"name": c.options.name, "lang": c.options.lang, "version": c.options.version})
    entry |= _tls(c.tls if isinstance(c, ClosedSession) else c.link.tls, with_certificates=options.auth)
    if options.auth:
        account = c.account.name if c.account.name != GLOBAL_ACCOUNT else ""
        token = None if c.user is None else c.user.token
        of_token: JsonDict = (
            {} if token is None else {"jwt": token.text, "issuer_key": token.issuer, "tags": [*token.tags]}
        )
        entry |= filled({"authorized_user": user_name(c), "account": account, **of_token})
    if c.subscriptions and options.subs_detail:
        account = c.account.name if c.closed_at_ns else ""
        details: list[JsonValue] = []
        subscriptions: list[Subscription | ClosedSubscription] = [*c.subscriptions.values()]
        for sub in subscriptions:
            details.append(subscription_detail(sub, c.cid, account))
            if len(details) % SUBSCRIPTIONS_STEP == 0:
                yield
        entry["subscriptions_list_detail"] = details
    elif c.subscriptions and options.subs:
        entry["subscriptions_list"] = [text(sub.subject) for sub in c.subscriptions.values()]
    if options.auth and (c.user is not None or not c.closed_at_ns):
        entry["name_tag"] = c.account.tag
    if c.peer.proxy:
        entry["proxy"] = {"key": c.peer.proxy}


def _tls(tls: TlsPeer | None, *, with_certificates: bool) -> JsonDict:
    if tls is None:
        return {}
    fields: JsonDict = {"tls_version": tls.version, "tls_cipher_suite": tls.cipher_suite}
    if with_certificates and tls.shown.chain:
        fields["tls_peer_certs"] = [
            {"subject": each.subject, "spki_sha256": each.spki_sha256, "cert_sha256": each.cert_sha256}
            for each in tls.shown.chain
        ]
    return fields | filled({"tls_first": tls.first})


def subscription_detail(sub: Subscription | ClosedSubscription, cid: int, account: str = "") -> JsonDict:
    """Return the details of one subscription; `account` is included unless it is empty."""
    detail: JsonDict = {"account": account, "account_tag": account} if account else {}
    detail["subject"] = text(sub.subject)
    if sub.queue:
        detail["qgroup"] = text(sub.queue)
    detail["sid"] = text(sub.sid)
    detail["msgs"] = sub.delivered
    if sub.max:
        detail["max"] = sub.max
    detail["cid"] = cid
    return detail
