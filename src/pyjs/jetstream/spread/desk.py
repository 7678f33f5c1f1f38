"""The choice of the worker that answers an API request: every worker receives it, and exactly one answers.

- The worker that has a stream answers requests about it.
- The first worker answers requests about unknown streams and about all streams of an account. A request that creates,
  changes or deletes a stream waits until the previous one of its account is done. Then the first worker answers it,
  or passes it on to the worker that has the stream or gets it.
- While such a request is being carried out, it depends on timing which worker has the stream. On another request
  about the stream, the first worker at once asks the others whether one of them has answered it. From then on, none
  of them will: the first worker answers the request, or passes it on when the change is complete.
- The same applies to requests about an unknown stream, and about one that was created less than RECENT_NS ago. Each
  worker gets requests, and the orders of the first worker, on different connections: a request may reach a worker
  after the stream has come or gone, although it reached another worker before that.
- A request whose worker is not running is refused with status 503, like a request to a server that is not running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyjs.base.clock import NS_PER_S
from pyjs.core.auth.identity import Sender
from pyjs.core.session import ClientSession
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.member.questions import RECENT_NS, Recent
from pyjs.jetstream.spread.notes import Claim, Claimed, Passed, Settled, Stage, Turn
from pyjs.jetstream.spread.placing import DIRECTOR, UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import Endpoint
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.spread.spread_node import SpreadNode

CHANGES = frozenset(("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.RESTORE"))
WHOLE_NS = 10 * NS_PER_S  # time for the other workers to report their streams, after a start of the first one
CLAIM_NS = 2 * NS_PER_S  # time to wait for the answers to a claim
RESTORES_MAX = 1000  # restores that the first worker remembers
CHANGE_NS = 60 * NS_PER_S  # maximum time for one change in another worker
T = TypeVar("T")


class Desk:
    """The component of a worker that decides which API requests the worker answers."""

    def __init__(self, spread: SpreadNode) -> None:
        self._spread = spread
        self._turn = spread.turn
        self._waiters = spread.waiters
        # Requests that were answered here, claimed by the first worker before they arrived, or left to other workers.
        self._taken = Recent(self._turn)
        self._claimed = Recent(self._turn)
        self._left = Recent(self._turn)
        # number of changes by account and stream, including waiting ones
        self._under_way: dict[tuple[str, str], int] = {}
        self._changing: set[str] = set()  # accounts whose streams are being changed
        self._orders = 0  # number of the last change that was passed on
        self._open: set[int] = set()  # changes that another worker makes, or a turn that this one waits for
        self._unknown: set[int] = set()  # of those, changes whose account the other worker does not know
        # worker and number of turns that other workers want or have
        self._turns: set[tuple[int, int]] = set()
        self._claims: dict[int, dict[int, bool]] = {}  # by number: answers by worker
        # by account and stream: the worker of its last restore, until a change finds the stream there
        self._restores: dict[tuple[str, str], int] = {}

    def handle(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that handle a request, or None if another worker answers it or this call refused it."""
        if self._spread.number == DIRECTOR:
            return self._direct(router, request, endpoint, args)
        if args and endpoint.words not in CHANGES:
            if self._claimed.remove(request):
                return None
            if is_here(router.js, args[0]):
                self._left.remove(request)
                self._taken.add(request)
                return router.work(request, endpoint, args)
            self._taken.remove(request)
            self._left.add(request)
        if isinstance(request.session, ClientSession) and DIRECTOR not in self._spread.online:
            self._refuse(router, request, () if endpoint.words in CHANGES else args)
        return None

    def _refuse(self, router: Router, request: Request, args: tuple[str, ...] = ()) -> None:
        """Answer a request with status 503, unless it has no reply subject or another running worker has its stream.

        The first of `args` is the name of the stream. Without `args`, the stream is not looked up.
        """
        found = self._spread.directory.find(router.account.name, args[0]) if args else None
        if request.reply and (found is None or found.worker not in self._spread.online):
            router.account.send(request.reply, b"", UNAVAILABLE)

    # -- the first worker ----------------------------------------------------------------------------------------

    def _direct(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        if router.js is None or not args:
            return router.work(request, self._spread.reports.endpoints.of(endpoint), args)
        if endpoint.words in CHANGES:
            return self._change(router, router.js, request, endpoint, args)
        worker = self._worker_of(router.js, args[0])
        if (
            (router.account.name, args[0]) in self._under_way
            or not worker
            or self._is_new(router.js, args[0])
        ):
            return self._later(router, router.js, request, endpoint, args)
        if worker in (0, DIRECTOR):
            return router.work(request, endpoint, args)
        if worker not in self._spread.online:
            self._refuse(router, request)
        return None

    def _worker_of(self, js: JetStream, name: str) -> int:
        """Return the number of the worker that holds a stream, or 0 if none is known."""
        if is_here(js, name):
            return DIRECTOR
        found = self._spread.directory.find(js.account.name, name)
        return 0 if found is None else found.worker

    def _is_new(self, js: JetStream, name: str) -> bool:
        """Return whether a stream is known and was created less than RECENT_NS ago."""
        found = js.streams.get(name) or self._spread.directory.find(js.account.name, name)
        return found is not None and found.created_ns > self._turn.now - RECENT_NS

    def _is_unknown(self, js: JetStream, name: str) -> bool:
        """Return whether a stream may be in a worker that has not reported its streams yet."""
        return not (self._spread.is_complete or self._worker_of(js, name))

    def _later(
        self, router: Router, js: JetStream, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        """Handle a request after all changes of its stream, unless another worker has already answered the request.

        The request is answered here, passed on to the worker that has the stream, or refused with status 503.
        """
        key = js.account.name, args[0]
        # Ask at once, while the other workers remember which requests they answered. Those that have not answered
        # this one no longer will by themselves.
        is_taken = bool(request.reply) and (yield from self._is_taken(request))
        if is_taken:
            return
        yield from self._waiters.until(lambda: key not in self._under_way)
        yield from self._waiters.until(lambda: not self._is_unknown(js, args[0]), WHOLE_NS)
        if self._is_unknown(js, args[0]):
            self._refuse(router, request)
            return
        worker = self._worker_of(js, args[0])
        if worker in (0, DIRECTOR):
            yield from router.work(request, endpoint, args)
        elif worker not in self._spread.online:
            self._refuse(router, request)
        elif request.reply:
            self._pass_on(worker, router, request)

    def _is_taken(self, request: Request) -> Generator[Step, None, bool]:
        """Ask all other workers whether they have answered a request, and return whether one of them has.

        A worker that has not answered the request does not answer it afterwards, unless it is passed on to that
        worker.
        """
        self._orders += 1
        number, asked = self._orders, set(self._spread.online)
        answers = self._claims[number] = {}
        for worker in sorted(asked):
            self._spread.tell(worker, Claim(number, request.subject, request.reply))
        yield from self._waiters.until(lambda: asked & self._spread.online <= answers.keys(), CLAIM_NS)
        del self._claims[number]
        return any(answers.values())

    def claimed(self, worker: int, note: Claimed) -> None:
        """Record the answer of a worker to a claim, if the claim is still open."""
        if note.number in self._claims:
            self._claims[note.number][worker] = note.is_taken
            self._waiters.notify()

    def _change(
        self, router: Router, js: JetStream, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        """Handle a request that creates, changes or deletes a stream, when no other change of its account runs."""
        account, under_way = js.account.name, self._under_way
        key = account, args[0]
        under_way[key] = under_way.get(key, 0) + 1
        try:
            yield from self._alone(account, lambda: self._carry_out(router, js, request, endpoint, args))
        finally:
            under_way[key] -= 1
            if not under_way[key]:
                del under_way[key]
            self._waiters.notify()

    def _alone(self, account: str, work: Callable[[], Generator[Step, None, T]]) -> Generator[Step, None, T]:
        """Wait for all other changes of the account's streams, then run `work` and return its result.

        No other change begins before `work` ends.
        """
        yield from self._waiters.until(lambda: account not in self._changing)
        self._changing.add(account)
        try:
            return (yield from work())
        finally:
            self._changing.discard(account)
            self._waiters.notify()

    def _carry_out(
        self, router: Router, js: JetStream, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        spread = self._spread
        yield from self._waiters.until(lambda: not self._is_unknown(js, args[0]), WHOLE_NS)
        worker = self._worker_of(js, args[0])
        if worker:  # the restored stream exists: after its deletion, the name may get another worker
            self._restores.pop((js.account.name, args[0]), None)
        elif not spread.is_complete:
            self._refuse(router, request)
            return
        if not worker and endpoint.words in ("STREAM.CREATE", "STREAM.RESTORE"):
            worker = self._placed(js, args[0], request.payload, restores=endpoint.words == "STREAM.RESTORE")
        if worker in (0, DIRECTOR):
            yield from router.work(request, endpoint, args)
        elif worker not in spread.online or not (yield from self._order(worker, router, request)):
            self._refuse(router, request)

    def _placed(self, js: JetStream, name: str, body: bytes, *, restores: bool) -> int:
        """Return the number of the worker for a new stream.

        While a restore may be going on, the name gets the worker of that restore again, if that worker is running.
        """
        key = js.account.name, name
        worker = self._restores.get(key, 0)
        if worker not in self._spread.online | {DIRECTOR}:
            worker = self._spread.place(js, name, body)
        if restores or key in self._restores:
            while len(self._restores) >= RESTORES_MAX:
                del self._restores[next(iter(self._restores))]
            self._restores[key] = worker
        return worker

    def _order(self, worker: int, router: Router, request: Request) -> Generator[Step, None, bool]:
        """Pass a change on to another worker, and return whether that worker has answered it within CHANGE_NS."""
        self._orders += 1
        number, breaks = self._orders, self._spread.breaks
        before = breaks.get(worker)
        self._open.add(number)
        self._pass_on(worker, router, request, number)
        yield from self._waiters.until(
            lambda: number not in self._open or breaks.get(worker) != before, CHANGE_NS
        )
        is_done = number not in self._open and number not in self._unknown
        self._open.discard(number)
        self._unknown.discard(number)
        return is_done

    def _pass_on(self, worker: int, router: Router, request: Request, number: int = 0) -> None:
        client = audit.client_of(router.account, self._spread.shared, request) or {}
        message = request.subject, request.reply, request.headers, request.payload
        self._spread.tell(worker, Passed(number, router.account.name, *message, client))

    def settled(self, note: Settled) -> None:
        """Record the result of a change that was passed on to another worker, and end the wait for it."""
        if note.number in self._open and not note.is_answered:
            self._unknown.add(note.number)
        self._open.discard(note.number)
        self._waiters.notify()

    # -- restored streams ----------------------------------------------------------------------------------------

    def add_steps(
        self, account: str, work: Callable[[], Generator[Step, None, T]]
    ) -> Generator[Step, None, T]:
        """Run `work`, which adds a restored stream, and return its result.

        No other stream of the account is created, changed or deleted while `work` runs.

        Raises:
            ApiError: another worker is not available, so `work` was not run; or `work` raised it.
        """
        spread = self._spread
        if spread.number == DIRECTOR:
            is_complete = yield from self._waiters.until(lambda: spread.is_complete, WHOLE_NS)
            errcodes.STREAM_RESTORE.raise_if(not is_complete, err="another worker is not available")
            return (yield from self._alone(account, work))
        self._orders += 1
        number, before = self._orders, spread.breaks.get(DIRECTOR)
        self._open.add(number)
        spread.tell(DIRECTOR, Turn(number, account, Stage.WANTED))
        yield from self._waiters.until(
            lambda: number not in self._open or spread.breaks.get(DIRECTOR) != before, CHANGE_NS
        )
        is_given = number not in self._open
        self._open.discard(number)
        try:
            errcodes.STREAM_RESTORE.raise_if(not is_given, err="the first worker is not available")
            return (yield from work())
        finally:
            spread.tell(DIRECTOR, Turn(number, account, Stage.OVER))

    def take_turn(self, worker: int, note: Turn) -> None:
        """Handle a note about a turn: a request for a turn, its grant by the first worker, or its end."""
        key = worker, note.number
        if note.stage is Stage.GIVEN:
            self._open.discard(note.number)
        elif note.stage is Stage.WANTED and self._spread.number == DIRECTOR:
            self._turns.add(key)
            before = self._spread.breaks.get(worker)
            self._turn.go_on(self._alone(note.account, lambda: self._turn_steps(worker, note, before)))
        else:
            self._turns.discard(key)

    def _turn_steps(self, worker: int, note: Turn, before: int | None) -> Generator[Step, None, None]:
        """Grant a turn to a worker, and wait for the end of the turn.

        The turn ends when the worker reports its end, when the connection to the worker breaks, or after CHANGE_NS.
        """
        key, breaks = (worker, note.number), self._spread.breaks

        def is_over() -> bool:
            return key not in self._turns or breaks.get(worker) != before

        yield from self._waiters.until(lambda: self._spread.is_complete or is_over(), WHOLE_NS)
        if not is_over():
            self._spread.tell(worker, Turn(note.number, note.account, Stage.GIVEN))
        yield from self._waiters.until(is_over, CHANGE_NS)
        self._turns.discard(key)

    # -- the other workers ---------------------------------------------------------------------------------------

    def claim(self, note: Claim) -> None:
        """Report to the first worker whether this worker has answered a request.

        If the request has not arrived yet, this worker does not answer it when it arrives.
        """
        request = Request(_nothing, note.subject, note.reply)
        is_left = self._left.remove(request)
        is_taken = not is_left and self._taken.remove(request)
        if not (is_left or is_taken):
            self._claimed.add(request)
        self._spread.tell(DIRECTOR, Claimed(note.number, is_taken))

    def passed(self, router: Router, note: Passed) -> Generator[Step, None, None]:
        """Handle a request that the first worker has passed on, and report its end if `note` has a number."""
        request = Request(
            _nothing,
            note.subject,
            note.reply,
            note.headers,
            note.payload,
            Sender(note.client) if note.client else None,  # type: ignore[arg-type]  # as for routed requests
        )
        tokens = note.subject.decode("utf-8", "replace").split(".")
        found = router.find(tuple(tokens[tokens.index("API") + 1 :]))
        try:
            if found is not None:
                yield from self._waiters.until_heard(router.account, note.reply)
                yield from router.work(request, *found)
        finally:
            if note.number:
                self._spread.tell(DIRECTOR, Settled(note.number))


def is_here(js: JetStream | None, name: str) -> bool:
    """Return whether a stream is in this worker, open or not; False if `js` is None."""
    return js is not None and (
        name in js.streams or name in js.coming_streams or name in js.offline or name in js.held
    )


def _nothing(request: Request) -> None:
    """Do nothing; the request came from another worker and has no sender here."""
