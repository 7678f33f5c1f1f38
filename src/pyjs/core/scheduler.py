"""One turn of the node: all kinds of work in a fixed order, each within its share of the turn.

The order of effects:

1. deadlines, then results of threads;
2. input left from earlier turns; sessions count that work themselves (`Turn.input_left`);
3. streams commit and their PubAcks leave, replicated groups agree and apply, requests are answered, consumers
   deliver, streams apply retention; repeated while one of them creates work for another;
4. chores do their steps;
5. every connection with output writes once.

Work beyond its share waits for the next turn, in fair order over accounts and connections. Invariant: a turn ends
within the sum of the shares.

Failed work is reported and does not affect other work; its owner is added to `Turn.faulted`, for repair.

Knows nothing of streams, consumers and sessions.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from pyjs.core.chore import Chore
from pyjs.core.lane import Lane, Share

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.clock import Clock
    from pyjs.base.timers import Timers
    from pyjs.core.faults import Faults
    from pyjs.core.job import Job
    from pyjs.core.sink import Request, Turn

ROUNDS = 16  # repetitions of step 3 in one turn
COPIES = 4  # batches that all mirrors and sources copy in one turn
NS_PER_US = 1000


class Shares(NamedTuple):
    """The share of each kind of work: together 9.9 ms under full load.

    Under load a quiet client's PING waits for the rest of one turn and for the next one, so the shares determine the
    response time.

    One item takes, in microseconds: a timer 2-20, a commit 10-50, a pull or direct get 3-10, any other request
    50-1000, a pump or an inbox up to 1000, a step up to 1000, a flush 5-50, with compression up to 1000.
    """

    timers: Share = Share(1000, 500 * NS_PER_US, 8)
    jobs: Share = Share(256, 500 * NS_PER_US)
    commits: Share = Share(1000, 1500 * NS_PER_US, 4)
    consensus: Share = Share(ROUNDS, 400 * NS_PER_US)
    requests: Share = Share(256, 1000 * NS_PER_US)
    pumps: Share = Share(256, 2000 * NS_PER_US)
    inboxes: Share = Share(256, 1000 * NS_PER_US)
    chores: Share = Share(16, 1000 * NS_PER_US)
    flushes: Share = Share(2000, 2000 * NS_PER_US, 2, few=64)


class Scheduler:
    """Runs the turns of one node."""

    def __init__(
        self, state: Turn, timers: Timers, clock: Clock, faults: Faults, shares: Shares | None = None
    ) -> None:
        shares = shares or Shares()
        self._state = state
        self._timers = timers
        self._clock = clock
        self._faults = faults
        self._timers_share = shares.timers
        self._timers_left = False  # deadlines have passed that the last turn did not handle for lack of time

        def lane(share: Share, do: Callable[[Any], object], owner_of: Callable[[Any], Any], kind: str) -> Any:
            return Lane(clock, share, do, owner_of, lambda item, error: self._failed(kind, item, error))

        self._jobs: Lane[Any] = lane(shares.jobs, _finish, _nobody, "job")
        self._commits: Lane[Any] = lane(shares.commits, methodcaller("commit"), _of_account, "commit")
        self._consensus: Lane[Any] = lane(shares.consensus, methodcaller("turn"), _nobody, "consensus")
        self._requests: Lane[Request] = lane(shares.requests, self._answer, _of_request, "request")
        self._pumps: Lane[Any] = lane(shares.pumps, methodcaller("pump"), _of_account, "delivery")
        self._inboxes: Lane[Any] = lane(shares.inboxes, methodcaller("read_inbox"), _of_account, "retention")
        self._chores: Lane[Chore] = lane(shares.chores, Chore.go_on, _of_chore, "chore")
        self._flushes: Lane[Any] = lane(shares.flushes, methodcaller("flush_output"), _of_account, "flush")
        self._lanes = (
            self._jobs, self._commits, self._consensus, self._requests, self._pumps, self._inboxes, self._chores,
            self._flushes,
        )  # fmt: skip
        self._turns = 0  # number of the current full or partial turn, for the lanes
        self._backlog = False  # a lane has work that the last turn did not finish

    @property
    def has_work(self) -> bool:
        """Whether the last turn left work for the next one."""
        return self._backlog or self._timers_left or not self._state.idle

    def turn(self, now_ns: int) -> None:
        """Run one turn."""
        state = self._state
        state.begin(now_ns, COPIES)
        state.begin_input()
        self._turns += 1
        if self._timers.is_due(now_ns):
            self._fire_timers(now_ns)
        if state.finished or self._jobs.waiting.count:
            self._jobs.run(state.take("finished"), self._turns)
        while (session := state.next_input()) is not None:
            self._resume(session)
        for _ in range(ROUNDS):
            self._exchange(with_requests=True)
            if not (state.streams or state.requests or state.consumers):
                break
        if state.chores or self._chores.waiting.count:
            self._chores.run(state.take("chores"), self._turns)
        self._flush()
        self._backlog = self._is_behind()

    def relieve(self, now_ns: int) -> None:
        """Run a partial turn in the middle of a read: commits, deliveries and output, but no requests."""
        state = self._state
        state.begin(now_ns, COPIES)
        self._turns += 1
        self._exchange(with_requests=False)
        if state.streams:
            self._commits.run(state.take("streams"), self._turns)
        self._flush()
        self._backlog = self._is_behind()

    def _is_behind(self) -> bool:
        for lane in self._lanes:  # noqa: SIM110  a generator costs half a microsecond in each turn
            if lane.waiting.count:
                return True
        return False

    def _exchange(self, with_requests: bool) -> None:
        """Run step 3 once: commits, requests, deliveries, retention."""
        state = self._state
        if state.streams or self._commits.waiting.count:
            self._commits.run(state.take("streams"), self._turns)
        if state.consensus:
            self._consensus.run(state.take("consensus"), self._turns)
        if with_requests and (state.requests or self._requests.waiting.count):
            self._requests.run(state.take("requests"), self._turns)
        if state.consumers or self._pumps.waiting.count:
            self._pumps.run(state.take("consumers"), self._turns)
        if state.inboxes or self._inboxes.waiting.count:
            self._inboxes.run(state.take("inboxes"), self._turns)

    def _flush(self) -> None:
        if self._state.sessions or self._flushes.waiting.count:
            self._flushes.run(self._state.take("sessions"), self._turns)
            self._state.unflushed = self._flushes.waiting.count

    def _fire_timers(self, now_ns: int) -> None:
        """Call the callbacks of passed deadlines, earliest first, within the share."""
        timers, share, done = self._timers, self._timers_share, 0
        deadline_ns = 0
        self._timers_left = False
        while (timer := timers.due(now_ns)) is not None:
            if done % share.stride == 0:
                time_ns = self._clock.now_ns()
                deadline_ns = deadline_ns or time_ns + share.ns
                if time_ns >= deadline_ns or done >= share.items:
                    self._timers_left = True
                    return
            done += 1
            owner = timer.owner
            try:
                timers.pop()()
            except Exception as error:
                self._report("timer", owner, error)

    def _resume(self, session: Any) -> None:
        """Parse input of a session that was left from earlier turns."""
        try:
            session.resume_input()
        except Exception as error:
            self._report("input", session, error)

    def _answer(self, request: Request) -> None:
        """Answer a request; if that takes steps, do the first one and queue the others as a chore."""
        steps = request.handler(request)
        if steps is not None:
            chore = Chore(steps, _of_request(request))
            if chore.go_on():
                self._state.chores.append(chore)

    def _failed(self, kind: str, item: Any, error: Exception) -> None:
        if kind == "job":
            item = item[0]
        elif kind == "request":
            item = getattr(item.handler, "__self__", item.subject)
        self._report(kind, item, error)

    def _report(self, kind: str, item: Any, error: Exception) -> None:
        self._faults.report(kind, f"a {kind} of {item}", error, self._state.now)
        self._state.faulted.append((item, error))


def _finish(item: tuple[Job, Exception | None]) -> None:
    item[0].finish(item[1])


def _nobody(item: object) -> tuple[None, None]:
    return None, None


def _of_account(item: Any) -> tuple[object, None]:
    return item.account, None


def _of_request(request: Request) -> tuple[object, object]:
    session = request.session
    return getattr(session, "account", None), session


def _of_chore(chore: Chore) -> tuple[object, object]:
    account, connection = chore.owner
    return account, connection
