"""The turns of the node on the event loop: one per iteration.

Code that needs a turn calls `wake`; all reads of one iteration share the turn at its end. Where one client after the
other waits for an answer, iterations have one read each: its turn then runs at once, which saves a pass through the
loop. Every SAMPLE-th of those reads waits for the end of its iteration all the same. If another one came meanwhile,
all reads do, for a while.

The node's next deadline arms one timer. Knows nothing of sockets and of the work of a turn. Compiled: each request of
a client that waits for its answer is a turn (benchmarks/: reqrep, jssync-1, get-1).
"""
from libc.stdint cimport int64_t

from time import monotonic_ns

from pyjs.base.clock import NS_PER_S
from pyjs.server.endings import Endings

cdef enum:
    LONE_MIN = 8                # reads without company before a turn runs at once
    SAMPLE = 8
    CROWDED = 256               # reads that wait after company was seen
cdef int64_t NS_PER_MS = 1_000_000


cdef class Driver:
    """Runs the turns of one node."""
    cdef readonly object loop
    cdef readonly object node
    cdef readonly object endings
    cdef public list after_turn         # called after each turn, to hand work to threads
    cdef readonly int64_t waked_ns      # time of the first `wake` before the last turn
    cdef bint _waked                    # a turn is scheduled
    cdef bint _has_read                 # for a read
    cdef int _lone                      # reads without company since a turn was shared, from -CROWDED on
    cdef object _run                    # `_turn`, bound once
    cdef object _timer                  # TimerHandle of the loop, or None
    cdef int64_t _armed_ns              # deadline of `_timer`
    cdef bint _stopped

    def __init__(self, loop, node) -> None:
        self.loop = loop
        self.node = node
        self.endings = Endings(node.clock, node.log, self.wake)
        self.after_turn = [self.endings.after_turn]
        self._run = self._turn

    def wake(self) -> None:
        """Run a turn at the end of this iteration of the loop."""
        if not self._waked:
            self._waked = True
            self.waked_ns = monotonic_ns()
            self.loop.call_soon(self._run)

    def wake_for_input(self) -> None:
        """Run a turn for a read: at once if no other read is expected in this iteration, otherwise at its end."""
        if self._waked:
            if self._has_read:
                self._lone = -CROWDED
            self._has_read = True
            return
        self._lone += 1
        if self._lone < LONE_MIN or self._lone == LONE_MIN + SAMPLE:
            self._lone = min(self._lone, <int> LONE_MIN)
            self._has_read = True
            self.wake()
        else:
            self.waked_ns = monotonic_ns()
            try:
                self._turn()
            except Exception as error:      # not the fault of the connection that was read
                self.loop.call_exception_handler({"message": "Exception in a turn", "exception": error})

    def after(self, double seconds, callback):
        """Call `callback` in a turn after `seconds`: where many of them are due at once, over several turns."""
        deadline_ns = self.node.clock.now_ns() + round(seconds * NS_PER_S)
        timer = self.node.timers.at(deadline_ns, callback)
        self._arm()
        return timer

    def turn_now(self) -> None:
        """Run a turn at once, for the last output of a stopping server."""
        self.node.turn(self.node.clock.now_ns())
        for hand_over in self.after_turn:
            hand_over()

    def stop(self) -> None:
        """Run no more turns."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._waked = self._has_read = False
        if self._stopped:
            return
        self.turn_now()
        if self.node.has_work:
            self.wake()
        self._arm()

    cdef int _arm(self) except -1:
        cdef int64_t due_ns
        deadline_ns = self.node.next_deadline_ns()
        if deadline_ns is None:
            return 0
        due_ns = deadline_ns
        if self._timer is not None:
            if self._armed_ns <= due_ns:
                return 0                # a turn too early costs less than setting timers in every turn
            self._timer.cancel()
        # Loop timers count in milliseconds: rounded up, so that the deadline has passed when the timer fires.
        wait_ms = max(0, -(-(deadline_ns - self.node.clock.now_ns()) // NS_PER_MS))
        self._timer = self.loop.call_later(wait_ms / 1000, self._timer_fired)
        self._armed_ns = due_ns
        return 0

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()
