"""The trace of one message: its events in this server.

The events are the arrival, each delivery to a subscription, the storage in a stream, and each request to a service of
the server. The trace is published after the message has been delivered. If a stream stores the message, the trace is
published after the stream has written the message. This module knows nothing of JSON or of the server's description
(system_account).

Source: ADR-41; fields, texts and rules probed on nats-server 2.15.1 (tests/conformance/test_tracing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import quoted, time_text
from pyjs.core.auth.violations import publish_violation
from pyjs.core.tracing.request import DEST, HOP, ORIGIN_ACCOUNT, TraceRequest, read_request, without_trace
from pyjs.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.core.session import ClientSession
    from pyjs.subjects.sublist import Subscription

CLIENT = 0  # kind of a connection
ROUTER = 1
ALL = 100  # percent of the messages with a traceparent


class Trace:
    """The trace of one message from a client, or from another server."""

    __slots__ = (
        "_host",
        "account",
        "dest",
        "encoding",
        "events",
        "headers",
        "hop",
        "hops",
        "ingress",
        "later",
        "only",
        "size",
        "stream",
    )

    def __init__(self, host: Host, account: Account, request: TraceRequest, dest: str, size: int) -> None:
        self._host = host
        self.account = account  # the account in which the trace is published
        self.ingress = account  # the account in which the message arrived
        self.dest = dest.encode()
        self.only = request.only  # neither deliver nor store the message
        self.encoding = request.first("Accept-Encoding")
        self.headers = request.headers
        self.hop = ""  # the hop of this server; "": the publisher is connected to this server
        self.hops = 0  # number of servers to which this server sent the message
        self.size = size
        self.stream: dict[str, object] | None = None  # the event of the stream that stores the message
        self.later: Callable[[bytes, bytes, bytes], None] | None = (
            None  # publishes when the message is written
        )
        self.events: list[dict[str, object]] = []

    def arrive(self, subject: bytes, kind: int, cid: int, name: str) -> None:
        """Record that the message arrived from a client or from another server."""
        named = {"name": name} if name else {}
        self._add("in", kind=kind, cid=cid, **named, acc=self.ingress.name, subj=_text(subject))

    def leave(self, cid: int, name: str) -> str:
        """Record that the message was sent to another server; return the value of the hop header for that server."""
        self.hops += 1
        hop = f"{self.hop}.{self.hops}" if self.hop else str(self.hops)
        self._add("eg", kind=ROUTER, cid=cid, name=name, hop=hop)
        return hop

    def fail(self, error: str) -> None:
        """Record that the message was refused on arrival."""
        self.events[0]["error"] = error

    def egress(self, session: ClientSession, sub: Subscription, error: str = "") -> None:
        """Record the delivery to a client's subscription; a non-empty `error` states why it was not delivered."""
        fields: dict[str, object] = {"kind": CLIENT, "cid": session.cid, **_named(session)}
        if session.account is not self.ingress:
            fields["acc"] = session.account.name
        fields["sub"] = _text(sub.subject)
        if sub.queue:
            fields["queue"] = _text(sub.queue)
        self._add("eg", **fields, **({"error": error} if error else {}))

    def service(self, subject: bytes, dest: bytes) -> None:
        """Record a request that the server answers through the system account."""
        system = self._host.system_account
        self._add("si", acc="" if system is None else system.name, **{"from": _text(subject)}, to=_text(dest))

    def imported(self, account: str, subject: bytes, to: bytes) -> None:
        """Record that the message was forwarded to a service of another account."""
        self._add("si", acc=account, **{"from": _text(subject)}, to=_text(to))

    def exported(self, account: str, to: bytes) -> None:
        """Record that the message was forwarded to an account that imports a stream of this account."""
        self._add("se", acc=account, to=_text(to))

    def enter_stream(self, name: str) -> None:
        """Record that a stream accepted the message."""
        self.stream = self._add("js", stream=name)

    def stored(self, subject: bytes, has_interest: bool) -> None:
        """Record the subject under which the stream stores the message."""
        assert self.stream is not None
        self.stream["subject"] = _text(subject)
        if not has_interest:
            self.stream["nointerest"] = True

    def refused(self, error: str, subject: bytes = b"") -> None:
        """Record that the stream refused the message.

        `subject` is given only for errors where nats-server includes the subject in the trace.
        """
        assert self.stream is not None
        if subject:
            self.stream["subject"] = _text(subject)
        self.stream["error"] = error

    @property
    def failed(self) -> bool:
        """Whether the stream refused the message."""
        return self.stream is not None and "error" in self.stream

    def _add(self, event_type: str, **fields: object) -> dict[str, object]:
        event = {"type": event_type, "ts": time_text(self._host.clock.now_ns()), **fields}
        self.events.append(event)
        return event


