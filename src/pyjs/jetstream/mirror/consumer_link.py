"""The link of a mirror or source to an existing consumer of its origin.

A request to the origin's API resets the consumer to its ack floor. If the answer shows that the consumer has the ack
policy flow_control, the link subscribes to the deliver subject. States: idle (no request was sent), asked (a request
waits for its answer), taking (subscribed), waiting (after an error, until the next request), probing (no answer
arrived: the link has subscribed to the deliver subject, and the first message there causes the next request), closed.

When a request is sent, each message that arrived before is either stored or lost, so it is known which messages the
consumer will deliver again.

Messages are handled by durable.pyx.
Source: nats-server's source, server/stream.go; probed on nats-server 2.15.1
(tests/conformance/scenarios/mirror, source: consumer_...).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from pyjs.base.bounds import SEQ_MAX
from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE
from pyjs.base.nuid import nuid
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.mirror.link_state import ANSWER_NS, Link, LinkState, Pace

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.jetstream.mirror.link_state import Target

SILENT_NS = 10 * NS_PER_S
PACE = Pace(2 * NS_PER_S, (ANSWER_NS,), SILENT_NS)
IDENTITY = b"Nats-Stream-Identity"
_PROGRESS = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"


class ConsumerLink:
    """The link of one copier to an existing consumer of its origin."""

    def __init__(self, js: JetStream, source: StreamSource, copier: Copier, target: Target) -> None:
        assert source.consumer is not None
        self._js = js
        self._source = source
        self._consumer = source.consumer
        self._copier = copier
        self._target = target
        self._state = LinkState(js, copier, PACE, self._ask)

    def renew(self) -> None:
        """Request another reset of the consumer, at least PACE.between after the last request.

        The copier ignores deliveries until the consumer was reset.
        """
        if self._state.now in (Link.IDLE, Link.TAKING):
            self._state.ask_later()

    def origin_opened(self) -> None:
        """Request a reset at once, since the origin was opened; do nothing if the consumer delivers already."""
        if self._state.now is not Link.TAKING:
            self._ask()

    def origin_closed(self) -> None:
        """Wait until a consumer delivers to the deliver subject again, since the origin was closed."""
        if self._state.now is Link.TAKING:
            self._probe()

    def answer(self, reply: bytes, cseq: int, seq: int) -> None:
        """Acknowledge the deliveries up to consumer_seq `cseq` and stream_seq `seq`, in a message to `reply`."""
        self._js.account.send(reply, b"", progress(cseq, seq))

    def close(self) -> None:
        """Close the link, and end its subscription."""
        self._state.leave(Link.CLOSED)

    # -- states --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        asked = self._state.begin_request(self._probe)
        self._state.go_on(asked, self._ask_steps(asked))

    def _ask_steps(self, asked: int) -> Generator[Step, None, None]:
        yield from self._target.settled_steps()
        if asked != self._state.asked:
            return
        account, external = self._js.account, self._source.external
        reply = f"$JSC.R.{nuid(self._js.shared.rng)}".encode()
        self._state.own(account.subscribe_handler(reply, partial(self._on_answer, asked)))
        prefix = "$JS.API" if external is None else external.api.rstrip(".")
        subject = f"{prefix}.CONSUMER.RESET.{self._source.name}.{self._consumer.name}"
        ident = self._target.place_of(self._copier).ident
        account.send(subject.encode(), b"", b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, ident), reply)

    def _probe(self) -> None:
        self._state.leave(Link.PROBING)
        subject = self._consumer.deliver_subject.encode()
        self._state.own(self._js.account.subscribe_handler(subject, self._on_sign))
        self._state.call_after(SILENT_NS, self._ask)

    def _on_sign(self, request: Request) -> None:
        if self._state.now is Link.PROBING:
            self._state.ask_later()

    def _on_answer(self, asked: int, request: Request) -> None:
        if asked == self._state.asked:
            self._state.go_on(asked, self._answer_steps(asked, request.headers, request.payload))

    def _answer_steps(self, asked: int, headers: bytes, payload: bytes) -> Generator[Step, None, None]:
        delivered = self._delivered(payload)
        yield from self._target.begin_steps(self._copier, delivered, identity_in(headers))
        feed = self._copier.feed
        if asked == self._state.asked and feed is not None:
            self._state.take(self._js.account.subscribe(self._consumer.deliver_subject.encode(), feed))

    def _delivered(self, payload: bytes) -> int:
        """Return the last stream_seq that the consumer has delivered, from the answer to a reset.

        Raises:
            ApiError: the answer is an error or invalid, or the consumer has another ack policy.
        """
        mirrors = self._copier.mirrors
        policy, delivered = read_answer(payload, mirrors)
        if policy != "flow_control":
            no_flow = (
                errcodes.MIRROR_CONSUMER_REQUIRES_ACK_FC
                if mirrors
                else errcodes.SOURCE_CONSUMER_REQUIRES_ACK_FC
            )
            raise no_flow.error()
        return delivered


def read_answer(payload: bytes, mirrors: bool) -> tuple[str, int]:
    """Return the ack policy of a consumer, and its last delivered stream_seq, from an answer of the API.

    Raises:
        ApiError: the answer is an error, or is invalid.
    """
    try:
        answer = orjson.loads(payload)
        if error := answer.get("error"):
            raise ApiError(int(error["code"]), int(error["err_code"]), str(error["description"]))
        policy, delivered = str(answer["config"]["ack_policy"]), int(answer["delivered"]["stream_seq"])
        if not 0 <= delivered < SEQ_MAX:
            raise ValueError(delivered)
    except NONSENSE:
        failed = errcodes.MIRROR_CONSUMER_SETUP_FAILED if mirrors else errcodes.SOURCE_CONSUMER_SETUP_FAILED
        raise failed.error(err="invalid consumer create response") from None
    return policy, delivered


def identity_in(headers: bytes) -> bytes:
    """Return the identity of an origin in the headers of an answer, or b"" if there is none."""
    lines = dict(line.partition(b":")[::2] for line in headers.split(b"\r\n"))
    return lines.get(IDENTITY, b"").strip()


def progress(cseq: int, seq: int) -> bytes:
    """Return the headers that acknowledge the deliveries up to consumer_seq `cseq` and stream_seq `seq`."""
    return _PROGRESS % (cseq, seq)


def read_heartbeat(headers: bytes) -> tuple[int, bytes]:
    """Return the last consumer_seq in a heartbeat (0: none), and its repeated flow control subject (b"": none)."""
    lines = dict(line.partition(b":")[::2] for line in headers.split(b"\r\n"))
    text = lines.get(b"Nats-Last-Consumer", b"").strip()
    cseq = int(text) if text.isdigit() and len(text) < 20 else 0
    return cseq, lines.get(b"Nats-Consumer-Stalled", b"").strip()
