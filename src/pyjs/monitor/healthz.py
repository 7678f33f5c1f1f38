"""/healthz: the health of the server, and on request of a stream or consumer.

Source: monitoring section of nats.docs; texts and statuses seen on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import quoted
from pyjs.monitor.arguments import Arguments
from pyjs.monitor.json_text import JsonDict

if TYPE_CHECKING:
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.monitor.state import Monitored

UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The first problem that was found."""

    http_status: int
    status: str  # of the body without details
    kind: str  # CONNECTION, BAD_REQUEST, JETSTREAM, ACCOUNT, STREAM or CONSUMER
    error: str
    account: str = ""
    stream: str = ""
    consumer: str = ""


def healthz(monitored: Monitored, arguments: Arguments) -> tuple[int, JsonDict]:
    """Return the HTTP status and the body.

    Raises:
        BadArgument: an argument is invalid; the text is nats-server's.
    """
    enabled_only = arguments.flag("js-enabled") | arguments.flag("js-enabled-only")
    server_only = arguments.flag("js-server-only")
    meta_only = arguments.flag("js-meta-only")
    details = arguments.flag("details")
    account, stream, consumer = (arguments.text(name) for name in ("account", "stream", "consumer"))
    trouble = _bad_request(account, stream, consumer)
    if trouble is None and not monitored.ready:
        trouble = Trouble(500, "error", "CONNECTION", "server is not ready for connections")
    if trouble is None and not server_only and monitored.options.runs_jetstream:
        if monitored.node.jetstream is None:
            trouble = Trouble(503, UNAVAILABLE, "JETSTREAM", "JetStream not enabled")
        elif not enabled_only:
            is_member = monitored.node.jetstream.shared.member is not None
            trouble = _meta_trouble(monitored)
            if trouble is None and not (meta_only and is_member):  # a single server has no metadata
                trouble = _asset_trouble(monitored, account, stream, consumer)
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


def _bad_request(account: str, stream: str, consumer: str) -> Trouble | None:
    if stream and not account:
        return Trouble(400, "error", "BAD_REQUEST", '"account" must not be empty when checking stream health')
    if consumer and not stream:
        return Trouble(
            400, "error", "BAD_REQUEST", '"stream" must not be empty when checking consumer health'
        )
    return None


def _accounts(monitored: Monitored) -> dict[str, JetStream]:
    jetstream = monitored.node.jetstream
    return jetstream.accounts if jetstream is not None else {}


def _meta_trouble(monitored: Monitored) -> Trouble | None:
    """Return the problem of the cluster's metadata, or None."""
    jetstream = monitored.node.jetstream
    member = None if jetstream is None else jetstream.shared.member
    if member is None:
        return None
    text = ""
    if not member.machine.leader:
        text = "JetStream has not established contact with a meta leader"
    elif not member.is_caught_up:
        text = "JetStream is not current with the meta leader"
    return Trouble(503, UNAVAILABLE, "JETSTREAM", text) if text else None


def _asset_trouble(monitored: Monitored, account: str, stream: str, consumer: str) -> Trouble | None:
    for name, engine in _accounts(monitored).items():
        if account in ("", name):
            for each in engine.streams.values():
                if stream in ("", each.name) and each.store.failed:
                    text = f"JetStream stream '{name} > {each.name}' write error: {each.store.error}"
                    return Trouble(503, UNAVAILABLE, "STREAM", text, name, each.name)
            for gone in engine.unrecovered():
                if stream in ("", gone):
                    text = f"JetStream stream '{name} > {gone}' could not be recovered"
                    return Trouble(503, UNAVAILABLE, "STREAM", text, name, gone)
    return _missing(monitored, account, stream, consumer)


def _missing(monitored: Monitored, account: str, stream: str, consumer: str) -> Trouble | None:
    if not account:
        return None
    engine = _accounts(monitored).get(account)
    if engine is None or not engine.streams:  # as in nats-server: an account is found by its stored streams
        return Trouble(404, UNAVAILABLE, "ACCOUNT", f"JetStream account {quoted(account)} not found", account)
    if not stream:
        return None
    found = engine.streams.get(stream)
    if found is None:
        text = f"JetStream stream {quoted(stream)} not found on account {quoted(account)}"
        return Trouble(404, UNAVAILABLE, "STREAM", text, account, stream)
    if consumer and consumer not in found.consumers:
        where = f"for stream {quoted(stream)} on account {quoted(account)}"
        text = f"JetStream consumer {quoted(consumer)} not found {where}"
        return Trouble(404, UNAVAILABLE, "CONSUMER", text, account, stream, consumer)
    return None
