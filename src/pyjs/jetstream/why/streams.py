"""The reasons why a stream refuses all publishes because of its state.

The refusal of a single message needs no report: the error that the publisher gets explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.cluster.reports import name_of
from pyjs.jetstream.manage.stream_info import inflow_report
from pyjs.jetstream.stream.publish_errors import store_error
from pyjs.jetstream.why.leaderless import view_of, why_leaderless
from pyjs.jetstream.why.reasons import Kind, Reason
from pyjs.jetstream.why.replicas import why_not_current
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream


def why_stream(js: JetStream, stream: Stream) -> list[Reason]:
    """Return the reasons why a stream refuses publishes, and facts about the stream, most important first."""
    found = (
        _configured(stream),
        _store(stream),
        _replicas(js, stream),
        *_limits(stream),
        *_usage(js, stream),
        _no_consumers(stream),
        *_origins(js, stream),
    )
    return [each for each in found if each is not None]


def why_away(js: JetStream, name: str) -> list[Reason]:
    """Return the reasons why a stream is not open on this server; empty if this server does not know the stream."""
    if name in js.offline:
        text = f"It is offline: {js.offline[name].cause}. It opens on a server of the version that stored it."
        return [Reason(Kind.OFFLINE, text)]
    from pyjs.store.format.layout import file_name  # imported lazily, since it imports the file store

    if file_name(name) in js.unrecovered():
        text = (
            "Its files could not be opened at the start; the log names the cause."
            " `pyjs-server fsck` shows the damage and repairs it."
        )
        return [Reason(Kind.UNRECOVERED, text)]
    member = js.shared.member
    assigned = None if member is None else member.machine.state.stream(js.account.name, name)
    if member is None or assigned is None:
        return []
    cause = why_not_current(member, {js.account.name: js}, assigned)
    if member.node in assigned.nodes and cause:
        return [Reason(Kind.OFFLINE, f"Its replica on this server is not open: {cause}.")]
    if member.are_away(assigned.nodes):
        return [why_leaderless(member, assigned, ())]
    servers = [name_of(member.machine.state, node) for node in assigned.nodes]
    return [
        Reason(Kind.OFFLINE, f"It is not on this server, but on {', '.join(servers)}.", {"servers": servers})
    ]


def _configured(stream: Stream) -> Reason | None:
    config = stream.config
    if config.mirror is not None:
        text = f'It is a mirror: its messages come only from the stream "{config.mirror.name}".'
        return Reason(Kind.MIRROR, text, {"mirror": config.mirror.name})
    if config.sealed:
        return Reason(
            Kind.SEALED, "It is sealed, and nothing ends that. Create another stream for new messages."
        )
    if not config.subjects:
        return Reason(Kind.NO_SUBJECTS, "It has no subjects: messages come only from its sources.")
    return None


def _store(stream: Stream) -> Reason | None:
    store = stream.store
    if not store.failed:
        return None
    cause = store_error(store.error).description  # it has no paths, which clients must not see
    text = f"Its store cannot write: {cause}."
    comes_back = isinstance(store, FileStore) and store.resumable
    if comes_back:
        text += " Free space on the disk: it is tried again every second, and continues by itself."
    else:
        text += " It takes no messages until a restart; stored messages can be read."
    return Reason(Kind.STORE_FAILED, text, {"error": cause, "resumes": comes_back})


def _replicas(js: JetStream, stream: Stream) -> Reason | None:
    """Return a reason if a replicated stream has no leader, or if its replicas lag or are away, otherwise None."""
    member, replicated = js.shared.member, js.shared.replicated
    if member is None or replicated is None or not replicated.is_replica(stream):
        return None
    assigned = member.machine.state.stream(js.account.name, stream.name)
    if assigned is None:
        return None
    if not replicated.leader_of(stream):
        return why_leaderless(member, assigned, [view_of(js, stream.name)])
    rows = member.reports.stream(js, stream).get("replicas", [])
    behind = [row for row in rows if row.get("offline") or not row.get("current")]
    if not behind:
        return None
    names = ", ".join(
        f"{row['name']} ({'offline' if row.get('offline') else 'not current'})" for row in behind
    )
    text = f"Replicas that lag or are away: {names}. A publish is acknowledged when a majority has it."
    return Reason(Kind.REPLICA_LAGGING, text, {"replicas": rows}, stops=False)


def _limits(stream: Stream) -> list[Reason]:
    """Return a reason for each limit at which the stream refuses messages; [] if it discards old ones instead."""
    config, store = stream.config, stream.store
    if config.discard != "new":
        return []
    found, rule = [], "and discard is new; delete or purge messages, or raise the limit"
    if 0 < config.max_msgs <= store.msgs:
        text = f"max_msgs is reached ({store.msgs:,} of {config.max_msgs:,} messages), {rule}."
        replaces = config.max_msgs_per_subject > 0
        if replaces:
            text += (
                " A message that replaces another of its subject (max_msgs_per_subject) is still accepted."
            )
        data = {"messages": store.msgs, "max_msgs": config.max_msgs}
        found.append(Reason(Kind.MAX_MSGS, text, data, stops=not replaces))
    if 0 < config.max_bytes < store.bytes + _usual_size(stream):
        stops = config.max_bytes < store.bytes + _least_size(stream)
        what = "another message" if stops else "a message of the usual size"
        text = f"max_bytes has no room for {what} ({store.bytes:,} of {config.max_bytes:,} bytes), {rule}."
        found.append(
            Reason(Kind.MAX_BYTES, text, {"bytes": store.bytes, "max_bytes": config.max_bytes}, stops)
        )
    return found


def _usage(js: JetStream, stream: Stream) -> list[Reason]:
    """Return a reason for each limit of the account or the server at which the stream refuses messages.

    A replicated stream has no such limits.
    """
    if stream.replica is not None:
        return []
    storage = stream.config.storage
    kind = "memory" if storage == "memory" else "storage"
    account, server = js.usage[storage], js.shared.usage[storage]
    found, fix = [], "Delete messages or streams, or raise the limit."
    if 0 <= account.max < account.used + _usual_size(stream):
        text = f"The {kind} of the account is used up: {account.used:,} of {account.max:,} bytes. {fix}"
        stops = account.max < account.used + _least_size(stream)
        found.append(
            Reason(Kind.ACCOUNT_LIMIT, text, {"bytes": account.used, "max_bytes": account.max}, stops)
        )
    if 0 <= server.max < server.used:  # without numbers, which would reveal the usage of other accounts
        found.append(Reason(Kind.SERVER_LIMIT, f"The {kind} of the server is used up. {fix}"))
    return found


def _usual_size(stream: Stream) -> int:
    """Return the mean size of the stored messages in bytes, or the minimum size if there are none."""
    return stream.store.bytes // stream.store.msgs if stream.store.msgs else _least_size(stream)


def _least_size(stream: Stream) -> int:
    """Return the stored size in bytes of an empty message whose subject has one byte."""
    return stream.store.catalogue.overhead + 1


def _no_consumers(stream: Stream) -> Reason | None:
    if stream.config.retention != "interest" or stream.consumers:
        return None
    text = "It has no consumers, and retention is interest: publishes are acknowledged, and the messages are dropped."
    return Reason(Kind.NO_CONSUMERS, text, stops=False)


def _origins(js: JetStream, stream: Stream) -> list[Reason]:
    """Return a reason for each origin of the stream that has never answered, or that has an error."""
    found = []
    report = inflow_report(js, stream, lag=False)
    for row in [report["mirror"]] if "mirror" in report else report.get("sources", ()):
        error = row.get("error", {}).get("description", "")
        if error or row["active"] < 0:
            text = f'The origin "{row["name"]}" was not heard{f": {error}" if error else ""}.'
            text += " Check that the stream exists there, and the prefixes in `external`."
            found.append(Reason(Kind.ORIGIN_UNHEARD, text, {"origin": row["name"]}, stops=False))
    return found
