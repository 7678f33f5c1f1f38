"""Spinning: checks for input for a short time before the loop sleeps, as long as that pays off.

A client that waits for each answer sends its next request within microseconds; waking a sleeping thread takes longer.
So the loop stays awake for SPIN_NS after each turn: a callback schedules itself again until the time is over
or a turn ran. Input during a spin earns three credits, a fruitless spin costs one, so spinning needs one success in
four; without credit the loop sleeps at once. A spin is tried again after some short waits, and after each fruitless
trial less often.

If other programs need the core, a spin takes it from the very client that it waits for; the loop then sleeps at once
for a while. Without this rule, three servers of a cluster on two cores answered half as many requests.

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
PREEMPTED_MAX = 8  # more preemptions in so many spins mean that others need the core
REST_NS = 1_000_000_000


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
        self._begun = 0  # spins since the last check of the core
        self._preempted = preemptions()
        self._rests_until_ns = 0  # until then others need the core

    def after_turn(self) -> None:
        """Start a spin if there is credit."""
        if self._looking:
            self._credit = min(self._credit + CREDIT_PAID, CREDIT_MAX)
            self._waits_needed = 1
        elif self._credit == 0:
            # until the loop woke: the time that reading and the turn took does not count
            self._count_wait(self._driver.waked_ns - self._turned_ns)
        self._turned_ns = monotonic_ns()
        if self._credit > 0 and not self._looking and self._turned_ns >= self._rests_until_ns:
            self._looking = True
            self._loop.call_soon(self._look)
            self._begun += 1
            if self._begun == CORE_EVERY:
                self._look_at_core()

    def _look_at_core(self) -> None:
        """Stop spinning for a while if the kernel preempted many of the last spins, since others need the core."""
        count = preemptions()
        if count - self._preempted >= PREEMPTED_MAX:
            self._rests_until_ns = self._turned_ns + REST_NS
        self._preempted = count
        self._begun = 0

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


def preemptions() -> int:
    """Return the number of involuntary context switches of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pays() -> bool:
    """Return whether this process has a second core, on which a client can run during a spin."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cpus > 1
