"""The subscriptions of one account's API: $JS.API.> under each prefix, and direct gets of streams that allow them.

`$JS.API.>` here leaves out pull requests and direct gets. Those subjects have their own subscriptions, so that a
client gets status 503 if no consumer or stream answers. Importing the router, which imports everything needed to read
requests and serve streams, takes a tenth of a second. A thread imports it soon after the start, or at the first
request, which then waits.

Source: nats.docs "JetStream wire API Reference", probed on nats-server 2.15.1.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pyjs.core.account import Account
from pyjs.core.job import Job, JobQueue
from pyjs.core.session import ClientSession
from pyjs.core.sink import PySink, RemoteSink, Request
from pyjs.jetstream.api.direct_subscriptions import DirectSubscriptions
from pyjs.jetstream.manage.engine import JetStream, Shared
from pyjs.subjects.sublist import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyjs.core.chore import Chore, Step
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.stream.stream import Stream

DOMAIN_DEPTH = 3  # number of tokens in "$JS.<domain>.API"
ROUTER = "pyjs.jetstream.api.router"
ELSEWHERE = (b"CONSUMER.MSG.NEXT.", b"DIRECT.GET.")  # answered by consumers and streams
# All subjects that the router answers; announced to other servers, which cannot call `ApiSink.accepts`.
ANSWERED = (
    b"INFO",
    b"STREAM.>",
    *(
        b"CONSUMER.%b.>" % word
        for word in b"CREATE DURABLE INFO NAMES LIST DELETE PAUSE UNPIN RESET LEADER".split()
    ),
    b"PYJS.>",
)
REFUSED_MAX = 10_000  # refused requests that wait for their error; any further one is not answered
REFUSED_STEP = 32  # errors sent in one step: about half a millisecond
MAPPED = (b"$KV.>", b"$OBJ.>")  # may follow the prefix of a domain, see `mapped`


def mapped(subject: bytes) -> bytes:
    """Return the `$KV` or `$OBJ` subject that follows the prefix of a domain, or b"" if there is none."""
    rest = subject.split(b".", DOMAIN_DEPTH)[-1]
    return rest if rest.startswith((b"$KV.", b"$OBJ.")) else b""


class ApiSink(PySink):
    """The sink of the API requests under one prefix. It accepts neither pull requests nor direct gets."""

    def __init__(self, turn: object, handler: object) -> None:
        self.skipped: tuple[bytes, ...] = ()
        self.told_as: tuple[bytes, ...] = ()  # the subjects that were announced to other servers

    def accepts(self, subject: bytes, queue: bytes) -> bool:
        """Return whether the router answers `subject`."""
        return not subject.startswith(self.skipped)


def is_loaded() -> bool:
    """Return whether the import of the router is complete."""
    return hasattr(sys.modules.get(ROUTER), "Router")


class Loading(Job):
    """A job that imports the router."""

    queue = JobQueue.FILES

    def __init__(self, subscriptions: ApiSubscriptions) -> None:
        self._subscriptions = subscriptions

    def run(self) -> None:
        """Import the router; called in a thread."""
        import_module(ROUTER)

    def finish(self, failure: Exception | None) -> None:
        """Continue the waiting requests.

        If the import failed, each request imports the router again, and reports the exception.
        """
        self._subscriptions.loaded()


class ApiSubscriptions:
    """The API subscriptions of one account."""

    def __init__(
        self,
        account: Account,
        shared: Shared,
        js: JetStream | None,
        find_system: Callable[[], Account | None],
    ) -> None:
        self._account = account
        self._find_system = find_system  # the account whose clients may watch
        self._shared = shared
        self._js = js  # None: JetStream is off for the account
        self._router: Router | None = None
        self._loading = False  # a job imports the router
        self._parked: list[Chore] = []  # requests that wait for the import, oldest first
        self._late = 0  # number of requests that wait for the import or for earlier requests
        # requests without room, and the depths of their prefixes
        self._refused: list[tuple[Request, int]] = []
        self._unanswered = 0  # number of requests without room that are not in `_refused`
        # Key: (the stream that answers, the stream named in the requests); a mirror may answer for its origin.
        self._direct: dict[tuple[str, str], DirectSubscriptions] = {}
        self._subscriptions: list[Subscription] = []
        domain = shared.options.domain
        for prefix in ["$JS.API.", f"$JS.{domain}.API."] if domain else ["$JS.API."]:
            self._subscribe(prefix.encode())
        if js is not None:
            js.observer = self

    def close(self) -> None:
        """Remove the subscriptions."""
        for subscription in self._subscriptions:
            self._account.unsubscribe(subscription)

    def _subscribe(self, prefix: bytes) -> None:
        depth = prefix.count(b".")
        sink = ApiSink(self._account.turn, lambda request: self._handle(request, depth))
        sink.admits = lambda request: self._admit(request, depth)
        sink.service = b""
        sink.skipped = tuple(prefix + words for words in ELSEWHERE)
        answered = (*ANSWERED, *MAPPED) if depth == DOMAIN_DEPTH else ANSWERED
        if self._shared.spread is None:  # otherwise, each worker handles the requests of its own clients
            sink.told_as = tuple(prefix + words for words in answered)
        subscription = Subscription(sink, prefix + b">")
        subscription.filtered = True
        self._account.add(subscription)
        self._subscriptions.append(subscription)

    # -- requests --------------------------------------------------------------------------------------------

    def _admit(self, request: Request, depth: int) -> bool:
        """Return whether a request that has arrived may wait; otherwise, it is refused later in this turn."""
        if depth == DOMAIN_DEPTH and mapped(request.subject):
            return True  # a message, not a request
        if self._shared.spread is not None and request.is_routed:
            return True  # a copy that `_find` ignores
        if self._shared.admission.admit(self._account, request):
            return True
        if not (self._refused or self._unanswered):
            self._account.turn.requests.append(Request(self._refuse, request.subject))
        if request.reply and len(self._refused) < REFUSED_MAX:
            sender = request.session, request.is_routed, request.number
            small = Request(self._refuse, request.subject, request.reply, b"", b"", *sender)
            self._refused.append((small, depth))
        else:
            self._unanswered += 1
        return False

    def _refuse(self, _: Request) -> Iterator[Step]:
        """Answer the refused requests with an error, in steps, except those that another server answers."""
        refused, count = self._refused, self._unanswered
        self._refused, self._unanswered = [], 0
        for number, (request, depth) in enumerate(refused, 1):
            count += self._loaded_router().refuse_waiting(request, depth)
            if number % REFUSED_STEP == 0:
                yield None
        self._shared.admission.refused(count)

    def _handle(self, request: Request, depth: int) -> Iterator[Step] | None:
        """Answer a request, in steps; the request stops waiting at its last step."""
        try:
            steps = self._find(request, depth)
        except BaseException:
            self._shared.admission.leave(request)
            raise
        if steps is None:
            self._shared.admission.leave(request)
            return None
        return self._until_done(request, steps)

    def _until_done(self, request: Request, steps: Iterator[Step]) -> Iterator[Step]:
        try:
            yield from steps
        finally:
            self._shared.admission.leave(request)

    def _find(self, request: Request, depth: int) -> Iterator[Step] | None:
        spread = self._shared.spread
        if spread is not None and request.is_routed:
            return None  # the worker of the client handles it; this one has a client that reads requests
        if depth == DOMAIN_DEPTH and (subject := mapped(request.subject)):
            self._account.send(subject, request.payload, request.headers, request.reply)
            return None
        system = self._find_system()
        if system is self._account and not request.reply:
            return None  # a copy of another account's request, or a request that no server could answer
        if self._shared.member is not None and request.session is None:
            pass  # the server of the client sends the copy
        elif system is not None and system is not self._account and (spread is not None or system.sessions):
            self._show(request, system, b".".join([b"$JS.API", *request.subject.split(b".")[depth:]]))
        if self._late or not (self._router is not None or is_loaded()):
            return self._handle_later(request, depth)
        return self._route(request, depth)

    def _show(self, request: Request, system: Account, subject: bytes) -> None:
        """Send a copy of a request, without its reply subject, to system account clients that watch requests.

        Clients of other workers are among them if the workers share the streams.
        """
        watchers = ClientSession if self._shared.spread is None else (ClientSession, RemoteSink)
        if not any(isinstance(sub.sink, watchers) for sub in system.subs.match(subject)):
            return
        from pyjs.core.exchange.info import request_headers  # imported lazily: few servers are watched

        headers = request_headers(request.headers, request.session, self._shared.server_name)
        system.send(subject, request.payload, headers)

    def _route(self, request: Request, depth: int) -> Iterator[Step] | None:
        return self._loaded_router().handle(request, depth)

    def _loaded_router(self) -> Router:
        if self._router is None:
            from pyjs.jetstream.api.router import Router

            self._router = Router(self._account, self._shared, self._js)
        return self._router

    def _handle_later(self, request: Request, depth: int) -> Iterator[Step]:
        """Answer a request as soon as the router is imported, after earlier requests of the same connection."""
        self._late += 1
        yield self._park
        self._late -= 1
        steps = self._route(request, depth)
        if steps is not None:
            yield from steps

    def _park(self, chore: Chore) -> None:
        if self._router is not None or (is_loaded() and not self._loading):
            self._account.turn.chores.append(chore)
            return
        self.load()
        self._parked.append(chore)

    def load(self) -> None:
        """Start a job that imports the router, unless it is imported or being imported."""
        if not (self._loading or is_loaded()):
            self._loading = True
            self._account.turn.jobs.append(Loading(self))

    def loaded(self) -> None:
        """Continue the requests that waited for the import."""
        self._loading = False
        self._account.turn.chores.extend(self._parked)
        self._parked.clear()

    # -- events of streams ---------------------------------------------------------------------------------

    def stream_opened(self, stream: Stream, recovered: bool) -> None:
        """Subscribe to direct gets of the stream, if it allows them, and report the stream to the other workers."""
        self._offer_direct(stream)
        self._tell_others(stream)

    def stream_changed(self, stream: Stream, old: StreamConfig) -> None:
        """Add or remove the direct get subscriptions of the stream, and report an update to the other workers."""
        self._offer_direct(stream)
        if old is not stream.config:
            self._tell_others(stream)

    def stream_closing(self, stream: Stream, deleted: bool) -> None:
        """Remove the direct get subscriptions of the stream, and report a deletion to the other workers."""
        self._withdraw_direct(stream.name)
        if deleted and self._shared.spread is not None and self._js is not None:
            self._shared.spread.lost(self._js, stream)

    def _tell_others(self, stream: Stream) -> None:
        """Report a change to the other workers, if the streams are spread over them."""
        if self._shared.spread is not None and self._js is not None:
            self._shared.spread.holds(self._js, stream)

    def _offer_direct(self, stream: Stream) -> None:
        config = stream.config
        self._offer(stream, stream.name, config.allow_direct)
        inflow = self._js.inflows.get(stream.name) if self._js else None
        if config.mirror and config.mirror_direct and inflow is not None and inflow.is_mirrored:
            self._offer(stream, config.mirror.name, True)
        else:
            for key in [key for key in self._direct if key[0] == stream.name != key[1]]:
                self._direct.pop(key).close()

    def _offer(self, stream: Stream, name: str, allowed: bool) -> None:
        """Add or remove the subscriptions by which `stream` answers direct gets of the stream `name`."""
        key = (stream.name, name)
        assert self._js is not None
        if allowed and key not in self._direct:
            self._direct[key] = DirectSubscriptions(self._js, stream, name)
        elif not allowed and key in self._direct:
            self._direct.pop(key).close()

    def _withdraw_direct(self, name: str) -> None:
        for key in [key for key in self._direct if key[0] == name]:
            self._direct.pop(key).close()
