"""One turn of the node: all kinds of work in a fixed order, each within its share of the turn.

The order of effects:

1. deadlines, then results of threads;
2. input left from earlier turns; sessions limit that work themselves (`Turn.input_left`);
3. streams commit and send their PubAcks, replicated groups agree and apply, requests are answered, consumers
   deliver, streams apply retention; this step repeats while one of these actions creates work for another;
4. chores run their steps;
5. every connection with output writes once.

Work beyond its share waits for the next turn, in fair order over accounts and connections. Invariant: a turn ends
within the sum of the shares.

Failed work is reported and does not affect other work; its owner is added to `Turn.faulted`, for repair.

This module knows nothing of streams, consumers and sessions.
Compiled, because a client that waits for each answer pays for a whole turn (measured in benchmarks/: reqrep,
jssync-1).
"""

from libc.stdint cimport int64_t

from pyjs.base.timers cimport Timers
from pyjs.core.lane cimport Lane
from pyjs.core.sink cimport Turn
from pyjs.subjects.routes cimport RouteCache

from operator import methodcaller
from typing import NamedTuple

from pyjs.core.chore import Chore
from pyjs.core.lane import Share

cdef enum:
    ROUNDS = 16     # maximum repetitions of step 3 in one turn
    COPIES = 4      # batches that all mirrors and sources together may copy in one turn
    SKEW_EVERY_NS = 10000000    # maximum ns between two reads of the wall clock

NS_PER_US = 1000


class Shares(NamedTuple):
    """The share of each kind of work: together 8.6 ms under full load.

    Under load, a PING of a quiet client waits for the rest of one turn and for the next turn, so the shares
    determine the response time. Creating consumers uses both the share of requests and that of chores; publishes take
    time in addition to the shares.

    One item takes, in microseconds: a timer 2-20, a commit 10-50, a pull or direct get 3-10, any other request
    50-1000, a pump or an inbox up to 1000, a chore's step up to 1000, a flush 5-50, or up to 1000 with compression.
    """

    timers: Share = Share(1000, 500 * NS_PER_US, 8)
    jobs: Share = Share(256, 500 * NS_PER_US)
    commits: Share = Share(1000, 1500 * NS_PER_US, 4)
    consensus: Share = Share(ROUNDS, 400 * NS_PER_US)
    requests: Share = Share(256, 350 * NS_PER_US)
    pumps: Share = Share(256, 2000 * NS_PER_US)
    inboxes: Share = Share(256, 1000 * NS_PER_US)
    chores: Share = Share(16, 350 * NS_PER_US)
    flushes: Share = Share(2000, 2000 * NS_PER_US, 2, few=64)


