"""The reasons why a stream of a cluster has no leader: which servers are away, which replicas wait, the quorum.

Every server knows which other servers answer. But only the server of a replica knows the last entry of the replica,
and the reason why the replica is not current. Both are in that server's view of the stream (`view_of`). The server
that answers a client requests the views of the other servers (member/questions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.jetstream.why.reasons import Kind, Reason, about
from pyjs.jetstream.why.replicas import LEADERLESS, why_not_current

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode

    View = Mapping[str, Any]


def view_of(js: JetStream, name: str) -> dict[str, Any]:
    """Return this server's view of one of its streams, or {} if no stream `name` is assigned to this server.

    `node` and `leader` are numbers of servers, `last` is the index of the replica's last log entry, and `cause` is
    the reason why the replica is not current.
    """
    member = js.shared.member
    assigned = None if member is None else member.machine.state.stream(js.account.name, name)
    if member is None or assigned is None or member.node not in assigned.nodes:
        return {}
    stream, replicated = js.streams.get(name), js.shared.replicated
    machine = None if stream is None or replicated is None else replicated.machine_of(stream)
    cause = why_not_current(member, member.accounts, assigned)
    view = {"node": member.node, "cause": "" if cause == LEADERLESS else cause, "leader": 0, "last": 0}
    if machine is not None:
        status = member.status_of(machine.group)
        return view | {"leader": machine.leader, "last": 0 if status is None else status.last}
    is_single = stream is not None and assigned.config.num_replicas == 1
    return view | {"leader": member.node if is_single else 0}


def leaderless_report(js: JetStream, name: str, consumer: str, views: Iterable[View]) -> dict[str, Any]:
    """Return the report about a stream without a leader or, if `consumer` is not "", about that consumer."""
    member = js.shared.member
    assert member is not None
    assigned, reasons = member.machine.state.stream(js.account.name, name), []
    if assigned is not None:
        reasons.append(why_leaderless(member, assigned, views))
    if not member.machine.leader:
        reasons.append(_no_meta_leader(member, is_known=assigned is not None))
    named = {"consumer": consumer, "delivers": False} if consumer else {"accepts": False}
    shown = [reason.as_json() for reason in reasons]
    return {"stream": name, **named, "reasons": shown, "ts": time_text(js.shared.clock.wall_ns())}


def why_leaderless(member: MemberNode, assigned: Assignment, views: Iterable[View]) -> Reason:
    """Return the reason why a stream has no leader or is offline, from the views of its servers."""
    if assigned.stored.offline:
        text = (
            f"It is offline: {assigned.stored.offline}. It opens on a server of the version that created it."
        )
        return Reason(Kind.OFFLINE, text)
    seen = {int(view.get("node", 0)): view for view in views}
    last = max((int(view.get("last", 0)) for view in seen.values()), default=0)
    rows = sorted(
        (_row(member, node, seen.get(node, {}), last) for node in assigned.nodes), key=lambda row: row["name"]
    )
    reached = sum(not row["offline"] for row in rows)
    quorum = len(rows) // 2 + 1
    data = {"replicas": rows, "reachable": reached, "quorum": quorum}
    return Reason(Kind.NO_LEADER, _text(rows, reached, quorum), data)


def _row(member: MemberNode, node: int, view: View, last: int) -> dict[str, Any]:
    """Return the facts about one replica, in the form of `replicas` in a stream's info."""
    row = _server_row(member, node)
    if view:
        lag = max(last - int(view.get("last", 0)), 0)
        cause = str(view.get("cause", ""))
        return row | {"lag": lag} | ({"cause": cause} if cause else {})
    return row


def _server_row(member: MemberNode, node: int) -> dict[str, Any]:
    is_here = node == member.node
    quiet_ns = 0 if is_here else member.quiet_ns(node)
    offline = not is_here and node not in member.online
    known = member.machine.state.servers.get(node)
    return {"name": known.name if known else f"number {node}", "offline": offline, "active": quiet_ns}


def _text(rows: Sequence[Mapping[str, Any]], reached: int, quorum: int) -> str:
    if len(rows) == 1:
        return _single_text(rows[0])
    text = f"No replica leads it: {reached} of its {len(rows)} replicas can be reached, and {quorum} must be."
    if reached >= quorum:
        text = (
            f"No replica leads it, although {reached} of its {len(rows)} replicas can be reached: an election is"
            " under way. If this lasts, the network between these servers is broken in one direction, or they wait."
        )
    waiting = [row for row in rows if row.get("cause") or row.get("lag")]
    parts = (
        _listed("Offline", [f"{row['name']}{_quiet(row)}" for row in rows if row["offline"]]),
        _listed("Not current", [f"{row['name']} ({_waits(row)})" for row in waiting]),
        "" if reached >= quorum else " Start these servers, or repair the network between them.",
    )
    return text + "".join(parts)


def _single_text(row: Mapping[str, Any]) -> str:
    if row["offline"]:
        return f"Its only replica is on {row['name']}, which is offline{_quiet(row)}. Start that server."
    return f"Its only replica, on {row['name']}, is not open: {row.get('cause') or 'that server does not answer'}."


def _no_meta_leader(member: MemberNode, *, is_known: bool) -> Reason:
    """Return the reason that describes a metadata group without a leader.

    `is_known` means that this server knows the stream.
    """
    status = member.meta_status()
    voters = [] if status is None else [each.node for each in status.replicas if each.is_voter]
    rows = sorted((_server_row(member, node) for node in voters), key=lambda row: str(row["name"]))
    reached, quorum = sum(not row["offline"] for row in rows), len(rows) // 2 + 1
    text = (
        f"The metadata of the cluster has no leader: {reached} of {len(rows)} servers can be reached, and {quorum}"
        " must be. Streams cannot be created, changed or deleted."
    )
    text += _listed("Offline", [f"{row['name']}{_quiet(row)}" for row in rows if row["offline"]])
    if not is_known:
        text += " Until there is a leader, this server does not know whether the stream exists."
    data = {"servers": rows, "reachable": reached, "quorum": quorum}
    return Reason(Kind.NO_META_LEADER, text, data, stops=not is_known)


def _listed(what: str, names: Sequence[str]) -> str:
    return f" {what}: {', '.join(names)}." if names else ""


def _quiet(row: Mapping[str, Any]) -> str:
    return f" (for {about(row['active'])})" if row["active"] else ""


def _waits(row: Mapping[str, Any]) -> str:
    lag = f"{row['lag']:,} entries behind" if row.get("lag") else ""
    return ", ".join(part for part in (str(row.get("cause", "")), lag) if part)
