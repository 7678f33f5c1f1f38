"""Upkeep of stored files (removal, compaction, recasting): one job at a time in a thread; no client waits for it.

This module knows nothing of files: a store returns a job, the job runs in the thread, and its result is passed to the
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.sink import Keeping
    from pyjs.server.driver import Driver
    from pyjs.server.threads.io_thread import IoThread


class Upkeep:
    """The upkeep of the stores of one node; the driver calls `after_turn` after each turn."""

    def __init__(self, driver: Driver, thread: IoThread) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._thread = thread
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a job is running, or has a result that is not handled yet."""
        return self._thread.pending > 0

    def close(self) -> None:
        """Start no more jobs."""
        self._closed = True

    def after_turn(self) -> None:
        """Start the upkeep that the turn requested."""
        if self._turn_state.upkeep:
            for store in self._turn_state.take("upkeep"):
                self._next(store)

    def _next(self, store: Keeping) -> None:
        job = None if self._closed else store.begin_upkeep()
        if job is None:
            return

        def done(error: Exception | None) -> None:
            store.finish_upkeep(error)
            self._next(store)
            self._driver.wake()  # the result may have set a deadline

        self._thread.submit(job, done)
