"""/metrics: metrics in the Prometheus text format, with the official exporter's names and some of our own.

The query argument `prefix` replaces the prefixes `gnatsd` and `jetstream`, as the exporter's flag -prefix does; the
exporter's Helm dashboards expect `nats`. `connz_detailed=true` adds samples for each connection. The label
`server_id` is the name of the server, as with the exporter's flag -use_internal_server_name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.healthz import healthz
from pyjs.monitor.own.exposition import Family, Page, extended, labels
from pyjs.monitor.own.flattened import flatten
from pyjs.monitor.own.jetstream_metrics import SUMMED, JetStreamMetrics
from pyjs.monitor.routez import routez
from pyjs.monitor.subsz import sublist_stats
from pyjs.monitor.varz import varz

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pyjs.core.account import Account
    from pyjs.core.session import ClientSession
    from pyjs.monitor.state import Monitored

    Steps = Generator[None, None, list[bytes]]

PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
SESSIONS_STEP = 256  # connections read between two yields
DETAILS_MAX = 1024  # maximum number of connections with separate samples, as on a page of /connz
FLOW = ("pending_bytes", "subscriptions", "in_bytes", "out_bytes", "in_msgs", "out_msgs")
TIMES = ("start", "last_activity", "rtt", "uptime", "idle")  # of single connections; in ms, except rtt in us
ACCOUNT = (
    *("current_connections", "total_connections", "subscriptions", "leaf_nodes", "slow_consumers"),
    *("received_messages", "received_bytes", "sent_messages", "sent_bytes"),
)
ACCOUNTS_STEP = 64  # accounts read between two yields
LOOP = (
    Family(
        "pyjs_loop_turns_total",
        "counter",
        "The turns in which the server worked for clients, streams and routes.",
    ),
    Family("pyjs_loop_busy_seconds_total", "counter", "The time in these turns."),
    Family(
        "pyjs_loop_overruns_total", "counter", "The turns that took more than 20 ms, and delayed all clients."
    ),
    Family(
        "pyjs_loop_longest_turn_seconds", "gauge", "The longest turn since the last request for this page."
    ),
)


def prefix_in(arguments: Arguments) -> str:
    """Return the argument `prefix`, or "" for the prefixes of the official exporter.

    Raises:
        BadArgument: the prefix is not valid in a name.
    """
    prefix = arguments.text("prefix")
    if prefix and PREFIX.fullmatch(prefix) is None:
        raise BadArgument("prefix: letters, digits and underscores, up to 64, and no digit at the beginning")
    return prefix


def summed(prefix: str) -> frozenset[str]:
    """Return the names of the families whose samples are added up over all workers if their labels are equal."""
    core = prefix or "gnatsd"
    counts = ("num_connections", "total", *FLOW)
    return frozenset(
        (
            *(f"{core}_connz_{name}" for name in counts),
            *(f"{core}_accstatz_{name}" for name in ACCOUNT),
            *(f"{prefix or 'jetstream'}_{name}" for name in SUMMED),
        )
    )


def metrics(monitored: Monitored, arguments: Arguments, now_ns: int) -> Steps:
    """Return the text of /metrics as a list of pieces; yield between steps.

    Raises:
        BadArgument: an argument is invalid.
    """
    prefix = prefix_in(arguments)
    core, page, server = prefix or "gnatsd", Page(), monitored.shown_name
    of_server = labels(server_id=server)
    flatten(page, f"{core}_varz", of_server, varz(monitored, now_ns))
    yield
    yield from _health(monitored, page, core, of_server)
    yield from _connections(
        monitored, page, core, of_server, now_ns, details=arguments.flag("connz_detailed")
    )
    stats = sublist_stats(monitored, [*monitored.node.accounts.values()])
    listed = {"server_id": monitored.node.server_id, "total": 0, "offset": 0, "limit": DETAILS_MAX}
    flatten(page, f"{core}_subsz", of_server, stats | listed)
    flatten(page, f"{core}_routez", of_server, (yield from routez(monitored, Arguments(""), now_ns)))
    yield from _accounts(monitored, page, core, of_server)
    yield from JetStreamMetrics(monitored, page, prefix or "jetstream").steps(server)
    _loop(monitored, page, of_server)
    return (yield from page.pieces())


def _health(monitored: Monitored, page: Page, core: str, of_server: str) -> Generator[None, None, None]:
    status, body = yield from healthz(monitored, Arguments(""))
    add_health(page, core, of_server, status, body)


def add_health(page: Page, core: str, of_server: str, status: int, body: Mapping[str, object]) -> None:
    """Add the samples for the HTTP status and the body of an answer of /healthz."""
    page.add(
        Family(f"{core}_healthz_status", "gauge", "0: the server is well."), of_server, int(status != 200)
    )
    shown = extended(of_server, value=str(body["status"]))
    page.add(
        Family(f"{core}_healthz_status_value", "gauge", "1: the server is well."), shown, int(status == 200)
    )


def _connections(
    monitored: Monitored, page: Page, core: str, of_server: str, now_ns: int, *, details: bool
) -> Generator[None, None, None]:
    sessions = list(monitored.node.sessions.values())
    families = tuple(_flow_family(core, name) for name in FLOW)
    times = tuple(Family(f"{core}_connz_{name}", "gauge", name) for name in TIMES)
    sums = [0] * len(FLOW)
    for at, session in enumerate(sessions):
        if at % SESSIONS_STEP == SESSIONS_STEP - 1:
            yield
        values = _flow(session)
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        if details and at < DETAILS_MAX:
            of_client = _detailed(of_server, session)
            page.rows(families).append((of_client, values))
            page.rows(times).append((of_client, _times(session, now_ns)))
    for name in ("num_connections", "total"):
        page.add(Family(f"{core}_connz_{name}", "gauge", name), of_server, len(sessions))
    page.add(Family(f"{core}_connz_offset", "gauge", "offset"), of_server, 0)
    page.add(Family(f"{core}_connz_limit", "gauge", "limit"), of_server, DETAILS_MAX)
    page.rows(families).append((of_server, tuple(sums)))


def _flow_family(core: str, name: str) -> Family:
    return Family(f"{core}_connz_{name}", "counter" if name.startswith(("in_", "out_")) else "gauge", name)


def _flow(session: ClientSession) -> tuple[int, ...]:
    return (
        session.pending_size(),
        session.num_subscriptions,
        session.in_bytes,
        session.out_bytes,
        session.in_msgs,
        session.out_msgs,
    )


def _detailed(of_server: str, session: ClientSession) -> str:
    tls = session.link.tls
    return extended(
        of_server,
        cid=str(session.cid),
        kind="Client",
        type=session.peer.kind,
        ip=session.peer.ip,
        port=str(session.peer.port),
        name=session.options.name,
        name_tag=session.account.tag,
        account=session.account.name,
        account_id=session.account.name,
        lang=session.options.lang,
        version=session.options.version,
        tls_version="" if tls is None else tls.version,
        tls_cipher_suite="" if tls is None else tls.cipher_suite,
    )


def _times(session: ClientSession, now_ns: int) -> tuple[float, ...]:
    """Return the values of the families in TIMES for one connection, in ms; the RTT is in us."""
    return (
        session.started_at_ns // NS_PER_MS,
        session.last_activity_ns // NS_PER_MS,
        session.rtt_ns // 1000,
        (now_ns - session.started_at_ns) // NS_PER_MS,
        (now_ns - session.last_activity_ns) // NS_PER_MS,
    )


def _accounts(monitored: Monitored, page: Page, core: str, of_server: str) -> Generator[None, None, None]:
    """Add the counters of /accstatz for all accounts, with one pass over the connections; yield between steps."""
    node = monitored.node
    before = node.closed_counters()  # a connection that closes after this line is counted as open
    sessions = list(node.sessions.values())
    sums: dict[Account, tuple[int, list[int]]] = {}
    for at, session in enumerate(sessions):
        if at % SESSIONS_STEP == SESSIONS_STEP - 1:
            yield
        number, flow = sums.get(session.account, (0, [0, 0, 0, 0]))
        counts = session.in_msgs, session.in_bytes, session.out_msgs, session.out_bytes
        sums[session.account] = number + 1, [total + each for total, each in zip(flow, counts, strict=True)]
    families = tuple(Family(f"{core}_accstatz_{name}", "gauge", name) for name in ACCOUNT)
    rows = page.rows(families)
    for at, account in enumerate(list(node.accounts.values())):
        if at % ACCOUNTS_STEP == ACCOUNTS_STEP - 1:
            yield
        name = account.name
        of_account = extended(of_server, account=name, account_id=name, account_name=account.tag)
        number, flow = sums.get(account, (0, [0, 0, 0, 0]))
        closed = before.get(name, (0, 0, 0, 0))
        moved = (total + each for total, each in zip(flow, closed, strict=True))
        rows.append((of_account, (number, number, monitored.num_subscriptions(account), 0, 0, *moved)))


def _loop(monitored: Monitored, page: Page, of_server: str) -> None:
    loop = monitored.take_loop()
    values = (loop.turns, loop.busy_ns / NS_PER_S, loop.overruns, loop.longest_ns / NS_PER_S)
    page.rows(LOOP).append((of_server, values))
