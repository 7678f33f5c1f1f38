"""Spinning: the loop checks for input for a short time before it sleeps, as long as this makes answers faster.

A client that waits for each answer sends its next request within microseconds; waking a sleeping thread takes
longer. So the loop remains awake for SPIN_NS after each turn: a callback schedules itself again until the time
has passed or a turn has run. Input during a spin earns three credits, and a spin without input costs one, so at
least one spin in four must succeed. Without credit, the loop sleeps immediately. After some short sleeps, one spin is
tried; each time this fails, more short sleeps are needed before the next try.

If other programs need the core, a spin can take it from the very client whose request the loop waits for: three
servers of a cluster that spin on two cores answer half as many requests. The kernel preempts such spins. But the
kernel also preempts a spin when the client that got its answer wakes on the same core, and in that case spinning is
faster nevertheless. Therefore, preemptions only begin a trial: the loop spins for some turns, sleeps immediately for
as many turns, and then uses the faster method for a while.

Spinning works on any asyncio loop. Benchmarks: reqrep, jssync-1 and direct-1 of benchmarks/run.py, and pull-none,
where spins fail. Compiled, because a client that waits for each answer pays for the checks and turns.
"""

from libc.stdint cimport int64_t

from pyjs.server.driver cimport Driver

import os
import resource
from time import monotonic_ns

cpdef enum:
    SPIN_NS = 50000             # duration of a spin
    SHORT_NS = 150000           # after a wait shorter than this, waking the thread may have taken most of the time
    CREDIT_MAX = 32             # maximum credit: after this many spins without input, the loop sleeps at once
    CREDIT_PAID = 3             # credit earned by input during a spin
    WAITS_MAX = 64              # maximum number of short waits before the next trial
    CORE_EVERY = 32             # spins between two checks of the core
    PREEMPTED_MAX = 8           # a trial begins if the kernel preempted this many of as many spins
    STAGES = 6                  # stages of a trial, without and with spins in turn
    STAGE = 64                  # turns of a stage
    GAP_NS = 1000000  # a longer time between two turns counts as this much, since no client waited for an answer
    REST_NS = 1000000000        # time for which the result of a trial is used

# Spins are clearly faster only if turns with spins take less than this share of the time of turns without: in a
# trial, times vary by a quarter.
cdef double CLEARLY = 0.75


cdef class Core:
    """A limiter of spins, so that they do not take the core from other processes.

    If the kernel preempts many spins, a trial begins. It has STAGES stages, alternately without and with spins. The
    times of the two kinds of stages are compared. If `has_neighbours` is true (the server is in a cluster), there is
    no trial; instead, spinning stops for REST_NS, since spins cost other servers on this machine more than this
    server gains.
    """

    cdef bint has_neighbours
    cdef int spins              # spins since the last check
    cdef int64_t preempted      # preemptions of the process up to the last check
    cdef int turns              # turns in the current stage of a trial
    cdef int stages             # stages left in the trial; if even, this one has no spins; 0: no trial
    cdef int64_t with_ns        # total time of the turns with spins
    cdef int64_t without_ns
    cdef int64_t rests_until_ns
    cdef int64_t trial_due_ns

    def __cinit__(self, bint has_neighbours):
        self.has_neighbours = has_neighbours
        self.preempted = preemptions()

    cdef void turned(self, int64_t gap_ns, int64_t now_ns) noexcept:
        """Add the time of a turn to the current stage of a trial.

        `gap_ns` is the time from the end of the previous turn to the end of this turn.
        """
        if not self.stages:
            return
        if self.stages % 2:
            self.with_ns += min(gap_ns, GAP_NS)
        else:
            self.without_ns += min(gap_ns, GAP_NS)
        self.turns += 1
        if self.turns == STAGE:
            self.turns = 0
            self.stages -= 1
            if not self.stages:
                self.decide(now_ns)

    cdef void decide(self, int64_t now_ns) noexcept:
        """End a trial: if turns were clearly faster without spins, stop spinning for REST_NS."""
        self.trial_due_ns = now_ns + REST_NS
        if self.without_ns < CLEARLY * self.with_ns:
            self.rests_until_ns = self.trial_due_ns

    cdef bint is_free(self, int64_t now_ns) except -1:
        """Return whether the loop may spin now; if so, count the spin."""
        if now_ns < self.rests_until_ns or (self.stages and self.stages % 2 == 0):
            return False
        self.spins += 1
        if self.spins == CORE_EVERY:
            self.check(now_ns)
        return True

    cdef int check(self, int64_t now_ns) except -1:
        """Begin a trial, or stop spinning for a while, if the kernel has preempted many of the last spins.

        Do neither during a trial, or as long as the result of a trial is used.
        """
        cdef int64_t count = preemptions()
        if count - self.preempted >= PREEMPTED_MAX and not self.stages and now_ns >= self.trial_due_ns:
            if self.has_neighbours:
                self.rests_until_ns = now_ns + REST_NS
            else:
                self.stages = STAGES
                self.with_ns = self.without_ns = 0
        self.preempted = count
        self.spins = 0
        return 0


cdef class Spin:
    """A spinner that keeps one event loop awake for a short time after each turn."""

    cdef Driver driver
    cdef object call_soon
    cdef Core core
    cdef public bint looking    # a check is scheduled
    cdef public int credit
    cdef int64_t spin_ns
    cdef int64_t turned_ns      # time of the last turn's end
    cdef int waits              # short waits since the last trial
    cdef int waits_needed       # short waits needed for the next trial

    def __init__(self, Driver driver not None, int64_t spin_ns=SPIN_NS) -> None:
        self.driver = driver
        self.call_soon = driver.loop.call_soon
        self.core = Core(driver.node.cluster is not None)
        self.spin_ns = spin_ns
        self.credit = CREDIT_MAX
        self.waits_needed = 1

    def after_turn(self) -> None:
        """Update the credit, and start a spin if there is credit and the core is free."""
        cdef int64_t now_ns
        if self.looking:
            self.credit = min(self.credit + CREDIT_PAID, CREDIT_MAX)
            self.waits_needed = 1
        elif self.credit == 0:
            # wait up to the wake-up of the loop; reading and the turn itself do not count
            self.count_wait(self.driver.waked_ns - self.turned_ns)
        now_ns = monotonic_ns()
        self.core.turned(now_ns - self.turned_ns, now_ns)
        self.turned_ns = now_ns
        if self.credit > 0 and not self.looking and self.core.is_free(now_ns):
            self.looking = True
            self.call_soon(self.look)

    cdef void count_wait(self, int64_t wait_ns) noexcept:
        """Count a wait if it was short; after enough short waits, give the credit for one spin."""
        if wait_ns < SHORT_NS:
            self.waits += 1
        if self.waits >= self.waits_needed:
            self.waits = 0
            self.credit = 1

    def look(self) -> None:
        """Continue to spin, or let the loop sleep; called in each iteration of the loop during a spin."""
        if monotonic_ns() - self.turned_ns < self.spin_ns:
            self.call_soon(self.look)
            return
        self.looking = False
        self.credit -= 1
        if self.credit == 0:
            self.waits_needed = min(2 * self.waits_needed, WAITS_MAX)


def preemptions() -> int:
    """Return the number of involuntary context switches of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pays() -> bool:
    """Return whether this process has a second core, so that a client can run during a spin."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cpus > 1
