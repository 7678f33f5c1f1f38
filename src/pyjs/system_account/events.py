"""Events published to the system account: logins, disconnects, refused logins, and statistics.

An event is composed only if it has a subscriber. Sessions open and close in the middle of other work, so
events are queued, and a chore publishes a few in each step; beyond QUEUE_MAX, the oldest events are dropped. If the
number of connections of an account changes several times before the event about it is published, there is only one
such event, with the last number.

Source: nats.docs "System Events"; subjects, fields and order probed on nats-server 2.15.1
(tests/conformance/test_system_events.py).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid
from pyjs.core.auth.identity import client_info
from pyjs.core.auth.login import FAILURE
from pyjs.core.auth.users import GLOBAL_ACCOUNT
from pyjs.core.host import SessionEvents
from pyjs.core.link import shown_reason
from pyjs.system_account.encoding import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.core.session import ClientSession
    from pyjs.core.tracing.trace import Trace
    from pyjs.node import Node
    from pyjs.system_account.answers import Answers

NS_PER_S = 1_000_000_000
# the first interval; each interval is twice the one before, up to the final one
FIRST_STATSZ_NS = NS_PER_S // 4
STATSZ_NS = 10 * NS_PER_S
CONNS_NS = 30 * NS_PER_S
STEP = 16  # events published in one step
QUEUE_MAX = 10_000
PREFIX = "io.nats.server.advisory.v1."


class _Event(NamedTuple):
    subjects: tuple[bytes, ...]  # only subjects that have subscribers
    kind: str  # the last part of the event's type
    fields: dict[str, object]


class SystemEvents(SessionEvents):
    """The publisher of the system events of one server."""

    def __init__(
        self, node: Node, answers: Callable[[], Answers], subscribe: Callable[[], None] = lambda: None
    ) -> None:
        self._node = node
        self._subscribe = subscribe  # called when an account is added, to subscribe to requests in it
        self._answers = answers
        # Events to publish; the name of an account stands for the event about its connections.
        self._queue: deque[_Event | str] = deque(maxlen=QUEUE_MAX)
        self._changed: set[str] = set()  # names of the accounts in the queue
        self._publishing = False  # a chore that publishes the queue exists
        self._interval_ns = FIRST_STATSZ_NS
        self._conns_due_ns = node.clock.now_ns() + CONNS_NS
        self._arm()

    def account_added(self) -> None:
        """Subscribe to the requests that clients of a new account may send."""
        self._subscribe()

    # -- sessions ----------------------------------------------------------------------------------------------
    def entered(self, session: ClientSession) -> None:
        """Queue the events about a client that logged in."""
        account = session.account.name
        self._report_connections(account)
        self._report(session, "client_connect", {}, f"$SYS.ACCOUNT.{account}.CONNECT")

    def closed(self, session: ClientSession) -> None:
        """Queue the events about a client that disconnected or was refused."""
        account = session.account.name
        self._report_connections(account)
        more: dict[str, object] = {
            "sent": {"msgs": session.in_msgs, "bytes": session.in_bytes},  # by the client
            "received": {"msgs": session.out_msgs, "bytes": session.out_bytes},
            "reason": shown_reason(session.closed_reason),
        }
        subjects = [f"$SYS.ACCOUNT.{account}.DISCONNECT"]
        if session.closed_reason == FAILURE:
            subjects.insert(0, f"$SYS.SERVER.{self._node.server_id}.CLIENT.AUTH.ERR")
        self._report(session, "client_disconnect", more, *subjects)

    def _report(self, session: ClientSession, kind: str, more: dict[str, object], *subjects: str) -> None:
        heard = self._heard(*subjects)
        if heard:
            self._add(_Event(heard, kind, {"client": client_fields(session), **more}))

    def _report_connections(self, account: str) -> None:
        if account in self._changed or account == GLOBAL_ACCOUNT:
            return
        if self._heard(*_conns_subjects(account)):
            self._changed.add(account)
            self._add(account)

    def _heard(self, *subjects: str) -> tuple[bytes, ...]:
        """Return those of `subjects` that have a subscriber in the system account, as bytes."""
        system = self._node.system_account
        if system is None:
            return ()
        return tuple(raw for raw in (subject.encode() for subject in subjects) if system.has_interest(raw))

    def _add(self, entry: _Event | str) -> None:
        self._queue.append(entry)
        if not self._publishing:
            self._publishing = True
            self._node.turn_state.go_on(self._publish_steps())

    # -- publishing --------------------------------------------------------------------------------------------
    def _publish_steps(self) -> Generator[None, None, None]:
        try:
            while self._queue:
                for _ in range(min(STEP, len(self._queue))):
                    self._publish(self._queue.popleft())
                yield
        finally:
            self._publishing = False
            self._changed.clear()

    def _publish(self, entry: _Event | str) -> None:
        system = self._node.system_account
        if system is None:
            return
        if isinstance(entry, str):
            self._changed.discard(entry)
            for subject in self._heard(*_conns_subjects(entry)):
                system.send(subject, self._answers().connection_figures(self._node.accounts[entry]))
            return
        head = {
            "type": f"{PREFIX}{entry.kind}",
            "id": nuid(self._node.rng),
            "timestamp": time_text(self._node.clock.now_ns()),
        }
        for subject in entry.subjects:
            system.send(subject, self._answers().event(head, entry.fields))

    def announce(self, what: str) -> None:
        """Publish the event `what` (SHUTDOWN or LAMEDUCK) before returning."""
        system = self._node.system_account
        for subject in self._heard(f"$SYS.SERVER.{self._node.server_id}.{what}"):
            assert system is not None
            system.send(subject, self._answers().description())

    def traced(self, trace: Trace) -> None:
        """Publish a trace; if a stream stores the traced message, the trace is published after the PubAck."""
        request: dict[str, object] = {"header": dict(sorted(trace.headers.items())), "msgsize": trace.size}
        hops = {"hops": trace.hops} if trace.hops else {}
        body = self._answers().event({}, {"request": request, **hops, "events": trace.events})
        headers, body = encoded(body, trace.encoding)
        if trace.later is None:
            trace.account.send(trace.dest, body, headers)
        else:
            trace.later(trace.dest, headers, body)

    # -- statistics --------------------------------------------------------------------------------------------
    def _arm(self) -> None:
        self._node.timers.at(self._node.clock.now_ns() + self._interval_ns, self._tick, self)

    def _tick(self) -> None:
        """Publish STATSZ; at intervals of CONNS_NS, also publish CONNS for each account that has connections."""
        self._interval_ns = min(2 * self._interval_ns, STATSZ_NS)
        self._arm()
        system = self._node.system_account
        if system is None:
            return
        for subject in self._heard(f"$SYS.SERVER.{self._node.server_id}.STATSZ"):
            system.send(subject, self._answers().statistics())
        now_ns = self._node.clock.now_ns()
        if now_ns >= self._conns_due_ns:
            self._conns_due_ns = now_ns + CONNS_NS
            for name, account in self._node.accounts.items():
                if account.sessions:
                    self._report_connections(name)


def client_fields(session: ClientSession) -> dict[str, object]:
    """Return the fields of a client, as events show them."""
    account = session.account.name
    fields = client_info(session, account, "")
    del fields["server"]
    if session.closed_at_ns:
        fields["stop"] = time_text(session.closed_at_ns)
    return {**fields, "name_tag": session.account.tag}


def _conns_subjects(account: str) -> tuple[str, str]:
    return f"$SYS.SERVER.ACCOUNT.{account}.CONNS", f"$SYS.ACCOUNT.{account}.SERVER.CONNS"
