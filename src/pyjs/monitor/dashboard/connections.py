"""The list of connections, open or closed, and one open connection with its subscriptions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.monitor.arguments import BadArgument
from pyjs.monitor.connz import SORTS, ConnzOptions, connection_entry, subscription_detail, user_name
from pyjs.monitor.dashboard.lists import page_of, wanted_by
from pyjs.monitor.own.disconnects import meaning

if TYPE_CHECKING:
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.connz import Connection
    from pyjs.monitor.dashboard.site import Fields, Site, Steps

SUBSCRIPTIONS_MAX = 200
ENTRY = ConnzOptions()  # the fields of /connz without its options


def connections(site: Site, arguments: Arguments) -> Steps:
    """Return a page of the open connections or, with `closed=true`, of recently closed ones; yield between steps."""
    closed = arguments.flag("closed")
    wanted = wanted_by(arguments, SORTS, "-stop" if closed else "cid")
    node, now_ns = site.monitored.node, site.clock.now_ns()
    found: list[Connection] = []
    if closed:
        for some in node.closed.parts():
            found += some
            yield
    else:
        found += node.sessions.values()
    key, _ = SORTS[wanted.sort]
    page, total = yield from page_of(
        found, wanted, lambda c: (key(c, now_ns), c.cid), lambda c: _matches(c, wanted.search)
    )
    rows: list[Fields] = []
    for c in page:
        rows.append((yield from _row(c, now_ns)))
    return {**wanted.fields(total), "of": len(found), "connections": rows, "at": now_ns}


def _matches(c: Connection, search: str) -> bool:
    if search.isdecimal():
        return search == str(c.cid)
    texts = (c.options.name, c.peer.ip, c.account.name, user_name(c), c.closed_reason)
    return any(search in text.lower() for text in texts)


def _row(c: Connection, now_ns: int) -> Steps:
    entry = yield from connection_entry(c, ENTRY, now_ns)
    more: Fields = {"account": c.account.name, "user": user_name(c), "rtt_ns": c.rtt_ns}
    if c.closed_at_ns:
        more |= {"stop": time_text(c.closed_at_ns), "text": meaning(c.closed_reason)}
    return entry | more


def connection_view(site: Site, arguments: Arguments) -> Steps:
    """Return the open connection that `cid` names, with its first subscriptions.

    Raises:
        BadArgument: `cid` is invalid, or there is no such connection.
    """
    cid, now_ns = arguments.unsigned("cid"), site.clock.now_ns()
    session = site.monitored.node.sessions.get(cid)
    if session is None:
        raise BadArgument(f"there is no open connection with cid {cid}")
    subscriptions = islice(session.subscriptions.values(), SUBSCRIPTIONS_MAX)
    rows = [subscription_detail(sub, cid) for sub in subscriptions]
    entry = yield from _row(session, now_ns)
    return {"connection": entry, "subscriptions": rows, "at": now_ns}
