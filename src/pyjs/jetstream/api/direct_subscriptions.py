"""The subscriptions of one stream's direct gets.

A stream that does not allow direct gets has no such subscription, so a client gets status 503 (no responders). A
mirror may also subscribe to the subjects of its origin, and then shares the requests with the origin. The first
request imports the module that reads requests (direct.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.sink import PySink, Request
from pyjs.jetstream.names import DIRECT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from pyjs.core.chore import Step
    from pyjs.jetstream.api.direct import DirectGet
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.subjects.sublist import Subscription

    Get: TypeAlias = "Callable[[Request], Iterator[Step] | None]"


class DirectSubscriptions:
    """The subscriptions by which one stream answers direct gets, for itself or for its origin."""

    def __init__(self, js: JetStream, stream: Stream, name: str) -> None:
        """Subscribe to direct gets of the stream `name`, which is `stream` or the origin of the mirror `stream`."""
        self._js = js
        self._account = js.account
        self._stream = stream
        domain = js.options.domain
        self._reader: DirectGet | None = None
        apis = ["$JS.API", f"$JS.{domain}.API"] if domain else ["$JS.API"]
        subjects = [f"{api}.DIRECT.GET.{name}".encode() for api in apis]
        self._prefixes = tuple(subject + b"." for subject in subjects)
        self._subscriptions = [
            *(self._subscribe(subject, self._get) for subject in subjects),
            *(self._subscribe(subject + b".>", self._get_last) for subject in subjects),
        ]

    def _subscribe(self, subject: bytes, handler: Get) -> Subscription:
        return self._account.subscribe(subject, PySink(self._account.turn, handler), DIRECT_QUEUE)

    def close(self) -> None:
        """Remove the subscriptions."""
        # break the cycle: the subscriptions refer to this object
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            self._account.unsubscribe(subscription)

    def _get(self, request: Request) -> Iterator[Step] | None:
        return self._answer(request, self._loaded().get)

    def _get_last(self, request: Request) -> Iterator[Step] | None:
        return self._answer(request, self._loaded().get_last)

    def _answer(self, request: Request, get: Get) -> Iterator[Step] | None:
        """Answer a request, in steps if it must wait for earlier work or takes longer than a turn."""
        replicated = self._js.shared.replicated
        is_settled = replicated is None or replicated.is_settled(self._stream)
        if not is_settled or self._js.gates.is_busy(self._stream.name):
            return self._in_order(request, get)
        try:
            steps = get(request)
        except Exception as error:
            self._failed(request, error)
            return None
        return None if steps is None else self._in_order(request, lambda _: steps)

    def _in_order(self, request: Request, get: Get) -> Iterator[Step]:
        """Answer a request after earlier work on its stream, and after entries acknowledged before the request."""
        gates, name = self._js.gates, self._stream.name
        yield from gates.enter(name, alone=False)
        try:
            replicated = self._js.shared.replicated
            if replicated is not None:
                yield from replicated.settle_steps(self._stream)
            steps = get(request)
            if steps is not None:
                yield from steps
        except Exception as error:
            self._failed(request, error)
        finally:
            gates.leave(name)

    def _failed(self, request: Request, error: Exception) -> None:
        """Report an unexpected exception, and answer with status 500."""
        shared = self._js.shared
        shared.faults.report("request", f"a direct get of {self._stream}", error, shared.clock.now_ns())
        if request.reply:
            self._account.send(request.reply, b"", b"NATS/1.0 500 Internal Server Error\r\n\r\n")

    def _loaded(self) -> DirectGet:
        if self._reader is None:
            from pyjs.jetstream.api.direct import DirectGet

            self._reader = DirectGet(self._account, self._stream, self._prefixes)
        return self._reader
