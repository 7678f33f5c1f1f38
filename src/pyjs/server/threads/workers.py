"""The threads that run the jobs of a node, one for each queue; results return to the node's next turn.

The owners of the jobs in the COMPUTE queue take turns, and the thread gets one job at a time. Therefore, an address
that sends many passwords delays a login from another address by only one check.

This module knows nothing of the work of a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.fair_queue import FairQueue
from pyjs.core.job import Job, JobQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyjs.server.driver import Driver
    from pyjs.server.threads.io_thread import IoThread


class Workers:
    """The threads that run the jobs of one node; the driver calls `after_turn` after each turn."""

    def __init__(self, driver: Driver, threads: Mapping[JobQueue, IoThread]) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._threads = threads
        self._waiting: FairQueue[Job] = FairQueue()  # jobs of the COMPUTE queue
        self._is_computing = False  # the COMPUTE thread runs a job

    @property
    def pending(self) -> int:
        """The number of jobs that were queued and whose results have not returned."""
        return self._waiting.count + sum(thread.pending for thread in self._threads.values())

    def after_turn(self) -> None:
        """Start the jobs that the turn queued."""
        if self._turn_state.jobs:
            for job in self._turn_state.take("jobs"):
                if job.queue is JobQueue.COMPUTE:
                    self._waiting.add(job.owner, job)
                else:
                    self._threads[job.queue].submit(job.run, _finisher(self._driver, job))
            self._compute_next()

    def _compute_next(self) -> None:
        """Start the next COMPUTE job if the thread is idle."""
        if self._is_computing or not self._waiting.count:
            return
        _, job = self._waiting.take()
        finish = _finisher(self._driver, job)

        def done(failure: Exception | None) -> None:
            self._is_computing = False
            finish(failure)
            self._compute_next()

        self._is_computing = True
        self._threads[JobQueue.COMPUTE].submit(job.run, done)

    def thread(self, queue: JobQueue) -> IoThread:
        """Return the thread that runs the jobs of `queue`, for work outside the node."""
        return self._threads[queue]

    async def finish(self) -> None:
        """Run the queued jobs, wait for their results, and end the threads, without blocking the loop."""
        self._submit_waiting()
        for thread in self._threads.values():
            await thread.finish()

    def stop(self) -> None:
        """Run the queued jobs and end the threads, blocking the loop; only for a loop that is about to be closed."""
        self._submit_waiting()
        for thread in self._threads.values():
            thread.stop()

    def _submit_waiting(self) -> None:
        while self._waiting.count:
            _, job = self._waiting.take()
            self._threads[JobQueue.COMPUTE].submit(job.run, _finisher(self._driver, job))


def _finisher(driver: Driver, job: Job) -> Callable[[Exception | None], None]:
    def done(failure: Exception | None) -> None:
        driver.node.turn_state.finished.append((job, failure))
        driver.wake()

    return done
