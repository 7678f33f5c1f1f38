"""The router of $JS.API.> requests: it finds the endpoint, calls it, counts the call and sends the answer.

Each account has one router, which the first request creates (subscriptions.py), since this module imports everything
needed to read requests and serve streams. A subject without an endpoint gets no answer, as on nats-server.

Source: nats.docs "JetStream wire API Reference", probed on nats-server 2.15.1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from orjson import dumps

from pyjs.base.errors import StoreFailed
from pyjs.core.account import Account
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.api.endpoint import HEADERS, ApiCall, Counted, Endpoint, JsonDict, MaybeSteps
from pyjs.jetstream.api.table import ENDPOINTS
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.errcodes import ApiError, LeaderChanged
from pyjs.jetstream.manage.engine import JetStream, Shared, consumer_gate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyjs.core.chore import Step
    from pyjs.jetstream.admission import Admission

INTERNAL_ERROR = "internal error"  # the log has the details
ENDPOINT_BY_WORDS = {tuple(each.words.split(".")): each for each in ENDPOINTS}


class Router:
    """The router of one account's API requests. It calls the handlers of the requests, and sends the answers."""

    def __init__(self, account: Account, shared: Shared, js: JetStream | None) -> None:
        self.account = account
        self._shared = shared
        self.js = js  # None: JetStream is off for the account

    @property
    def admission(self) -> Admission:
        """The requests of the server that wait."""
        return self._shared.admission

    def find(self, tokens: tuple[str, ...]) -> tuple[Endpoint, tuple[str, ...]] | None:
        """Return the endpoint and the arguments for the tokens after the prefix, or None if there is no endpoint."""
        for length in range(min(3, len(tokens)), 0, -1):
            endpoint = ENDPOINT_BY_WORDS.get(tokens[:length])
            if endpoint is not None and endpoint.min_args <= len(tokens) - length <= endpoint.max_args:
                return endpoint, tokens[length:]
        return None

    def handle(self, request: Request, depth: int) -> Iterator[Step] | None:
        """Answer a request, in steps; `depth` is the number of subject tokens before the endpoint's words.

        Return None if no server answers, or if another server of the cluster answers.
        """
        tokens = tuple(request.subject.decode("utf-8", "replace").split(".")[depth:])
        found = self.find(tokens)
        if found is None:
            return None
        part = self._shared.member or self._shared.spread
        return self.work(request, *found) if part is None else part.desk.handle(self, request, *found)

    def work(self, request: Request, endpoint: Endpoint, args: tuple[str, ...]) -> Iterator[Step]:
        """Answer a request, in steps if its handler is a generator.

        An unexpected exception becomes an error answer.
        """
        try:
            fields = yield from self._ordered(endpoint, args, request)
            if endpoint.unsynced is not None and self.js is not None:
                changed = self.js.stream(args[0])
                self.admission.hold(request)
                changed.when_durable(partial(self._durable, request, endpoint, fields))
            else:
                self._done(request, endpoint, fields)
        except LeaderChanged as error:
            member = self._shared.member
            if member is None or not (yield from member.desk.pass_on(self, request, endpoint, args, error)):
                self.refuse(request, endpoint, error)
        except ApiError as error:
            if isinstance(error.__cause__, StoreFailed):
                shown = request.subject.decode("utf-8", "replace")
                self._shared.log.error(f"JetStream request on {shown} failed: {error.__cause__}")
            self.refuse(request, endpoint, error)
        except Exception as error:
            shown = f"a request on {request.subject.decode('utf-8', 'replace')}"
            self._shared.faults.report("request", shown, error, self._shared.clock.now_ns())
            stream = self.js.streams.get(args[0]) if self.js and args else None
            if stream is not None and endpoint.changes:
                self.account.turn.faulted.append((stream, error))
            self.refuse(request, endpoint, errcodes.STREAM_GENERAL.error(err=INTERNAL_ERROR))

    def _ordered(
        self, endpoint: Endpoint, args: tuple[str, ...], request: Request
    ) -> Generator[Step, None, JsonDict | None]:
        """Call the handler as soon as earlier work on its stream is done."""
        if self.js is None or not args or not (endpoint.in_steps or self.js.gates.is_busy(args[0])):
            return (yield from self._steps(endpoint, args, request))
        gates, gate = self.js.gates, consumer_gate(*args[:2])

        def steps() -> Generator[Step, None, JsonDict | None]:
            return self._steps(endpoint, args, request)

        def of_consumer() -> Generator[Step, None, JsonDict | None]:
            return gates.within(gate, endpoint.changes, steps)

        inside = of_consumer if endpoint.of_consumer and len(args) > 1 else steps
        alone = endpoint.changes and not (endpoint.of_consumer or endpoint.beside)
        return (yield from gates.within(args[0], alone, inside))

    def _steps(
        self, endpoint: Endpoint, args: tuple[str, ...], request: Request
    ) -> Generator[Step, None, JsonDict | None]:
        fields = self._answer(endpoint, args, request)
        if fields is None or isinstance(fields, dict):
            return fields
        return (yield from fields)

    def _durable(
        self, request: Request, endpoint: Endpoint, fields: JsonDict | None, failure: Exception | None
    ) -> None:
        self.admission.leave(request)
        self._done(request, endpoint, fields, failure)

    def _done(
        self, request: Request, endpoint: Endpoint, fields: JsonDict | None, failure: Exception | None = None
    ) -> None:
        """Answer a request that succeeded; if `failure` is set, answer with an error.

        A `failure` means that the change of the request may not be durable.
        """
        if failure is not None and endpoint.unsynced is not None:
            self.refuse(request, endpoint, endpoint.unsynced.error(err=failure))
            return
        counted = endpoint.counted is Counted.ALL
        self._reply(request, endpoint, fields, counted)
        if counted:
            self._count(failed=False)

    def answer(self, request: Request, endpoint: Endpoint, fields: JsonDict) -> None:
        """Answer a request that another part of the server has handled."""
        self._done(request, endpoint, fields)

    def refuse(self, request: Request, endpoint: Endpoint, error: ApiError) -> None:
        """Answer a request with an error."""
        counted = endpoint.counted is not Counted.NONE
        if counted:
            self._count(failed=True)
        fields = {"error": error.as_json()} | endpoint.on_error
        self._reply(request, endpoint, fields, counted)

    def refuse_waiting(self, request: Request, depth: int) -> bool:
        """Refuse a request for which there was no room; return False if another server of the cluster answers it."""
        found = self.find(tuple(request.subject.decode("utf-8", "replace").split(".")[depth:]))
        return found is None or self.turn_away(request, *found)

    def turn_away(self, request: Request, endpoint: Endpoint, args: tuple[str, ...]) -> bool:
        """Refuse a request for an endpoint, as `refuse_waiting`."""
        member = self._shared.member
        if member is not None and not member.desk.refuses(self, request, endpoint, args):
            return False
        self.refuse(request, endpoint, errcodes.too_many_waiting())
        return True

    def _answer(
        self, endpoint: Endpoint, args: tuple[str, ...], request: Request
    ) -> JsonDict | MaybeSteps | None:
        errcodes.REQUIRED_API_LEVEL.raise_if(needs_higher_level(request.headers))
        if self.js is None:
            raise errcodes.NOT_ENABLED_FOR_ACCOUNT.error()
        return endpoint.handle(ApiCall(self.js, args, request))

    def _reply(
        self, request: Request, endpoint: Endpoint, fields: JsonDict | None, audited: bool = True
    ) -> None:
        wanted = audited and self.account.has_interest(audit.SUBJECT)
        if fields is None or not (request.reply or wanted):
            return
        headers = fields.pop(HEADERS, b"")
        body = dumps({"type": endpoint.type_prefix + endpoint.response} | fields)
        if request.reply:
            self.account.send(request.reply, body, headers)
        if wanted:
            audit.send(self.account, self._shared, request, body)

    def _count(self, failed: bool) -> None:
        if self.js is None:  # an account without JetStream; nats-server does not count the request either
            return
        for counts in (self._shared, self.js):
            counts.api_total += 1
            counts.api_errors += failed
