"""Spinning: checks for input for a short time before the loop sleeps, as long as that pays off.

A client that waits for each answer sends its next request within microseconds; waking a sleeping thread takes longer.
So the loop stays awake for SPIN_NS after each turn: a callback schedules itself again until the time is over
or a turn ran. Input during a spin earns three credits, a fruitless spin costs one, so spinning needs one success in
four; without credit the loop sleeps at once. A spin is tried again after some short waits, and after each fruitless
trial less often.

If other programs need the core, a spin takes it from the very client that it waits for: three servers of a cluster on
two cores that all spin answer half as many requests. The kernel preempts such spins. It also preempts one where the
client that has just got its answer wakes on the same core, and there spinning pays off. So preemptions only begin a
trial: the loop spins for some turns, sleeps at once for as many, and then goes on for a while in the faster way.

A spin expects one read, whose turn need not wait for other reads of the iteration (`Driver.prompt`). If there were
others nevertheless, they share a turn again for the next CROWDED checks.

Works on any asyncio loop. Benchmark: reqrep, jssync-1 and get-1 of benchmarks/run.py; pull-none, where a spin fails.
"""

from __future__ import annotations

import os
import resource
from time import monotonic_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.server.driver import Driver

SPIN_NS = 50_000  # duration of a spin
SHORT_NS = 150_000  # in a wait shorter than this, waking up may have been the larger part
CREDIT_MAX = 32  # after so many fruitless spins the loop sleeps at once
CREDIT_PAID = 3  # earned by input during a spin
WAITS_MAX = 64  # maximum number of short waits before the next trial
CROWDED = 256  # checks
CORE_EVERY = 32  # spins between two checks of the core
PREEMPTED_MAX = 8  # as many preemptions in so many spins begin a trial
STAGES = 6  # of a trial: without spins, with them, and so on
STAGE = 64  # turns of a stage
CLEARLY = 0.9  # turns that take less than this share of the time of others are clearly faster
GAP_NS = 1_000_000  # a longer time between two turns counts as this much: no client waited
REST_NS = 1_000_000_000  # the result of a trial holds so long


class Spin:
    """Keeps one loop awake for a while after each turn."""

    def __init__(self, driver: Driver, spin_ns: int = SPIN_NS) -> None:
        self._driver = driver
        self._loop = driver.loop
        self._spin_ns = spin_ns
        self._credit = CREDIT_MAX
        self._looking = False  # `_look` is scheduled
        self._turned_ns = 0  # when the last turn ended
        self._waits = 0  # short waits since the last trial
        self._waits_needed = 1  # short waits needed for the next trial
        self._crowded = 0  # checks until a read runs its turn at once again
        self._core = Core(has_neighbours=driver.node.cluster is not None)

    def after_turn(self) -> None:
        """Start a spin if there is credit."""
        if self._looking:
            self._credit = min(self._credit + CREDIT_PAID, CREDIT_MAX)
            self._waits_needed = 1
        elif self._credit == 0:
            # until the loop woke: the time that reading and the turn took does not count
            self._count_wait(self._driver.waked_ns - self._turned_ns)
        now_ns = monotonic_ns()
        self._core.turned(now_ns - self._turned_ns, now_ns)
        self._turned_ns = now_ns
        if self._credit > 0 and not self._looking and self._core.is_free(now_ns):
            self._looking = True
            self._loop.call_soon(self._look)

    def _count_wait(self, wait_ns: int) -> None:
        """Allow one more trial after enough short waits."""
        if wait_ns < SHORT_NS:
            self._waits += 1
        if self._waits >= self._waits_needed:
            self._waits = 0
            self._credit = 1

    def _look(self) -> None:
        driver = self._driver
        driver.prompted = False
        if monotonic_ns() - self._turned_ns < self._spin_ns:
            if driver.crowded:
                driver.crowded = False
                self._crowded = CROWDED
            self._crowded -= self._crowded > 0
            driver.prompt = not self._crowded
            self._loop.call_soon(self._look)
            return
        self._looking = driver.prompt = False
        self._credit -= 1
        if self._credit == 0:
            self._waits_needed = min(2 * self._waits_needed, WAITS_MAX)


class Core:
    """Tells whether spins take the core from others: by trials, which preemptions begin.

    A server with neighbours, which may be on the same machine, makes no trials but rests: its spins cost the
    neighbours more than they cost itself.
    """

    def __init__(self, *, has_neighbours: bool) -> None:
        self._has_neighbours = has_neighbours
        self._spins = 0  # since the last check
        self._preempted = preemptions()
        self._turns = 0  # of the stage of a trial that runs
        self._stages = 0  # left in the trial; even ones are without spins; 0: no trial runs
        self._with_ns = self._without_ns = 0  # the time of its turns with and without spins
        self._rests_until_ns = 0
        self._trial_due_ns = 0

    def turned(self, gap_ns: int, now_ns: int) -> None:
        """Count a turn that ended now, `gap_ns` after the one before."""
        if not self._stages:
            return
        if self._stages % 2:
            self._with_ns += min(gap_ns, GAP_NS)
        else:
            self._without_ns += min(gap_ns, GAP_NS)
        self._turns += 1
        if self._turns == STAGE:
            self._turns = 0
            self._stages -= 1
            if not self._stages:
                self._decide(now_ns)

    def _decide(self, now_ns: int) -> None:
        """Rest for a while if turns were clearly faster without spins."""
        self._trial_due_ns = now_ns + REST_NS
        if self._without_ns < CLEARLY * self._with_ns:
            self._rests_until_ns = self._trial_due_ns

    def is_free(self, now_ns: int) -> bool:
        """Return whether the loop may spin now, and count that spin."""
        if now_ns < self._rests_until_ns or (self._stages and self._stages % 2 == 0):
            return False
        self._spins += 1
        if self._spins == CORE_EVERY:
            self._check(now_ns)
        return True

    def _check(self, now_ns: int) -> None:
        """Begin a trial, or rest, if the kernel preempted many of the last spins and no result of a trial holds."""
        count = preemptions()
        if count - self._preempted >= PREEMPTED_MAX and not self._stages and now_ns >= self._trial_due_ns:
            if self._has_neighbours:
                self._rests_until_ns = now_ns + REST_NS
            else:
                self._stages = STAGES
                self._with_ns = self._without_ns = 0
        self._preempted = count
        self._spins = 0


def preemptions() -> int:
    """Return the number of involuntary context switches of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pays() -> bool:
    """Return whether this process has a second core, on which a client can run during a spin."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cpus > 1
