"""/healthz: the health of the server and, if requested, of a stream or consumer.

Source: monitoring section of nats.docs; texts and statuses seen on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import quoted
from pyjs.jetstream.why.replicas import IN_DOUBT, why_not_current
from pyjs.monitor.arguments import Arguments
from pyjs.monitor.json_text import JsonDict

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.monitor.state import Monitored

    Accounts: TypeAlias = dict[str, JetStream]
    Steps: TypeAlias = "Generator[None, None, Trouble | None]"

UNAVAILABLE = "unavailable"
STEP = 1000  # streams checked in one turn, in about a millisecond


class Wanted(NamedTuple):
    """The account, the stream and the consumer that a request is about; an empty name means all."""

    account: str
    stream: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A health problem, as /healthz reports it."""

    http_status: int
    status: str  # the field `status` of a body without details
    kind: str  # CONNECTION, BAD_REQUEST, JETSTREAM, ACCOUNT, STREAM or CONSUMER
    error: str
    account: str = ""
    stream: str = ""
    consumer: str = ""


def healthz(monitored: Monitored, arguments: Arguments) -> Generator[None, None, tuple[int, JsonDict]]:
    """Return the HTTP status and the body of /healthz; yield between steps.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
    """
    enabled_only = arguments.flag("js-enabled") | arguments.flag("js-enabled-only")
    server_only = arguments.flag("js-server-only")
    meta_only = arguments.flag("js-meta-only")
    details = arguments.flag("details")
    wanted = Wanted(*(arguments.text(name) for name in ("account", "stream", "consumer")))
    trouble = _bad_request(wanted)
    if trouble is None and not monitored.ready:
        trouble = Trouble(500, "error", "CONNECTION", "server is not ready for connections")
    if trouble is None and not server_only and monitored.options.runs_jetstream:
        jetstream = monitored.node.jetstream
        if jetstream is None:
            trouble = Trouble(503, UNAVAILABLE, "JETSTREAM", "JetStream not enabled")
        elif not enabled_only and jetstream.shared.member is None:
            # a single server has no metadata group to check
            trouble = yield from _asset_trouble(jetstream.accounts, wanted)
        elif not enabled_only:
            assert jetstream.shared.member is not None
            trouble = _meta_trouble(jetstream.shared.member)
            if trouble is None and not meta_only:
                trouble = yield from _member_trouble(jetstream.shared.member, jetstream.accounts, wanted)
    return _answer(trouble, details)


def _answer(trouble: Trouble | None, details: bool) -> tuple[int, JsonDict]:
    if trouble is None:
        return 200, {"status": "ok"}
    if not details:
        return trouble.http_status, {"status": trouble.status, "error": trouble.error}
    error: JsonDict = {"type": trouble.kind}
    for name in ("account", "stream", "consumer"):
        if value := getattr(trouble, name):
            error[name] = value
    error["error"] = trouble.error
    return trouble.http_status, {"status": "error", "errors": [error]}


def _bad_request(wanted: Wanted) -> Trouble | None:
    if wanted.stream and not wanted.account:
        return Trouble(400, "error", "BAD_REQUEST", '"account" must not be empty when checking stream health')
    if wanted.consumer and not wanted.stream:
        return Trouble(
            400, "error", "BAD_REQUEST", '"stream" must not be empty when checking consumer health'
        )
    return None


def _meta_trouble(member: MemberNode) -> Trouble | None:
    """Return the problem of the cluster's metadata group, or None if it is healthy."""
    text = ""
    if not member.machine.leader and member.meta_group and (missing := member.missing(member.meta_group)):
        text = f"JetStream metadata is {IN_DOUBT.format(missing)}"
    elif not member.machine.leader:
        text = "JetStream has not established contact with a meta leader"
    elif not member.is_caught_up:
        text = "JetStream is not current with the meta leader"
    return Trouble(503, UNAVAILABLE, "JETSTREAM", text) if text else None


def _asset_trouble(accounts: Accounts, wanted: Wanted) -> Steps:
    """Return the first problem with the streams or the requested assets of a single server, or None."""
    trouble = yield from _stored_trouble(accounts, wanted)
    return trouble or _missing(accounts, wanted)


def _stored_trouble(accounts: Accounts, wanted: Wanted) -> Steps:
    """Return the first problem with the stored data of a wanted stream, or None."""
    for name, engine in list(accounts.items()):
        if wanted.account in ("", name):
            for at, each in enumerate(list(engine.streams.values())):
                if at % STEP == STEP - 1:
                    yield
                is_wanted = wanted.stream in ("", each.name) and engine.streams.get(each.name) is each
                if is_wanted and each.store.failed:  # the store of a stream deleted since then is closed
                    text = f"JetStream stream '{name} > {each.name}' write error: {each.store.error}"
                    return Trouble(503, UNAVAILABLE, "STREAM", text, name, each.name)
            for gone in engine.unrecovered():
                if wanted.stream in ("", gone):
                    text = f"JetStream stream '{name} > {gone}' could not be recovered"
                    return Trouble(503, UNAVAILABLE, "STREAM", text, name, gone)
    return None


def _member_trouble(member: MemberNode, accounts: Accounts, wanted: Wanted) -> Steps:
    """Return the first problem with a wanted stream that the metadata assigns to this server, or None."""
    assigned = member.assigned_here(wanted.account, wanted.stream)
    engine = accounts.get(wanted.account)
    if wanted.account and not member.machine.state.accounts.get(wanted.account):
        return _no_account(wanted.account)
    if wanted.stream and not assigned:
        return _no_stream(wanted.account, wanted.stream)
    opened = None if engine is None else engine.streams.get(wanted.stream)
    if wanted.consumer and opened is not None and wanted.consumer not in opened.consumers:
        return _no_consumer(wanted)
    trouble = yield from _stored_trouble(accounts, wanted)
    if trouble is not None:
        return trouble
    for at, stream in enumerate(assigned):
        if at % STEP == STEP - 1:
            yield
        reason = why_not_current(member, accounts, stream)
        # the assignment may have changed since then
        if reason and stream in member.assigned_here(stream.account, stream.name):
            text = f"JetStream stream '{stream.account} > {stream.name}' is not current: {reason}"
            return Trouble(503, UNAVAILABLE, "STREAM", text, stream.account, stream.name)
    return None


def _missing(accounts: Accounts, wanted: Wanted) -> Trouble | None:
    """Return a problem if a single server lacks a requested account, stream or consumer, otherwise None."""
    if not wanted.account:
        return None
    engine = accounts.get(wanted.account)
    # as in nats-server, accounts without stored streams count as missing
    if engine is None or not engine.streams:
        return _no_account(wanted.account)
    if not wanted.stream:
        return None
    found = engine.streams.get(wanted.stream)
    if found is None:
        return _no_stream(wanted.account, wanted.stream)
    return _no_consumer(wanted) if wanted.consumer and wanted.consumer not in found.consumers else None


def _no_account(account: str) -> Trouble:
    return Trouble(404, UNAVAILABLE, "ACCOUNT", f"JetStream account {quoted(account)} not found", account)


def _no_stream(account: str, stream: str) -> Trouble:
    text = f"JetStream stream {quoted(stream)} not found on account {quoted(account)}"
    return Trouble(404, UNAVAILABLE, "STREAM", text, account, stream)


def _no_consumer(wanted: Wanted) -> Trouble:
    where = f"for stream {quoted(wanted.stream)} on account {quoted(wanted.account)}"
    text = f"JetStream consumer {quoted(wanted.consumer)} not found {where}"
    return Trouble(404, UNAVAILABLE, "CONSUMER", text, *wanted)
