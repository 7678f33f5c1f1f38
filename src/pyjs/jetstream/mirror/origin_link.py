"""The link of a mirror or source to its origin on any server of a cluster: a consumer of its own.

The link creates the consumer by a request to the API of the account; the server that leads the origin answers. The
consumer pushes what follows the last message that was copied, and has the ack policy flow_control, so an interest or
workqueue origin keeps each message until its copy is safe. After an error, a gap or silence the link creates another
consumer; those before are deleted, or removed when they were unused for a while. Before a request, everything that
was proposed is applied or lost, so the last message that was copied is known. States: idle, asked (until the answer),
taking (subscribed), waiting (until the next request), closed.

Knows nothing of messages (durable.pyx).
Source: nats-server creates ephemeral push consumers for mirrors and sources in the same way, server/stream.go.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from pyjs.base.bounds import SEQ_MAX
from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, StoreFailed
from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid, short_hash, token
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.mirror.consumer_link import ANSWER_NS, SILENT_NS, Link, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.subjects.sublist import Subscription

BETWEEN_NS = NS_PER_S  # the least time between two requests, unless something has changed
IDENTITY = b"Nats-Stream-Identity"
NAME_LENGTH = 10
# Of a consumer of an origin that keeps messages for it: as long as the target may be without a leader.
KEPT_NS = 600 * NS_PER_S


class Place(NamedTuple):
    """Where a copy begins or goes on."""

    seq: int  # the first message to copy; 0: the first one that there is, or by time
    time_ns: int | None  # if `seq` is 0
    ident: bytes  # of the origin in which `seq` is; b"": any


class Target(Protocol):
    """The copies of one stream: sourcing.Inflow."""

    def settled_steps(self) -> Generator[Step, None, None]:
        """Wait until every copy that was proposed is stored or lost.

        Raises:
            ApiError: nothing more can be copied here.
        """

    def place_of(self, copier: Copier) -> Place:
        """Return where a copier goes on."""

    def recreated(self, copier: Copier) -> None:
        """Forget the position of a source: its origin is another stream now."""

    def begin_steps(self, copier: Copier, delivered: int, ident: bytes) -> Generator[Step, None, None]:
        """Open a copier for the messages after `delivered` of the origin `ident`.

        Raises:
            ApiError, StoreFailed: it cannot be opened now.
        """


class OriginLink:
    """The link of one copier."""

    def __init__(
        self,
        js: JetStream,
        source: StreamSource,
        copier: Copier,
        target: Target,
        is_kept: Callable[[], bool],
    ) -> None:
        self._js = js
        self._source = source
        self._copier = copier
        self._target = target
        self._is_kept = is_kept  # whether the origin keeps messages for its consumers
        self._state = Link.IDLE
        self._asked_ns = -BETWEEN_NS
        self._asked = 0  # number of the last request
        self._prefix = f"{short_hash(copier.name)}-"  # of the names of its consumers
        self._name = ""  # of the consumer, and
        self._deliver = b""
        self._listing: Subscription | None = None  # while it waits for the names of the others
        self._subscription: Subscription | None = None
        self._timer: Timer | None = None

    def renew(self) -> None:
        """Create another consumer after a pause; until then the copier takes no deliveries."""
        if self._state in (Link.IDLE, Link.TAKING):
            self._ask_later(BETWEEN_NS)

    def origin_opened(self) -> None:
        """Create a consumer at once, since the origin leads here; do nothing if one delivers."""
        if self._state is not Link.TAKING and self._state is not Link.CLOSED:
            self._ask_later(0)

    def origin_closed(self) -> None:
        """Create another consumer: that of the closed origin is gone, or delivers from elsewhere."""
        if self._state is Link.TAKING:
            self._ask_later(BETWEEN_NS)

    def answer(self, reply: bytes, cseq: int, seq: int) -> None:
        """Acknowledge the deliveries up to these sequences."""
        self._js.account.send(reply, b"", progress(cseq, seq))

    def close(self) -> None:
        """End the link."""
        self._leave(Link.CLOSED)
        self._end_listing()

    # -- states --------------------------------------------------------------------------------------------

    def _leave(self, state: Link) -> None:
        self._state = state
        self._asked += 1
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
        else:
            self._wait(self._asked_ns + between_ns)

    def _wait(self, until_ns: int) -> None:
        self._leave(Link.WAITING)
        self._pause()
        self._call_at(until_ns, self._ask)

    def _ask(self) -> None:
        self._leave(Link.ASKED)
        self._pause()
        self._asked_ns = self._js.shared.clock.now_ns()
        self._call_at(self._asked_ns + ANSWER_NS, self._ask)
        self._js.account.turn.go_on(self._guarded(self._asked, self._ask_steps(self._asked)))

    def _guarded(self, asked: int, steps: Generator[Step, None, None]) -> Generator[Step, None, None]:
        """Do the steps of a request; wait for the next one after an error."""
        try:
            yield from steps
        except (ApiError, StoreFailed) as error:
            if asked == self._asked:
                self._copier.error = (
                    error if isinstance(error, ApiError) else errcodes.STREAM_GENERAL.error(err=error)
                )
                self._wait(self._js.shared.clock.now_ns() + BETWEEN_NS)

    def _ask_steps(self, asked: int) -> Generator[Step, None, None]:
        yield from self._target.settled_steps()
        if asked != self._asked:
            return
        rng, account = self._js.shared.rng, self._js.account
        self._name, kind = self._prefix + token(rng, NAME_LENGTH), "M" if self._copier.mirrors else "S"
        self._deliver = f"$JS.{kind}.{nuid(rng)}".encode()
        reply = f"$JSC.R.{nuid(rng)}".encode()
        self._subscription = account.subscribe_handler(reply, partial(self._on_answer, asked))
        place = self._target.place_of(self._copier)
        headers = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, place.ident) if place.ident else b""
        body = {"stream_name": self._source.name, "config": self._config(place), "action": "create"}
        account.send(self._subject("CREATE", self._name), orjson.dumps(body), headers, reply)

    def _subject(self, verb: str, name: str = "") -> bytes:
        """Return the subject of a request about consumers of the origin."""
        external = self._source.external
        prefix = "$JS.API" if external is None else external.api.rstrip(".")
        return f"{prefix}.CONSUMER.{verb}.{self._source.name}{'.' if name else ''}{name}".encode()

    def _config(self, place: Place) -> dict[str, Any]:
        """Return the configuration of the consumer."""
        out: dict[str, Any] = {
            "name": self._name,
            "deliver_subject": self._deliver.decode(),
            "ack_policy": "flow_control",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_deliver": -1,
            "flow_control": True,
            "idle_heartbeat": NS_PER_S,
        }
        if place.seq:
            out |= {"deliver_policy": "by_start_sequence", "opt_start_seq": place.seq}
        elif place.time_ns is not None:
            out |= {"deliver_policy": "by_start_time", "opt_start_time": time_text(place.time_ns)}
        filters = [each.decode() for each in self._source.filters]
        if len(filters) == 1:
            out["filter_subject"] = filters[0]
        elif filters:
            out["filter_subjects"] = filters
        if self._is_kept():  # it is stored, and messages wait for it
            return out | {"durable_name": self._name, "sourcing": True, "inactive_threshold": KEPT_NS}
        return out | {"direct": True}

    def _on_answer(self, asked: int, request: Request) -> None:
        if asked == self._asked:
            steps = self._answer_steps(asked, request.headers, request.payload)
            self._js.account.turn.go_on(self._guarded(asked, steps))

    def _answer_steps(self, asked: int, headers: bytes, payload: bytes) -> Generator[Step, None, None]:
        try:
            delivered = self._delivered(payload)
        except ApiError as error:
            if error.err_code == errcodes.CONSUMER_STREAM_IDENTITY_MISMATCH.err_code:
                self._target.recreated(self._copier)
            raise
        lines = dict(line.partition(b":")[::2] for line in headers.split(b"\r\n"))
        yield from self._target.begin_steps(self._copier, delivered, lines.get(IDENTITY, b"").strip())
        feed = self._copier.feed
        if asked != self._asked or feed is None:
            return
        feed.expect(self._name.encode())
        self._leave(Link.TAKING)
        self._subscription = self._js.account.subscribe(self._deliver, feed)
        self._watch()
        if self._is_kept():
            self._list_others()

    def _list_others(self) -> None:
        """Ask for the names of the consumers of the origin: it keeps messages for earlier ones of this copy, too."""
        self._end_listing()
        reply = f"$JSC.R.{nuid(self._js.shared.rng)}".encode()
        self._listing = self._js.account.subscribe_handler(reply, self._delete_others)
        self._js.account.send(self._subject("NAMES"), b"", b"", reply)

    def _end_listing(self) -> None:
        if self._listing is not None:
            self._js.account.unsubscribe(self._listing)
            self._listing = None

    def _delete_others(self, request: Request) -> None:
        """Delete earlier consumers of this copy: the present one needs what they have not acknowledged."""
        self._end_listing()
        try:
            names = [str(name) for name in orjson.loads(request.payload).get("consumers") or ()]
        except NONSENSE:
            return
        for name in names:
            if name.startswith(self._prefix) and name != self._name:
                self._js.account.send(self._subject("DELETE", name), b"")

    def _delivered(self, payload: bytes) -> int:
        """Return the last sequence before the first one of the consumer. Raises ApiError: the answer is an error."""
        try:
            answer = orjson.loads(payload)
            if error := answer.get("error"):
                raise ApiError(int(error["code"]), int(error["err_code"]), str(error["description"]))
            delivered = int(answer["delivered"]["stream_seq"])
            if not 0 <= delivered < SEQ_MAX:
                raise ValueError(delivered)
        except NONSENSE:
            failed = errcodes.MIRROR_CONSUMER_SETUP_FAILED
            if not self._copier.mirrors:
                failed = errcodes.SOURCE_CONSUMER_SETUP_FAILED
            raise failed.error(err="invalid consumer create response") from None
        return delivered

    def _watch(self) -> None:
        """Ask again if the consumer has been silent."""
        now_ns, due_ns = self._js.shared.clock.now_ns(), self._copier.active_ns + SILENT_NS
        if now_ns >= due_ns:
            self._ask()
        else:
            self._call_at(due_ns, self._watch)
