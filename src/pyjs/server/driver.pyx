"""The turns of the node on the event loop: one turn per iteration.

Code that needs a turn calls `wake`; all reads of one iteration share the turn at the end of the iteration. If
iterations have only one read each, as with a client that waits for each answer, the turn runs directly after the
read, which saves a pass through the loop. To notice when this changes, every SAMPLE-th such read waits for the end of
its iteration. If a second read arrives before that end, the next CROWDED reads also wait for the ends of their
iterations.

The node's next deadline sets the only timer. This module knows nothing of sockets or of the work of a turn.
Compiled, because a client that waits for each answer pays for a whole turn (measured in benchmarks/: reqrep,
jssync-1).
"""
from libc.stdint cimport int64_t

from time import monotonic_ns

from pyjs.base.clock import NS_PER_S
from pyjs.monitor.state import LoopStats
from pyjs.server.endings import Endings

cdef enum:
    LONE_MIN = 8                # consecutive lone reads before a turn runs at once
    SAMPLE = 8
    CROWDED = 256               # after an iteration with several reads, this many reads wait for its end
    BUFFER_SIZE = 262144        # bytes of the largest read

cdef int64_t NS_PER_MS = 1000000
cdef int64_t OVERRUN_NS = 20000000  # clients notice a turn that takes longer
cdef int64_t EARLY_NS = 20000000    # a timer that fires this much before the deadline is set again,
cdef int64_t SOON_NS = 200000000    # if it would fire within this time; idle servers of a cluster have such deadlines
DEADLINE_MAX = 1 << 62          # ns: a token may expire in a year that no clock reaches


cdef class Driver:
    """The scheduler of one node's turns, on one event loop."""

    def __init__(self, loop, node) -> None:
        self.loop = loop
        self.node = node
        self.clock, self.deadlines = node.clock, node.timers
        self.endings = Endings(node.clock, node.log, self.wake)
        self.state = node.turn_state
        self.after_turn, self.jobs_queued, self.upkeep_queued, self.lists, self.once = [], [], [], [], []
        self.buffer = bytearray(BUFFER_SIZE)

    cpdef wake(self):
        """Schedule a turn for the end of this iteration of the loop, unless one is scheduled already."""
        if not self.waked:
            self.waked = True
            self.waked_ns = monotonic_ns()
            self.loop.call_soon(self.run_turn)

    cpdef wake_for_input(self):
        """Run a turn for a read: now if this iteration probably has no other read, otherwise at its end."""
        if self.waked:
            if self.has_read:
                self.lone = -CROWDED
            self.has_read = True
            return
        self.lone += 1
        if self.lone < LONE_MIN or self.lone == LONE_MIN + SAMPLE:
            self.lone = min(self.lone, <int> LONE_MIN)
            self.has_read = True
            self.wake()
            return
        self.waked_ns = monotonic_ns()
        try:
            self.turn()
        except Exception as error:              # the connection that was read did not cause this
            self.loop.call_exception_handler({"message": "Exception in a turn", "exception": error})

    cpdef wake_if_needed(self):
        """Only update the timer if the node is idle; otherwise request a turn as `wake_for_input` does."""
        if self.waked or not self.state.is_idle():
            self.wake_for_input()
        else:
            self.arm()

    def after(self, seconds, callback):
        """Call `callback` in a turn, `seconds` from now, and return the timer.

        If many calls are due at the same time, they are spread over turns.
        """
        deadline_ns = self.clock.now_ns() + round(seconds * NS_PER_S)
        timer = self.node.timers.at(deadline_ns, callback)
        self.arm()
        return timer

    def after_next_turn(self, hook) -> None:
        """Call `hook` once, after the next turn."""
        self.once.append(hook)

    def after_turn_with(self, items, hook) -> None:
        """Call `hook` after each turn after which `items` is not empty."""
        self.lists.append((items, hook))

    cpdef turn_now(self):
        """Run a turn and its hooks at once, and count the time that they take."""
        cdef int64_t began_ns = self.clock.now_ns(), took_ns
        self.node.turn(began_ns)
        self.call_hooks()
        took_ns = <int64_t> self.clock.now_ns() - began_ns
        self.turns += 1
        self.busy_ns += took_ns
        self.overruns += took_ns > OVERRUN_NS
        self.longest_ns = max(self.longest_ns, took_ns)

    cdef call_hooks(self):
        """Call the hooks that may have work after this turn."""
        if self.endings.waiting:
            self.endings.after_turn()
        if self.state.jobs:
            for hook in self.jobs_queued:
                hook()
        for hook in self.after_turn:
            hook()
        for items, hook in self.lists:
            if items:
                hook()
        if self.state.upkeep:
            for hook in self.upkeep_queued:
                hook()
        if self.once:
            hooks, self.once = self.once, []
            for hook in hooks:
                hook()

    def take_loop(self) -> LoopStats:
        """Return the statistics of the turns.

        The time of the longest turn covers only the turns since the last call.
        """
        found = LoopStats(self.turns, self.busy_ns, self.overruns, self.longest_ns)
        self.longest_ns = 0
        return found

    def stop(self) -> None:
        """Run no more turns."""
        self.stopped = True
        if self.timer is not None:
            self.timer.cancel()

    def run_turn(self) -> None:
        """Run the turn that `wake` requested; called by the loop."""
        self.turn()

    cdef turn(self):
        self.waked = self.has_read = False
        if self.stopped:
            return
        self.turn_now()
        if self.node.has_work:
            self.wake()
        self.arm()

    cdef arm(self):
        """Set the loop's timer to the node's next deadline; an earlier timer usually stays set."""
        cdef int64_t deadline_ns, wait_ms
        next_ns = self.deadlines.next_deadline_ns()
        if next_ns is None:
            return
        deadline_ns = min(next_ns, DEADLINE_MAX)
        if self.timer is not None:
            if self.armed_ns <= deadline_ns and not self.is_early(deadline_ns):
                return    # running a turn too early costs less than setting a timer in every turn
            self.timer.cancel()
        # Timers of the loop count milliseconds: round up, so that the deadline has passed when the timer
        # fires.
        wait_ms = max(0, deadline_ns - <int64_t> self.clock.now_ns() + NS_PER_MS - 1) // NS_PER_MS
        self.timer = self.loop.call_later(wait_ms / 1000.0, self.timer_fired)
        self.armed_ns = deadline_ns

    cdef bint is_early(self, int64_t deadline_ns) except -1:
        """Return whether the timer would soon wake an idle server, although the deadline is much later."""
        return (deadline_ns - self.armed_ns > EARLY_NS
                and self.armed_ns - <int64_t> self.clock.now_ns() < SOON_NS)

    def timer_fired(self) -> None:
        """Request a turn for the deadline; called by the loop."""
        self.timer = None
        self.wake()
