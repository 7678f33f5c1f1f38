"""The threads that run the jobs of a node, one for each lane; results return to the node's next turn.

Knows nothing of what a job does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.job import Job, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyjs.server.driver import Driver
    from pyjs.server.io_thread import IoThread


class Workers:
    """Runs the jobs of one node; the driver calls `after_turn`."""

    def __init__(self, driver: Driver, threads: Mapping[Lane, IoThread]) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._threads = threads

    @property
    def pending(self) -> int:
        """Return how many jobs were queued and have not returned."""
        return sum(thread.pending for thread in self._threads.values())

    def after_turn(self) -> None:
        """Start the jobs that the turn queued."""
        if self._turn_state.jobs:
            for job in self._turn_state.take("jobs"):
                self._threads[job.lane].submit(_runner(job), _finisher(self._driver, job))

    def thread(self, lane: Lane) -> IoThread:
        """Return the thread of one lane, for work that is not the node's."""
        return self._threads[lane]

    def stop(self) -> None:
        """Run what was queued and end the threads."""
        for thread in self._threads.values():
            thread.stop()


def _runner(job: Job) -> Callable[[], Exception | None]:
    def run() -> Exception | None:
        try:
            job.run()
        except Exception as error:  # the job's own business: `finish` gets it
            return error
        return None

    return run


def _finisher(driver: Driver, job: Job) -> Callable[[Exception | None], None]:
    def done(failure: Exception | None) -> None:
        driver.node.turn_state.finished.append((job, failure))
        driver.wake()

    return done
