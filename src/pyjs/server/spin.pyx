"""Spinning: checks for input for a short time before the loop sleeps, as long as that pays off.

A client that waits for each answer sends its next request within microseconds; waking a sleeping thread takes longer.
So the loop stays awake for SPIN_NS after each turn: a callback schedules itself again until the time is over
or a turn ran. Input during a spin earns three credits, a fruitless spin costs one, so spinning needs one success in
four; without credit the loop sleeps at once. A spin is tried again after some short waits, and after each fruitless
trial less often.

If other programs need the core, a spin takes it from the very client that it waits for; the loop then sleeps at once
for a while. Without this rule, three servers of a cluster on two cores answered half as many requests.

Works on any asyncio loop. Compiled: it runs after each turn, and in each iteration while the loop stays awake
(benchmarks/: reqrep, jssync-1, get-1; pull-none, where a spin fails).
"""

from libc.stdint cimport int64_t

import os
import resource
from time import monotonic_ns

SPIN_NS = 50_000  # duration of a spin
SHORT_NS = 150_000  # in a wait shorter than this, waking up may have been the larger part
CREDIT_MAX = 32  # after so many fruitless spins the loop sleeps at once
CREDIT_PAID = 3  # earned by input during a spin
WAITS_MAX = 64  # maximum number of short waits before the next trial
CORE_EVERY = 32  # spins between two checks of the core
PREEMPTED_MAX = 8  # more preemptions in so many spins mean that others need the core
REST_NS = 1_000_000_000


cdef class Spin:
    """Keeps one loop awake for a while after each turn."""
    cdef object _driver, _call_soon, _check
    cdef int64_t _spin_ns
    cdef public int _credit
    cdef readonly bint _looking         # `_look` is scheduled
    cdef int64_t _turned_ns             # when the last turn ended
    cdef int _waits                     # short waits since the last trial
    cdef int _waits_needed              # short waits needed for the next trial
    cdef int _begun                     # spins since the last check of the core
    cdef int64_t _preempted
    cdef int64_t _rests_until_ns        # until then others need the core

    def __init__(self, driver, int64_t spin_ns=SPIN_NS) -> None:
        self._driver = driver
        self._call_soon = driver.loop.call_soon
        self._check = self._look
        self._spin_ns = spin_ns
        self._credit = CREDIT_MAX
        self._waits_needed = 1
        self._preempted = preemptions()

    def after_turn(self) -> None:
        """Start a spin if there is credit."""
        if self._looking:
            self._credit = min(self._credit + <int> CREDIT_PAID, <int> CREDIT_MAX)
            self._waits_needed = 1
        elif self._credit == 0:
            # until the loop woke: the time that reading and the turn took does not count
            self._count_wait(self._driver.waked_ns - self._turned_ns)
        self._turned_ns = monotonic_ns()
        if self._credit > 0 and not self._looking and self._turned_ns >= self._rests_until_ns:
            self._looking = True
            self._call_soon(self._check)
            self._begun += 1
            if self._begun == CORE_EVERY:
                self._look_at_core()

    cdef int _look_at_core(self) except -1:
        """Stop spinning for a while if the kernel preempted many of the last spins, since others need the core."""
        cdef int64_t count = preemptions()
        if count - self._preempted >= PREEMPTED_MAX:
            self._rests_until_ns = self._turned_ns + <int64_t> REST_NS
        self._preempted = count
        self._begun = 0
        return 0

    cdef int _count_wait(self, int64_t wait_ns) except -1:
        """Allow one more trial after enough short waits."""
        if wait_ns < <int64_t> SHORT_NS:
            self._waits += 1
        if self._waits >= self._waits_needed:
            self._waits = 0
            self._credit = 1
        return 0

    def _look(self) -> None:
        if <int64_t> monotonic_ns() - self._turned_ns < self._spin_ns:
            self._call_soon(self._check)
            return
        self._looking = False
        self._credit -= 1
        if self._credit == 0:
            self._waits_needed = min(2 * self._waits_needed, <int> WAITS_MAX)


def preemptions() -> int:
    """Return the number of involuntary context switches of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pays() -> bool:
    """Return whether this process has a second core, on which a client can run during a spin."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cpus > 1
