"""The link of a mirror or source to a consumer of its origin that already exists.

The consumer is reset to its ack floor with a request to the origin's API; its answer shows whether it has the ack
policy flow_control, and only then the deliver subject is subscribed. States: idle (no request sent), asked (a request
waits for its answer), taking (subscribed), waiting (until the next request, after an error), probing (no answer came:
the deliver subject is subscribed, and the first message there leads to the next request), closed.

Knows nothing of messages (durable.pyx).
Source: nats-server's source, server/stream.go; probed on nats-server 2.15.1
(tests/conformance/scenarios/mirror, source: consumer_...).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import orjson

from pyjs.base.bounds import SEQ_MAX
from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE
from pyjs.base.nuid import nuid
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.subjects.sublist import Subscription

ANSWER_NS = 5 * NS_PER_S  # the longest wait for an answer
BETWEEN_NS = 2 * NS_PER_S  # the least time between two requests
SILENT_NS = 10 * NS_PER_S  # without message or heartbeat the consumer is taken for gone
_PROGRESS = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"


class Link(Enum):
    """The state of a link."""

    IDLE = "idle"
    ASKED = "asked"
    TAKING = "taking"
    WAITING = "waiting"
    PROBING = "probing"
    CLOSED = "closed"


class ConsumerLink:
    """The link of one copier."""

    def __init__(
        self,
        js: JetStream,
        source: StreamSource,
        copier: Copier,
        begin: Callable[[Copier, int], None],
    ) -> None:
        assert source.consumer is not None
        self._js = js
        self._source = source
        self._consumer = source.consumer
        self._copier = copier
        self._begin = begin  # called with the copier and delivered.stream_seq: opens it
        self._state = Link.IDLE
        self._asked_ns = -BETWEEN_NS
        self._subscription: Subscription | None = None
        self._timer: Timer | None = None

    def renew(self) -> None:
        """Request another reset of the consumer after a pause; until then the copier takes no deliveries."""
        if self._state in (Link.IDLE, Link.TAKING):
            self._ask_later(BETWEEN_NS)

    def origin_opened(self) -> None:
        """Request a reset at once, since the origin was opened; do nothing if the consumer already delivers."""
        if self._state is not Link.TAKING:
            self._ask_later(0)

    def origin_closed(self) -> None:
        """Probe for a new consumer, since that of the closed origin is gone."""
        if self._state is Link.TAKING:
            self._probe()

    def answer(self, reply: bytes, cseq: int, seq: int) -> None:
        """Acknowledge the deliveries up to these sequences."""
        self._js.account.send(reply, b"", progress(cseq, seq))

    def close(self) -> None:
        """End the link."""
        self._leave(Link.CLOSED)

    # -- states --------------------------------------------------------------------------------------------

    def _leave(self, state: Link) -> None:
        self._state = state
        if self._subscription is not None:
            self._js.account.unsubscribe(self._subscription)
            self._subscription = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause(self) -> None:
        if self._copier.feed is not None:
            self._copier.feed.pause()

    def _call_at(self, at_ns: int, call: Callable[[], None]) -> None:
        self._timer = self._js.shared.timers.at(at_ns, call, self._copier.target)

    def _ask_later(self, between_ns: int) -> None:
        now_ns = self._js.shared.clock.now_ns()
        if now_ns >= self._asked_ns + between_ns:
            self._ask()
            return
        self._leave(Link.WAITING)
        self._pause()
        self._call_at(self._asked_ns + between_ns, self._ask)

    def _ask(self) -> None:
        self._leave(Link.ASKED)
        self._pause()
        account, external = self._js.account, self._source.external
        self._asked_ns = self._js.shared.clock.now_ns()
        self._call_at(self._asked_ns + ANSWER_NS, self._probe)
        reply = f"$JSC.R.{nuid(self._js.shared.rng)}".encode()
        self._subscription = account.subscribe_handler(reply, self._on_answer)
        prefix = "$JS.API" if external is None else external.api.rstrip(".")
        subject = f"{prefix}.CONSUMER.RESET.{self._source.name}.{self._consumer.name}"
        account.send(subject.encode(), b"", b"", reply)

    def _probe(self) -> None:
        self._leave(Link.PROBING)
        self._pause()
        subject = self._consumer.deliver_subject.encode()
        self._subscription = self._js.account.subscribe_handler(subject, self._on_sign)
        self._call_at(self._js.shared.clock.now_ns() + SILENT_NS, self._ask)

    def _on_sign(self, request: Request) -> None:
        if self._state is Link.PROBING:
            self._ask_later(0)

    def _on_answer(self, request: Request) -> None:
        if self._state is not Link.ASKED:
            return
        try:
            self._begin(self._copier, self._delivered(request.payload))
        except ApiError as error:
            self._copier.error = error
            self._leave(Link.WAITING)
            self._call_at(self._js.shared.clock.now_ns() + BETWEEN_NS, self._ask)
            return
        self._leave(Link.TAKING)
        subject = self._consumer.deliver_subject.encode()
        assert self._copier.feed is not None
        self._subscription = self._js.account.subscribe(subject, self._copier.feed)
        self._watch()

    def _delivered(self, payload: bytes) -> int:
        """Return the last sequence that the consumer has delivered. Raises ApiError: the answer is an error."""
        mirrors = self._copier.mirrors
        try:
            answer = orjson.loads(payload)
            if error := answer.get("error"):
                raise ApiError(int(error["code"]), int(error["err_code"]), str(error["description"]))
            policy, delivered = answer["config"]["ack_policy"], int(answer["delivered"]["stream_seq"])
            if not 0 <= delivered < SEQ_MAX:
                raise ValueError(delivered)
        except NONSENSE:
            failed = (
                errcodes.MIRROR_CONSUMER_SETUP_FAILED if mirrors else errcodes.SOURCE_CONSUMER_SETUP_FAILED
            )
            raise failed.error(err="invalid consumer create response") from None
        if policy != "flow_control":
            no_flow = (
                errcodes.MIRROR_CONSUMER_REQUIRES_ACK_FC
                if mirrors
                else errcodes.SOURCE_CONSUMER_REQUIRES_ACK_FC
            )
            raise no_flow.error()
        return delivered

    def _watch(self) -> None:
        """Ask again if the consumer has been silent."""
        now_ns, due_ns = self._js.shared.clock.now_ns(), self._copier.active_ns + SILENT_NS
        if now_ns >= due_ns:
            self._ask()
        else:
            self._call_at(due_ns, self._watch)


def progress(cseq: int, seq: int) -> bytes:
    """Return the headers that acknowledge the deliveries up to these sequences."""
    return _PROGRESS % (cseq, seq)


def read_heartbeat(headers: bytes) -> tuple[int, bytes]:
    """Return the last consumer_seq of a heartbeat and the flow control request that it repeats, or (0, b"")."""
    lines = dict(line.partition(b":")[::2] for line in headers.split(b"\r\n"))
    text = lines.get(b"Nats-Last-Consumer", b"").strip()
    cseq = int(text) if text.isdigit() and len(text) < 20 else 0
    return cseq, lines.get(b"Nats-Consumer-Stalled", b"").strip()