cdef class Scheduler:
    """The runner of one node's turns, with a lane for each kind of work."""

    def __init__(self, Turn state not None, Timers timers not None, clock, faults, shares=None) -> None:
        shares = shares or Shares()
        self.state = state
        self.timers = timers
        self.clock = clock
        self.faults = faults
        self.timers_share = shares.timers

        def lane(share, do, owner_of, kind):
            return Lane(clock, share, do, owner_of, lambda item, error: self.report_item(kind, item, error))

        self.jobs = lane(shares.jobs, _finish, _nobody, "job")
        self.commits = lane(shares.commits, methodcaller("commit"), _of_account, "commit")
        self.consensus = lane(shares.consensus, methodcaller("turn"), _nobody, "consensus")
        self.requests = lane(shares.requests, self.answer, _of_request, "request")
        self.pumps = lane(shares.pumps, methodcaller("pump"), _of_account, "delivery")
        self.inboxes = lane(shares.inboxes, methodcaller("read_inbox"), _of_account, "retention")
        self.chores = lane(shares.chores, Chore.go_on, _of_chore, "chore")
        self.flushes = lane(shares.flushes, methodcaller("flush_output"), _of_account, "flush")
        self.lanes = (
            self.jobs, self.commits, self.consensus, self.requests, self.pumps, self.inboxes, self.chores,
            self.flushes,
        )

    @property
    def has_work(self) -> bool:
        """Whether the last turn left work for the next one."""
        return self.is_busy()

    cdef bint is_busy(self) except -1:
        """Return whether the last turn left work for the next one."""
        return self.backlog or self.timers_left or not self.state.is_idle()

    cpdef turn(self, int64_t now_ns):
        """Run one turn at the time `now_ns`."""
        cdef Turn state = self.state
        cdef list fresh
        state.begin(now_ns, COPIES)
        state.begin_input()
        self.turns += 1
        if self.timers_left or self.timers.is_due(now_ns):    # timers left over may have been cancelled since
            self.fire_timers(now_ns)
        if state.finished or self.jobs.behind:
            fresh, state.finished = state.finished, []
            self.jobs.run(fresh, self.turns)
        if state.inputs:
            self.resume_inputs()
        for _ in range(ROUNDS):
            self.exchange(True)
            if not (state.streams or state.requests or state.consumers):
                break
        if state.chores or self.chores.behind:
            fresh, state.chores = state.chores, []
            self.chores.run(fresh, self.turns)
        self.flush()

    cpdef relieve(self, int64_t now_ns):
        """Run a partial turn in the middle of a read: commit, deliver and write output, but answer no requests."""
        cdef Turn state = self.state
        cdef list fresh
        state.begin(now_ns, COPIES)
        self.turns += 1
        self.exchange(False)
        if state.streams:
            fresh, state.streams = state.streams, []
            self.commits.run(fresh, self.turns)
        self.flush()

    cdef exchange(self, bint with_requests):
        """Run step 3 once: commits, consensus, requests (if `with_requests` is true), deliveries, retention."""
        cdef Turn state = self.state
        cdef list fresh
        if state.streams or self.commits.behind:
            fresh, state.streams = state.streams, []
            self.commits.run(fresh, self.turns)
        if state.consensus or self.consensus.behind:
            fresh, state.consensus = state.consensus, []
            self.consensus.run(fresh, self.turns)
        if with_requests and (state.requests or self.requests.behind):
            fresh, state.requests = state.requests, []
            self.requests.run(fresh, self.turns)
        if state.consumers or self.pumps.behind:
            fresh, state.consumers = state.consumers, []
            self.pumps.run(fresh, self.turns)
        if state.inboxes or self.inboxes.behind:
            fresh, state.inboxes = state.inboxes, []
            self.inboxes.run(fresh, self.turns)

    cdef flush(self):
        """Run step 5 (flushes), and set `backlog` if a lane still has work."""
        cdef Lane lane
        cdef list fresh
        if self.state.sessions or self.flushes.behind:
            fresh, self.state.sessions = self.state.sessions, []
            self.flushes.run(fresh, self.turns)
            self.state.unflushed = self.flushes.behind
        self.backlog = False
        for lane in self.lanes:
            if lane.behind:
                self.backlog = True

    cdef fire_timers(self, int64_t now_ns):
        """Call the callbacks of passed deadlines, earliest first, within the share."""
        cdef Py_ssize_t done = 0, stride = self.timers_share.stride, items = self.timers_share.items
        cdef int64_t deadline_ns = 0, time_ns
        self.timers_left = False
        while (timer := self.timers.due(now_ns)) is not None:
            if done % stride == 0:
                time_ns = self.clock.now_ns()
                deadline_ns = deadline_ns or time_ns + self.timers_share.ns
                if time_ns >= deadline_ns or done >= items:
                    self.timers_left = True
                    return
            done += 1
            owner = timer.owner
            try:
                self.timers.pop()()
            except Exception as error:
                self.report("timer", owner, error)

    cdef resume_inputs(self):
        """Parse input that earlier turns left unparsed."""
        while (session := self.state.next_input()) is not None:
            try:
                session.resume_input()
            except Exception as error:
                self.report("input", session, error)

    def answer(self, request) -> None:
        """Answer a request. If the answer takes several steps, run the first one and queue the rest as a chore."""
        steps = request.handler(request)
        if steps is not None:
            chore = Chore(steps, _of_request(request))
            if chore.go_on():
                self.state.chores.append(chore)

    def report_item(self, kind, item, error) -> None:
        """Report the failure of an item in the lane of this `kind`."""
        if kind == "job":
            item = item[0]
        elif kind == "request":
            item = getattr(item.handler, "__self__", item.subject)
        self.report(kind, item, error)

    cdef report(self, kind, item, error):
        self.faults.report(kind, f"a {kind} of {item}", error, self.state.now)
        self.state.faulted.append((item, error))


cdef class Turns:
    """The turns of a node, which is a subclass.

    The node calls `begin_turns` when it is created. Its methods `read_wall_clock` and `end_turn` are called in few
    turns only.
    """

    def begin_turns(self, Scheduler scheduler not None, RouteCache routes not None) -> None:
        """Run the turns with `scheduler`, and free unused routes after each turn."""
        self.scheduler, self.routes = scheduler, routes

    def turn(self, int64_t now_ns) -> None:
        """Run one turn at the time `now_ns`, unless a turn is running already."""
        if self.in_turn:
            return
        if now_ns >= self.skew_due_ns:
            self.skew_due_ns = now_ns + SKEW_EVERY_NS
            self.read_wall_clock()
        self.in_turn = True
        try:
            self.scheduler.turn(now_ns)
            self.end(now_ns)
        finally:
            self.in_turn = False

    def relieve(self, int64_t now_ns) -> None:
        """Run a partial turn during a long read, to write output; do nothing within a turn."""
        if self.in_turn:
            return
        self.in_turn = True
        try:
            self.scheduler.relieve(now_ns)
            self.end(now_ns)
        finally:
            self.in_turn = False

    cdef end(self, int64_t now_ns):
        """Do the work at the end of a turn, free unused routes, and set a timer to free more routes."""
        cdef Turn state = self.scheduler.state
        cdef int64_t due_ns
        if state.expired or state.faulted or state.reports:
            self.end_turn()
        self.routes.trim(now_ns)
        if self.trim_timer is None:
            due_ns = self.routes.next_trim_ns
            if due_ns:
                self.trim_timer = self.scheduler.timers.at(max(due_ns, now_ns + 1), self.trim_due)

    def trim_due(self) -> None:
        """Forget the timer, which has fired: `end` checks the routes in this turn."""
        self.trim_timer = None

    @property
    def has_work(self) -> bool:
        """Whether the last turn left work for the next one."""
        return self.scheduler.is_busy()


def _finish(item):
    item[0].finish(item[1])


def _nobody(item):
    return None, None


def _of_account(item):
    return item.account, None


def _of_request(request):
    session = request.session
    return getattr(session, "account", None), session


def _of_chore(chore):
    account, connection = chore.owner
    return account, connection
