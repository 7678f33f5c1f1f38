"""The trace of one message: its events on the way through this server.

A trace is a list of events: arrival, delivery to each subscription, storage in a stream, a service of the server. It
is published when the message is delivered, or when the stream has written it. Knows nothing of JSON and of the
server's description (system_account).

Source: ADR-41; fields, texts and rules probed on nats-server 2.15.1 (tests/conformance/test_tracing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import quoted, time_text
from pyjs.core.auth.violations import publish_violation
from pyjs.core.tracing.request import DEST, ORIGIN_ACCOUNT, TraceRequest, read_request, without_trace
from pyjs.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.account import Account
    from pyjs.core.session import ClientSession
    from pyjs.subjects.sublist import Subscription

CLIENT = 0  # kind of a connection
ALL = 100  # percent of the messages with a traceparent


class Trace:
    """The trace of one message from a client."""

    __slots__ = (
        "_session",
        "account",
        "dest",
        "encoding",
        "events",
        "headers",
        "later",
        "only",
        "size",
        "stream",
    )

    def __init__(
        self, session: ClientSession, request: TraceRequest, dest: str, subject: bytes, size: int
    ) -> None:
        self._session = session
        self.account: Account = session.account
        self.dest = dest.encode()
        self.only = request.only  # deliver and store nothing
        self.encoding = request.first("Accept-Encoding")
        self.headers = request.headers
        self.size = size
        self.stream: dict[str, object] | None = None  # the event of the stream that stores the message
        self.later: Callable[[bytes, bytes, bytes], None] | None = (
            None  # publishes when the message is written
        )
        self.events: list[dict[str, object]] = []
        self._add(
            "in",
            kind=CLIENT,
            cid=session.cid,
            **_named(session),
            acc=session.account.name,
            subj=_text(subject),
        )

    def fail(self, error: str) -> None:
        """Record that the message was refused on arrival."""
        self.events[0]["error"] = error

    def egress(self, session: ClientSession, sub: Subscription, error: str = "") -> None:
        """Record the delivery to a subscription of a client, or the reason against it."""
        fields: dict[str, object] = {"kind": CLIENT, "cid": session.cid, **_named(session)}
        if session.account is not self.account:
            fields["acc"] = session.account.name
        fields["sub"] = _text(sub.subject)
        if sub.queue:
            fields["queue"] = _text(sub.queue)
        self._add("eg", **fields, **({"error": error} if error else {}))

    def service(self, subject: bytes, dest: bytes) -> None:
        """Record a request that the server answers through the system account."""
        system = self._session.host.system_account
        self._add("si", acc="" if system is None else system.name, **{"from": _text(subject)}, to=_text(dest))

    def imported(self, account: str, subject: bytes, to: bytes) -> None:
        """Record that the message was forwarded to a service of another account."""
        self._add("si", acc=account, **{"from": _text(subject)}, to=_text(to))

    def exported(self, account: str, to: bytes) -> None:
        """Record that the message was forwarded to an account that imports a stream of this one."""
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
        """Record that the stream refused the message; `subject` is the one under which it would be stored."""
        assert self.stream is not None
        if subject:
            self.stream["subject"] = _text(subject)
        self.stream["error"] = error

    @property
    def failed(self) -> bool:
        """Whether the stream refused the message."""
        return self.stream is not None and "error" in self.stream

    def _add(self, event_type: str, **fields: object) -> dict[str, object]:
        event = {"type": event_type, "ts": time_text(self._session.host.clock.now_ns()), **fields}
        self.events.append(event)
        return event


@dataclass(slots=True)
class Decision:
    """The decision about a message with trace headers."""

    trace: Trace | None = None
    dropped: bool = False  # it is not delivered
    headers: bytes = b""  # replaces its header block, unless b""


def decide(session: ClientSession, subject: bytes, block: bytes, size: int) -> Decision:
    """Decide whether a message of `session` is traced; may send the client a permissions violation."""
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
    return Decision(Trace(session, request, dest, subject, size))


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
