"""Spinning: checks for input for a short time before the loop sleeps, as long as that pays.

A client that waits for each answer sends its next request within microseconds; waking a sleeping thread takes longer.
After each turn the loop therefore stays awake for SPIN_NS: a callback schedules itself again until the time is over
or a turn ran. Each spin without input costs one credit, and each short wait earns some; without credit the loop
sleeps at once.

Works on any asyncio loop. Benchmark: reqrep, jssync-1 and get-1 of benchmarks/run.py.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.server.driver import Driver

SPIN_NS = 50_000  # duration of a spin
PAID_NS = 150_000  # after a shorter wait a spin would have paid: most of the wait was waking up
CREDIT_MAX = 32  # after so many spins without input the loop sleeps at once
CREDIT_PAID = 3  # earned by a short wait


class Spin:
    """Keeps one loop awake for a while after each turn."""

    def __init__(self, driver: Driver, spin_ns: int = SPIN_NS) -> None:
        self._driver = driver
        self._loop = driver.loop
        self._spin_ns = spin_ns
        self._credit = CREDIT_MAX
        self._looking = False  # `_look` is scheduled
        self._turned_ns = 0  # when the last turn ended

    def after_turn(self) -> None:
        """Start a spin, if there is credit."""
        if self._driver.waked_ns - self._turned_ns < PAID_NS:  # however long reading and the turn took
            self._credit = min(self._credit + CREDIT_PAID, CREDIT_MAX)
        self._turned_ns = monotonic_ns()
        if self._credit > 0 and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if monotonic_ns() - self._turned_ns < self._spin_ns:
            self._loop.call_soon(self._look)
            return
        self._looking = False
        self._credit -= 1


def pays() -> bool:
    """Return whether this process has a second core, on which a client can run during a spin."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cpus > 1
