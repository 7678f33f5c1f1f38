"""One turn of the node: all kinds of work in a fixed order, each within its share of the turn.

The order of effects:

1. deadlines, then results of threads;
2. input left from earlier turns; sessions count that work themselves (`Turn.input_left`);
3. streams commit and their PubAcks leave, requests are answered, consumers deliver, streams apply retention; repeated
   while one of them creates work for another;
4. chores do their steps;
5. every connection with output writes once.

Work beyond its share waits for the next turn, in fair order over accounts and connections. Invariant: a turn ends
within the sum of the shares.

Failed work is reported and does not affect other work; its owner is added to `Turn.faulted`, for repair.

Most turns under requests and replies have one connection to write to and nothing else: they take the short way.

Knows nothing of streams, consumers and sessions. Compiled: each request of a client that waits for its answer is a
turn (benchmarks/: reqrep, jssync-1, get-1).
"""
from libc.stdint cimport int64_t

from pyjs.core.sink cimport Request, Turn

from operator import methodcaller

from pyjs.core.chore import Chore
from pyjs.core.lane import Lane, Shares

cdef enum:
    ROUNDS = 16                 # repetitions of step 3 in one turn
    COPIES = 4                  # batches that all mirrors and sources copy in one turn


cdef class Scheduler:
    """Runs the turns of one node."""
    cdef Turn _state
    cdef object _timers, _clock, _faults, _timers_share
    cdef object _jobs, _commits, _requests, _pumps, _inboxes, _chores, _flushes
    cdef tuple _lanes
    cdef readonly int64_t _turns        # number of the current full or partial turn, for the lanes
    cdef bint _timers_left              # deadlines have passed that the last turn did not handle for lack of time
    cdef bint _backlog                  # a lane has work that the last turn did not finish

    def __init__(self, Turn state not None, timers, clock, faults, shares=None) -> None:
        shares = shares or Shares()
        self._state = state
        self._timers = timers
        self._clock = clock
        self._faults = faults
        self._timers_share = shares.timers
        self._jobs = self._lane(shares.jobs, finish, nobody, "job")
        self._commits = self._lane(shares.commits, methodcaller("commit"), of_account, "commit")
        self._requests = self._lane(shares.requests, self._answer, of_request, "request")
        self._pumps = self._lane(shares.pumps, methodcaller("pump"), of_account, "delivery")
        self._inboxes = self._lane(shares.inboxes, methodcaller("read_inbox"), of_account, "retention")
        self._chores = self._lane(shares.chores, Chore.go_on, of_chore, "chore")
        self._flushes = self._lane(shares.flushes, methodcaller("flush_output"), of_account, "flush")
        self._lanes = (
            self._jobs, self._commits, self._requests, self._pumps, self._inboxes, self._chores, self._flushes
        )

    def _lane(self, share, do, owner_of, kind):
        return Lane(self._clock, share, do, owner_of, lambda item, error: self._failed(kind, item, error))

    @property
    def has_work(self) -> bool:
        """Whether the last turn left work for the next one."""
        return self._backlog or self._timers_left or not self._state.idle

    def turn(self, int64_t now_ns) -> None:
        """Run one turn."""
        cdef Turn state = self._state
        cdef int rounds = ROUNDS
        state.begin(now_ns, COPIES)
        state.begin_input()
        self._turns += 1
        if self._timers.is_due(now_ns):
            self._fire_timers(now_ns)
        if self._is_short():
            self._flush_one()
            return
        if state.finished or self._jobs.waiting.count:
            self._jobs.run(state.take("finished"), self._turns)
        while (session := state.next_input()) is not None:
            self._resume(session)
        while rounds:
            rounds -= 1
            self._exchange(True)
            if not (state.streams or state.requests or state.consumers):
                break
        if state.chores or self._chores.waiting.count:
            self._chores.run(state.take("chores"), self._turns)
        self._flush()
        self._backlog = self._is_behind()

    def relieve(self, int64_t now_ns) -> None:
        """Run a partial turn in the middle of a read: commits, deliveries and output, but no requests."""
        cdef Turn state = self._state
        state.begin(now_ns, COPIES)
        self._turns += 1
        self._exchange(False)
        if state.streams:
            self._commits.run(state.take("streams"), self._turns)
        self._flush()
        self._backlog = self._is_behind()

    cdef bint _is_short(self):
        """Return whether at most one connection has output, and nothing else has work."""
        cdef Turn state = self._state
        return not (
            self._backlog or len(state.sessions) > 1 or state.streams or state.requests or state.consumers
            or state.inboxes or state.chores or state.finished or state.inputs
        )

    cdef int _flush_one(self) except -1:
        """Do step 5 for at most one connection; the lanes are empty."""
        if not self._state.sessions:
            return 0
        session = self._state.sessions.pop()
        try:
            if session.flush_output():
                self._flushes.waiting.put_back(of_account(session), session)
                self._state.unflushed, self._backlog = 1, True
        except Exception as error:
            self._failed("flush", session, error)
        return 0

    cdef bint _is_behind(self) except -1:
        for lane in self._lanes:
            if lane.waiting.count:
                return True
        return False

    cdef int _exchange(self, bint with_requests) except -1:
        """Run step 3 once: commits, requests, deliveries, retention."""
        cdef Turn state = self._state
        if state.streams or self._commits.waiting.count:
            self._commits.run(state.take("streams"), self._turns)
        if with_requests and (state.requests or self._requests.waiting.count):
            self._requests.run(state.take("requests"), self._turns)
        if state.consumers or self._pumps.waiting.count:
            self._pumps.run(state.take("consumers"), self._turns)
        if state.inboxes or self._inboxes.waiting.count:
            self._inboxes.run(state.take("inboxes"), self._turns)
        return 0

    cdef int _flush(self) except -1:
        if self._state.sessions or self._flushes.waiting.count:
            self._flushes.run(self._state.take("sessions"), self._turns)
            self._state.unflushed = self._flushes.waiting.count
        return 0

    cdef int _fire_timers(self, int64_t now_ns) except -1:
        """Call the callbacks of passed deadlines, earliest first, within the share."""
        cdef int64_t deadline_ns = 0, time_ns
        cdef int done = 0, stride = self._timers_share.stride, items = self._timers_share.items
        timers = self._timers
        self._timers_left = False
        while (timer := timers.due(now_ns)) is not None:
            if done % stride == 0:
                time_ns = self._clock.now_ns()
                deadline_ns = deadline_ns or time_ns + <int64_t> self._timers_share.ns
                if time_ns >= deadline_ns or done >= items:
                    self._timers_left = True
                    return 0
            done += 1
            owner = timer.owner
            try:
                timers.pop()()
            except Exception as error:
                self._report("timer", owner, error)
        return 0

    cdef int _resume(self, session) except -1:
        """Parse input of a session that was left from earlier turns."""
        try:
            session.resume_input()
        except Exception as error:
            self._report("input", session, error)
        return 0

    def _answer(self, Request request) -> None:
        """Answer a request; if that takes steps, do the first one and queue the others as a chore."""
        steps = request.handler(request)
        if steps is not None:
            chore = Chore(steps, of_request(request))
            if chore.go_on():
                self._state.chores.append(chore)

    cdef int _failed(self, str kind, item, error) except -1:
        if kind == "job":
            item = item[0]
        elif kind == "request":
            item = getattr(item.handler, "__self__", item.subject)
        return self._report(kind, item, error)

    cdef int _report(self, str kind, item, error) except -1:
        self._faults.report(kind, f"a {kind} of {item}", error, self._state.now)
        self._state.faulted.append((item, error))
        return 0


def finish(item) -> None:
    """End a job: a pair of it and its failure, or None."""
    item[0].finish(item[1])


def nobody(item) -> tuple:
    """Return the owner of work of the server."""
    return None, None


def of_account(item) -> tuple:
    """Return the account that owns a stream, a consumer or a session."""
    return item.account, None


def of_request(Request request) -> tuple:
    """Return the owner of a request: an account and one of its sessions."""
    session = request.session
    return getattr(session, "account", None), session


def of_chore(chore) -> tuple:
    """Return the owner of a chore."""
    account, connection = chore.owner
    return account, connection
