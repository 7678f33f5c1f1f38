"""Work on stored files that nobody waits for: in a thread of its own, a job at a time, beside loop and syncs.

Knows nothing of files: a store gives a job, the job runs in the thread, its result goes back to the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.sink import Keeping
    from pyjs.server.driver import Driver
    from pyjs.server.threads.io_thread import IoThread


class Upkeep:
    """Runs the upkeep of the stores of one node; `after_turn` is called after each turn."""

    def __init__(self, driver: Driver, thread: IoThread) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._thread = thread
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Return whether a job is at work, or its result on its way."""
        return self._thread.pending > 0

    def close(self) -> None:
        """Begin no more jobs."""
        self._closed = True

    def after_turn(self) -> None:
        """Begin what the turn asked for."""
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
            self._driver.wake()  # it may have set a deadline

        self._thread.submit(job, done)
