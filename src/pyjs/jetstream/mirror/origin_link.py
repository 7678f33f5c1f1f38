"""The link of a mirror or source to its origin on any server of a cluster, by a consumer that the link creates.

The link creates the consumer by a request to the API of the account; the server that leads the origin answers. The
consumer pushes the messages after the last copied one and has the ack policy flow_control, so an interest or
workqueue origin stores each message until its copy is safe. After an error, a gap or silence, the link creates
another consumer; earlier ones are deleted, or expire when they are unused. Before a request, every copy is either
stored or lost, so the last copied message is known. States: idle, asked (until the answer), taking (subscribed),
waiting (until the next request), closed.

Messages are handled by durable.pyx.
Source: nats-server creates ephemeral push consumers for mirrors and sources in the same way, server/stream.go.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_S
from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid, token
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.mirror.consumer_link import IDENTITY, identity_in, progress, read_answer
from pyjs.jetstream.mirror.link_state import Link, LinkState, Pace
from pyjs.jetstream.mirror.origin_consumers import OriginConsumers, api_subject

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Protocol

    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamSource
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.jetstream.mirror.link_state import Place, Target

    class Origin(Protocol):
        """The origin in the metadata of the cluster: origin.Origin."""

        @property
        def is_missing(self) -> bool:
            """Whether the stream does not exist."""

        @property
        def is_kept(self) -> bool:
            """Whether the stream stores messages for its consumers, as an interest or workqueue stream does."""


# The consumer sends a heartbeat each second. Most answers come soon, but a search in a large origin takes long.
PACE = Pace(NS_PER_S, (2 * NS_PER_S, 4 * NS_PER_S, 8 * NS_PER_S, 16 * NS_PER_S), 3 * NS_PER_S)
NAME_LENGTH = 10
# For a consumer of an interest or workqueue origin: longer than the target can be without a leader.
KEPT_NS = 600 * NS_PER_S


class OriginLink:
    """The link of one copier to its origin, by a consumer that the link creates."""

    def __init__(
        self,
        js: JetStream,
        source: StreamSource,
        copier: Copier,
        target: Target,
        origin: Origin,
        prefix: str,
    ) -> None:
        """Create an idle link; the names of its consumers begin with `prefix`."""
        self._js = js
        self._source = source
        self._copier = copier
        self._target = target
        self._origin = origin
        self._state = LinkState(js, copier, PACE, self._ask)
        self._prefix = prefix
        self._name = ""  # name of the consumer
        self._deliver = b""  # its deliver subject
        self._others = OriginConsumers(js, source, prefix)

    def renew(self) -> None:
        """Request another consumer, at least PACE.between after the last request.

        The copier ignores deliveries until the new consumer exists.
        """
        if self._state.now in (Link.IDLE, Link.TAKING):
            self._state.ask_later()

    def origin_opened(self) -> None:
        """Create a consumer at once, since this server now leads the origin.

        Do nothing if a consumer already delivers, or if the link is closed.
        """
        if self._state.now not in (Link.TAKING, Link.CLOSED):
            self._ask()

    def origin_closed(self) -> None:
        """Request another consumer, at least PACE.between after the last request, since the origin was closed here.

        Do nothing unless this link receives messages.
        """
        if self._state.now is Link.TAKING:
            self._state.ask_later()

    def answer(self, reply: bytes, cseq: int, seq: int) -> None:
        """Acknowledge the deliveries up to consumer_seq `cseq` and stream_seq `seq`, in a message to `reply`."""
        self._js.account.send(reply, b"", progress(cseq, seq))

    def close(self) -> None:
        """Close the link, and end its subscription."""
        self._state.leave(Link.CLOSED)
        self._others.close()

    # -- states --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        asked = self._state.begin_request(self._ask)
        self._state.go_on(asked, self._ask_steps(asked))

    def _ask_steps(self, asked: int) -> Generator[Step, None, None]:
        errcodes.STREAM_NOT_FOUND.raise_if(self._origin.is_missing)
        yield from self._target.settled_steps()
        if asked != self._state.asked:
            return
        rng, account = self._js.shared.rng, self._js.account
        self._name, kind = self._prefix + token(rng, NAME_LENGTH), "M" if self._copier.mirrors else "S"
        self._deliver = f"$JS.{kind}.{nuid(rng)}".encode()
        reply = f"$JSC.R.{nuid(rng)}".encode()
        self._state.own(account.subscribe_handler(reply, partial(self._on_answer, asked)))
        place = self._target.place_of(self._copier)
        headers = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, place.ident) if place.ident else b""
        body = {"stream_name": self._source.name, "config": self._config(place), "action": "create"}
        account.send(api_subject(self._source, "CREATE", self._name), orjson.dumps(body), headers, reply)

    def _config(self, place: Place) -> dict[str, Any]:
        """Return the JSON fields of the configuration of the consumer to create, which starts at `place`."""
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
        if self._origin.is_kept:  # the consumer is stored, and the origin stores messages for it
            return out | {"durable_name": self._name, "sourcing": True, "inactive_threshold": KEPT_NS}
        return out | {"direct": True}

    def _on_answer(self, asked: int, request: Request) -> None:
        if asked == self._state.asked:
            self._state.go_on(asked, self._answer_steps(asked, request.headers, request.payload))

    def _answer_steps(self, asked: int, headers: bytes, payload: bytes) -> Generator[Step, None, None]:
        try:
            _, delivered = read_answer(payload, self._copier.mirrors)
        except ApiError as error:
            if error.err_code == errcodes.CONSUMER_STREAM_IDENTITY_MISMATCH.err_code:
                self._target.recreated(self._copier)
            raise
        yield from self._target.begin_steps(self._copier, delivered, identity_in(headers))
        feed = self._copier.feed
        if asked != self._state.asked or feed is None:
            return
        feed.expect(self._name.encode())
        self._state.take(self._js.account.subscribe(self._deliver, feed))
        if self._origin.is_kept:
            self._others.delete_all(but=self._name)
