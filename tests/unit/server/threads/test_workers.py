"""Jobs of the node: the thread of their queue runs them, and a later turn receives their results."""

from __future__ import annotations

import asyncio
import threading

from pyjs.core.job import Job, JobQueue
from pyjs.server.driver import Driver
from pyjs.server.threads.io_thread import IoThread
from pyjs.server.threads.workers import Workers
from pyjs.testing import VirtualNode


class Noting(Job):
    """Records where it ran and how it ended; raises on request."""

    def __init__(self, queue: JobQueue, raises: Exception | None = None) -> None:
        self.queue = queue
        self.raises = raises
        self.ran_in = ""
        self.failure: Exception | None = None
        self.finished = asyncio.Event()

    def run(self) -> None:
        self.ran_in = threading.current_thread().name
        if self.raises is not None:
            raise self.raises

    def finish(self, failure: Exception | None) -> None:
        self.failure = failure
        self.finished.set()


async def run_all(*jobs: Noting) -> VirtualNode:
    """Queue the jobs as a turn would; wait until the results of all were received."""
    loop, fixture = asyncio.get_running_loop(), VirtualNode()
    driver = Driver(loop, fixture.node)
    workers = Workers(driver, {queue: IoThread(loop, queue.value) for queue in JobQueue})
    driver.after_turn.append(workers.after_turn)
    fixture.node.turn_state.jobs.extend(jobs)
    driver.wake()
    for job in jobs:
        await asyncio.wait_for(job.finished.wait(), 60)
    assert workers.pending == 0
    workers.stop()
    driver.stop()
    return fixture


async def test_a_job_runs_in_the_thread_of_its_queue() -> None:
    jobs = Noting(JobQueue.FILES), Noting(JobQueue.COMPUTE)

    await run_all(*jobs)

    assert [job.ran_in for job in jobs] == ["pyjs-files", "pyjs-compute"]


async def test_jobs_that_compute_run_in_fair_order_over_addresses() -> None:
    order: list[str] = []

    class Ordered(Noting):
        def __init__(self, ip: str, cid: int) -> None:
            super().__init__(JobQueue.COMPUTE)
            self.owner = (ip, cid)

        def run(self) -> None:
            order.append(str(self.owner[0]))

    flood = [Ordered("flooder", cid) for cid in range(50)]

    await run_all(*flood, Ordered("a", 51), Ordered("b", 52), Ordered("a", 53))

    assert order[:6] == ["flooder", "a", "b", "flooder", "a", "flooder"]
    assert len(order) == 53


async def test_a_stop_runs_what_computes() -> None:
    loop, fixture = asyncio.get_running_loop(), VirtualNode()
    driver = Driver(loop, fixture.node)
    workers = Workers(driver, {queue: IoThread(loop, queue.value) for queue in JobQueue})
    jobs = [Noting(JobQueue.COMPUTE) for _ in range(3)]
    fixture.node.turn_state.jobs.extend(jobs)
    workers.after_turn()
    assert workers.pending == 3
    workers.stop()
    assert [job.ran_in for job in jobs] == ["pyjs-compute"] * 3
    driver.stop()


async def test_what_a_job_raises_reaches_its_end_and_nobody_else() -> None:
    bad, good = Noting(JobQueue.FILES, OSError("no")), Noting(JobQueue.FILES)

    await run_all(bad, good)

    assert (str(bad.failure), good.failure) == ("no", None)


async def test_a_job_whose_end_fails_is_logged() -> None:
    class Failing(Noting):
        def finish(self, failure: Exception | None) -> None:
            super().finish(failure)
            raise RuntimeError("it")

    fixture = await run_all(Failing(JobQueue.COMPUTE))

    errors = [line for level, line in fixture.log.lines if level == "ERR"]
    assert len(errors) == 1
    assert "unexpected failure in a job of" in errors[0]
    assert "Failing" in errors[0]
