"""Requests on $JS.API.>: found by subject, answered in an envelope, counted.

One per account. It takes everything below the prefix but pull requests and direct gets, whose subjects have
subscriptions of their own: nobody there means 503. A subject that no endpoint knows gets no answer at all, as
the peer does it.

Source: nats.docs "JetStream wire API Reference", probed on nats-server 2.15.1.
"""

from __future__ import annotations

from functools import partial

import orjson

from pyjs.base import TYPE_CHECKING
from pyjs.core.account import Account
from pyjs.core.sink import PySink, Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.api.direct_seat import DirectSeat
from pyjs.jetstream.config import StreamConfig
from pyjs.jetstream.engine import JetStream, Shared
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.level import needs_higher_level
from pyjs.jetstream.stream import Stream
from pyjs.subjects.sublist import Subscription

if TYPE_CHECKING:
    from pyjs.jetstream.api.endpoint import Endpoint, JsonDict

TYPE_PREFIX = "io.nats.jetstream.api.v1."
ELSEWHERE = (b"CONSUMER.MSG.NEXT.", b"DIRECT.GET.")  # answered by consumers and streams, or by nobody


class ApiSink(PySink):
    """The subscription of one prefix; leaves alone what is not the router's."""

    def __init__(self, turn: object, handler: object) -> None:
        self.skipped: tuple[bytes, ...] = ()

    def accepts(self, subject: bytes) -> bool:
        """Tell whether `subject` is the router's business."""
        return not subject.startswith(self.skipped)


class Router:
    """The API of one account."""

    def __init__(self, account: Account, shared: Shared, js: JetStream | None) -> None:
        self._account = account
        self._shared = shared
        self._js = js  # None: JetStream is off for the account
        self._endpoints: dict[tuple[str, ...], Endpoint] = {}  # by words; filled by the first request
        self._direct: dict[str, DirectSeat] = {}
        self._subscriptions: list[Subscription] = []
        domain = shared.options.domain
        for prefix in ["$JS.API.", f"$JS.{domain}.API."] if domain else ["$JS.API."]:
            self._subscribe(prefix.encode())
        if js is not None:
            js.observer = self

    def close(self) -> None:
        """Answer no more."""
        for subscription in self._subscriptions:
            self._account.unsubscribe(subscription)

    def _subscribe(self, prefix: bytes) -> None:
        depth = prefix.count(b".")
        sink = ApiSink(self._account.turn, lambda request: self._handle(request, depth))
        sink.skipped = tuple(prefix + words for words in ELSEWHERE)
        subscription = Subscription(sink, prefix + b">")
        subscription.filtered = True
        self._account.add(subscription)
        self._subscriptions.append(subscription)

    # -- requests ------------------------------------------------------------------------------------------

    def find(self, tokens: tuple[str, ...]) -> tuple[Endpoint, tuple[str, ...]] | None:
        """Return the endpoint of a subject (its tokens behind the prefix) and its arguments."""
        if not self._endpoints:
            self._endpoints = load_endpoints()
        for length in range(min(3, len(tokens)), 0, -1):
            endpoint = self._endpoints.get(tokens[:length])
            if endpoint is not None and endpoint.min_args <= len(tokens) - length <= endpoint.max_args:
                return endpoint, tokens[length:]
        return None

    def _handle(self, request: Request, depth: int) -> None:
        tokens = tuple(request.subject.decode("utf-8", "replace").split(".")[depth:])
        found = self.find(tokens)
        if found is None:
            return
        endpoint, args = found
        try:
            fields = self._answer(endpoint, args, request)
        except ApiError as error:
            self._refuse(request, endpoint, error)
            return
        if endpoint.unsynced is not None and self._js is not None:
            self._js.streams[args[0]].when_durable(partial(self._done, request, endpoint, fields))
        else:
            self._done(request, endpoint, fields)

    def _done(
        self, request: Request, endpoint: Endpoint, fields: JsonDict | None, failure: Exception | None = None
    ) -> None:
        """Answer a request that was carried out; `failure`: what it did may not last."""
        if failure is not None and endpoint.unsynced is not None:
            self._refuse(request, endpoint, endpoint.unsynced.error(err=failure))
            return
        self._reply(request, endpoint, fields)
        if endpoint.counted:
            self._count(failed=False)

    def _refuse(self, request: Request, endpoint: Endpoint, error: ApiError) -> None:
        self._count(failed=True)
        self._reply(request, endpoint, {"error": error.as_json()} | endpoint.on_error)

    def _answer(self, endpoint: Endpoint, args: tuple[str, ...], request: Request) -> JsonDict | None:
        if needs_higher_level(request.headers):
            raise errcodes.REQUIRED_API_LEVEL.error()
        if self._js is None:
            raise errcodes.NOT_ENABLED_FOR_ACCOUNT.error()
        from pyjs.jetstream.api.endpoint import ApiCall

        return endpoint.handle(ApiCall(self._js, args, request))

    def _reply(self, request: Request, endpoint: Endpoint, fields: JsonDict | None) -> None:
        if fields is not None and request.reply:
            body = orjson.dumps({"type": TYPE_PREFIX + endpoint.response} | fields)
            self._account.send(request.reply, body)

    def _count(self, failed: bool) -> None:
        self._shared.api_total += 1
        self._shared.api_errors += failed
        if self._js is not None:
            self._js.api_total += 1
            self._js.api_errors += failed

    # -- streams come and go -------------------------------------------------------------------------------

    def stream_opened(self, stream: Stream, recovered: bool) -> None:
        """Offer direct gets of the stream."""
        self._offer_direct(stream)

    def stream_changed(self, stream: Stream, old: StreamConfig) -> None:
        """Offer direct gets of the stream, or no more."""
        self._offer_direct(stream)

    def stream_closing(self, stream: Stream, deleted: bool) -> None:
        """Offer nothing of the stream."""
        self._withdraw_direct(stream.name)

    def _offer_direct(self, stream: Stream) -> None:
        if not stream.config.allow_direct:
            self._withdraw_direct(stream.name)
        elif stream.name not in self._direct:
            self._direct[stream.name] = DirectSeat(self._account, stream, self._shared.options.domain)

    def _withdraw_direct(self, name: str) -> None:
        direct = self._direct.pop(name, None)
        if direct is not None:
            direct.close()


def load_endpoints() -> dict[tuple[str, ...], Endpoint]:
    """Return every endpoint by its words; the first call loads what reads requests."""
    from pyjs.jetstream.api.table import ENDPOINTS

    return {tuple(each.words.split(".")): each for each in ENDPOINTS}