@dataclass(slots=True)
class Decision:
    """The decision whether and how to trace a message with trace headers."""

    trace: Trace | None = None
    dropped: bool = False  # the message is not delivered
    headers: bytes = b""  # replaces the header block of the message, unless b""


def decide(session: ClientSession, subject: bytes, block: bytes, size: int) -> Decision:
    """Decide whether to trace a message of `session`; may send the client a permissions violation."""
    request = read_request(block)
    if request is None:
        return Decision()
    log = session.host.log
    if origin := request.first(ORIGIN_ACCOUNT):
        log.error(
            f"{session} - Message tracing disabled because of header {quoted(ORIGIN_ACCOUNT)} with"
            f" value={quoted(origin)}"
        )
        return Decision(dropped=request.only, headers=without_trace(block))
    dest = request.first(DEST)
    if request.external:
        destination = session.account.trace_dest
        if destination is None or not destination.dest:
            return Decision()
        dest = destination.dest
        if not _is_sampled(session, destination.sampling):
            return Decision(headers=without_trace(block))
    if not is_valid_literal(dest.encode()):
        log.error(f"{session} - Destination {quoted(dest)} is not valid, won't be able to trace events")
        return Decision(dropped=request.only)
    if not _may_trace_to(session, dest.encode()):
        session.report(publish_violation(dest.encode()))
        return Decision(dropped=True)
    trace = Trace(session.host, session.account, request, dest, size)
    trace.arrive(subject, CLIENT, session.cid, session.options.name)
    return Decision(trace)


def decide_routed(host: Host, account: Account, block: bytes, size: int) -> Decision:
    """Decide whether to trace a message from another server, which has checked the permissions."""
    request = read_request(block)
    if request is None:
        return Decision()
    origin = request.first(ORIGIN_ACCOUNT)
    publisher = host.accounts.get(origin) if origin else account
    if publisher is None:
        return Decision(dropped=request.only)
    dest = request.first(DEST)
    if request.external:
        if publisher.trace_dest is None or not publisher.trace_dest.dest:
            return Decision()
        dest = publisher.trace_dest.dest
    if not is_valid_literal(dest.encode()):
        return Decision(dropped=request.only)  # the other server has logged the error
    trace = Trace(host, publisher, request, dest, size)
    trace.ingress = account
    trace.hop = request.first(HOP)
    return Decision(trace)


def _is_sampled(session: ClientSession, sampling: int) -> bool:
    if not 0 < sampling < ALL:
        return True
    return int.from_bytes(session.host.rng.randbytes(4), "little") % ALL <= sampling


def _may_trace_to(session: ClientSession, dest: bytes) -> bool:
    if dest.startswith(b"_GR_."):
        return False
    if dest.startswith(b"$NRG.") and session.account is not session.host.system_account:
        return False
    permissions = session.permissions
    return permissions is None or permissions.may_publish(dest)


def _named(session: ClientSession) -> dict[str, object]:
    return {"name": session.options.name} if session.options.name else {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
