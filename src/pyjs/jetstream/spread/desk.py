"""The choice of the worker that answers an API request, so that each request is answered exactly once.

The worker of the client answers a request, or passes it on to one other worker. So at any time, one worker is
responsible for a request, and no worker has to find out whether another one has answered it. Requests have no ids,
and the workers do not remember them: two equal requests with the same reply subject are simply two requests. If a
client of another worker subscribes to the subject of a request, that worker also gets a copy of the request as a
message; it does not answer the copy.

- The worker of the client answers requests about its own streams. It passes a request about another worker's stream
  on to that worker. All other requests go to the first worker: those about unknown streams, those about all streams
  of an account, and those that create, change or delete a stream.
- The worker of the client may not know yet that a stream has come or gone. If a worker gets a request about a stream
  that it does not have, it passes the request on to the first worker. The first worker knows where the stream is as
  soon as all changes of the stream are complete. So it waits for these changes, and also for a worker that is adding
  a restored stream to the account. The choice of the first worker is final: if the stream is deleted while the
  request is being passed on, the answer is that there is no such stream.
- A request that creates, changes or deletes a stream waits until the previous such request of its account is done.
  Then the first worker answers it, or passes it on to the worker that has the stream or gets it.
- A request whose worker is not running is refused with status 503, like a request to a server that is not running. A
  request is lost if a worker to which it was passed on crashes before it answers.

The worker of a client sends a request on the same connection as messages, after all messages of the client, so a
publish followed by a request is handled in this order. This does not hold for requests that are passed on again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyjs.base.clock import NS_PER_S
from pyjs.core.auth.identity import Sender
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.api import audit
from pyjs.jetstream.spread.notes import Passed, Settled, Stage, Turn
from pyjs.jetstream.spread.placing import DIRECTOR, UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.jetstream.api.endpoint import Endpoint
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.spread.spread_node import SpreadNode

CHANGES = frozenset(("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.RESTORE"))
WHOLE_NS = 10 * NS_PER_S  # time for the other workers to report their streams, after a start of the first one
RESTORES_MAX = 1000  # restores that the first worker remembers
CHANGE_NS = 60 * NS_PER_S  # maximum time for one change in another worker
T = TypeVar("T")


class Desk:
    """The component of a worker that decides which API requests the worker answers."""

    def __init__(self, spread: SpreadNode) -> None:
        self._spread = spread
        self._turn = spread.turn
        self._waiters = spread.waiters
        # number of changes by account and stream, including waiting ones
        self._under_way: dict[tuple[str, str], int] = {}
        self._changing: set[str] = set()  # accounts whose streams are being changed
        self._orders = 0  # number of the last change that was passed on
        self._open: set[int] = set()  # changes that another worker makes, or a turn that this one waits for
        self._unknown: set[int] = set()  # of those, changes whose account the other worker does not know
        # worker and number of turns that other workers want or have
        self._turns: set[tuple[int, int]] = set()
        # by account: the turn that has been granted and is not over
        self._given: dict[str, tuple[int, int]] = {}
        # by account and stream: the worker of its last restore, until a change finds the stream there
        self._restores: dict[tuple[str, str], int] = {}

    def handle(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that handle a request of a client of this worker, or of this worker itself.

        Return None if the request was passed on to another worker, or refused.
        """
        if self._spread.number == DIRECTOR:
            return self._direct(router, request, endpoint, args)
        if router.js is None or (_is_about_one(endpoint, args) and is_here(router.js, args[0])):
            return router.work(request, endpoint, args)
        found = None
        if _is_about_one(endpoint, args):
            found = self._spread.directory.find(router.account.name, args[0])
        self._pass_on(DIRECTOR if found is None else found.worker, router, request)
        return None

    def take(self, worker: int, router: Router, note: Passed) -> None:
        """Queue a request that `worker` has passed on."""
        sender = Sender(note.client) if note.client else None
        request = Request(
            lambda request: self._admitted(worker, router, request),
            note.subject,
            note.reply,
            note.headers,
            note.payload,
            sender,  # type: ignore[arg-type]  # as for routed requests
            is_routed=True,
        )
        # the first worker counts a change that it has passed on, until it is settled
        if not note.number and not router.admission.admit(router.account, request):
            router.admission.refused(1)
            if (found := router.find(_words_of(request.subject))) is not None:
                router.refuse(request, found[0], errcodes.too_many_waiting())
        elif note.is_first:
            self._turn.requests.append(request)
        else:
            self._turn.go_on(self._take_heard(worker, router, request, note.number))

    def _admitted(self, worker: int, router: Router, request: Request) -> Iterator[Step]:
        """Take a request that was counted on its arrival, and count it no longer when it has ended."""
        try:
            yield from self._take(worker, router, request) or ()
        finally:
            router.admission.leave(request)

    def _take(self, worker: int, router: Router, request: Request) -> Iterator[Step] | None:
        """Return the steps that answer a request that `worker` has passed on.

        Return None if the request was passed on once more, or refused.
        """
        found = router.find(_words_of(request.subject))
        if found is None:
            return None
        if self._spread.number == DIRECTOR:
            return self._direct(router, request, *found)
        endpoint, args = found
        if worker != DIRECTOR and _is_about_one(endpoint, args) and not is_here(router.js, args[0]):
            self._pass_on(DIRECTOR, router, request)
            return None
        return router.work(request, endpoint, args)

    def _take_heard(
        self, worker: int, router: Router, request: Request, number: int
    ) -> Generator[Step, None, None]:
        """Answer a request as soon as the subscriber to its reply subject is known.

        If `number` is not 0, then report to the first worker that the request is done.
        """
        try:
            yield from self._waiters.until_heard(router.account, request.reply)
            yield from self._take(worker, router, request) or ()
        finally:
            router.admission.leave(request)
            if number:
                self._spread.tell(DIRECTOR, Settled(number))

    def _pass_on(self, worker: int, router: Router, request: Request) -> None:
        """Pass a request on to another worker, or refuse the request if that worker is not running.

        A request of a client of this worker follows all earlier messages of the client.
        """
        note, spread = self._note(router, request), self._spread
        if worker not in spread.online:
            self.refuse(router.account, request.reply)
        elif request.is_routed:
            spread.tell(worker, note)
        elif not spread.tell_in_order(worker, note, request.session):
            self.refuse(router.account, request.reply)

    def _note(self, router: Router, request: Request, number: int = 0) -> Passed:
        client = audit.client_of(router.account, self._spread.shared, request) or {}
        message = request.subject, request.reply, request.headers, request.payload
        is_first = not (number or request.is_routed)
        return Passed(number, is_first, router.account.name, *message, client)

    def refuse(self, account: Account, reply: bytes) -> None:
        """Answer a request with status 503, unless it has no reply subject."""
        if reply:
            account.send(reply, b"", UNAVAILABLE)

    # -- the first worker ----------------------------------------------------------------------------------------

    def _direct(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        if router.js is None or not args:
            return router.work(request, self._spread.reports.endpoints.of(endpoint), args)
        if endpoint.words in CHANGES:
            return self._change(router, router.js, request, endpoint, args)
        worker = self._worker_of(router.js, args[0])
        if (router.account.name, args[0]) in self._under_way or not worker:
            return self._later(router, router.js, request, endpoint, args)
        return self._at(worker, router, request, endpoint, args)

    def _at(
        self, worker: int, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request in this worker, or pass it on to `worker` and return None."""
        if worker in (0, DIRECTOR):
            return router.work(request, endpoint, args)
        self._pass_on(worker, router, request)
        return None

    def _worker_of(self, js: JetStream, name: str) -> int:
        """Return the number of the worker that holds a stream, or 0 if none is known."""
        if is_here(js, name):
            return DIRECTOR
        found = self._spread.directory.find(js.account.name, name)
        return 0 if found is None else found.worker

    def _is_unknown(self, js: JetStream, name: str) -> bool:
        """Return whether a stream may be in a worker that has not reported its streams yet."""
        return not (self._spread.is_complete or self._worker_of(js, name))

    def _later(
        self, router: Router, js: JetStream, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        """Handle a request after all changes of its stream: answer it, pass it on, or refuse it with status 503."""
        account = js.account.name
        # This turn may have added the stream. The report arrives before the turn ends.
        turn = self._given.get(account)
        yield from self._waiters.until(
            lambda: (
                (account, args[0]) not in self._under_way
                and (turn is None or self._given.get(account) != turn)
            )
        )
        yield from self._waiters.until(lambda: not self._is_unknown(js, args[0]), WHOLE_NS)
        if self._is_unknown(js, args[0]):
            self.refuse(router.account, request.reply)
        else:
            yield from self._at(self._worker_of(js, args[0]), router, request, endpoint, args) or ()

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
            self.refuse(router.account, request.reply)
            return
        if not worker and endpoint.words in ("STREAM.CREATE", "STREAM.RESTORE"):
            worker = self._placed(js, args[0], request.payload, restores=endpoint.words == "STREAM.RESTORE")
        if worker in (0, DIRECTOR):
            yield from router.work(request, endpoint, args)
        elif worker not in spread.online or not (yield from self._order(worker, router, request)):
            self.refuse(router.account, request.reply)

    def _placed(self, js: JetStream, name: str, body: bytes, *, restores: bool) -> int:
        """Return the number of the worker for a new stream.

        While a restore of this stream may be going on, the result is the worker of that restore, if it is running.
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
        self._spread.tell(worker, self._note(router, request, number))
        yield from self._waiters.until(
            lambda: number not in self._open or breaks.get(worker) != before, CHANGE_NS
        )
        is_done = number not in self._open and number not in self._unknown
        self._open.discard(number)
        self._unknown.discard(number)
        return is_done

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
        """Handle a note about a turn, which requests the turn, grants it, or reports that it is over."""
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

        The turn ends when the worker reports that it is over, when the connection to the worker breaks, or after
        CHANGE_NS.
        """
        key, breaks = (worker, note.number), self._spread.breaks

        def is_over() -> bool:
            return key not in self._turns or breaks.get(worker) != before

        yield from self._waiters.until(lambda: self._spread.is_complete or is_over(), WHOLE_NS)
        if not is_over():
            self._given[note.account] = key
            self._spread.tell(worker, Turn(note.number, note.account, Stage.GIVEN))
        yield from self._waiters.until(is_over, CHANGE_NS)
        self._given.pop(note.account, None)
        self._turns.discard(key)


def is_here(js: JetStream | None, name: str) -> bool:
    """Return whether a stream is in this worker, open or not; False if `js` is None."""
    return js is not None and (
        name in js.streams or name in js.coming_streams or name in js.offline or name in js.held
    )


def _is_about_one(endpoint: Endpoint, args: tuple[str, ...]) -> bool:
    """Return whether a request is about one stream and does not create, change or delete it."""
    return bool(args) and endpoint.words not in CHANGES


def _words_of(subject: bytes) -> tuple[str, ...]:
    """Return the tokens of an API subject after its prefix `$JS.API` or `$JS.<domain>.API`."""
    tokens = subject.decode("utf-8", "replace").split(".")
    return tuple(tokens[3 if tokens[2:3] == ["API"] else 2 :])
