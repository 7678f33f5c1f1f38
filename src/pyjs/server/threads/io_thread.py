"""One or more threads for calls that would block the event loop, in particular fdatasync.

A single thread runs its jobs one after another, in the order of their submission, and releases the GIL while
the kernel works. Results are handled on the loop. This module knows nothing of stores, only callables.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    # Runs in the thread; returns an exception as its result if it fails.
    Job = Callable[[], Exception | None]
    Done = Callable[[Exception | None], None]  # runs on the loop


YIELDING = 10  # niceness of a computing thread


class IoThread:
    """A pool of up to `most` threads that run jobs outside the event loop; threads start on demand."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, yields: bool = False, most: int = 1
    ) -> None:
        self._loop = loop
        self._name = f"pyjs-{name}"
        # the jobs compute, so the threads have low priority and yield to the event loop
        self._yields = yields
        self._most = most
        self._jobs: SimpleQueue[tuple[Job, Done] | None]  # created with the first thread
        self._threads: list[threading.Thread] = []
        self._emptied: asyncio.Event | None = None  # set when no job is pending; None: no task waits for this
        self.pending = 0  # number of submitted jobs whose `done` has not run yet

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` in a thread, then call `done` on the loop with the job's error, or with None."""
        if not self._threads:
            self._jobs = SimpleQueue()
        if len(self._threads) < min(self._most, self.pending + 1):
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self.pending += 1
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Finish the submitted jobs and end the threads; do not wait for the calls of `done`."""
        for thread in self.leave():
            thread.join()

    def leave(self) -> list[threading.Thread]:
        """Make the threads end after the submitted jobs, and return the threads without waiting for them."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        return threads

    async def finish(self) -> None:
        """Wait until every submitted job has run and its `done` was called, then end the threads."""
        if self.pending:
            self._emptied = asyncio.Event()
            await self._emptied.wait()
        self.stop()

    def _work(self) -> None:
        if self._yields and sys.platform == "linux":  # only Linux has a priority for each thread
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), YIELDING)
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                self._loop.call_soon_threadsafe(self._finish, done, result_of(job))
            except RuntimeError:  # the loop is closed, so the result is not needed
                return
            # Otherwise these variables would keep a deleted stream and its consumers in memory until the next
            # job.
            del item, job, done

    def _finish(self, done: Done, result: Exception | None) -> None:
        self.pending -= 1
        try:
            done(result)
        finally:
            if self._emptied is not None and not self.pending:
                self._emptied.set()


def result_of(job: Job) -> Exception | None:
    """Run `job`, and return the error that it returned or raised, or None."""
    try:
        return job()
    except Exception as error:  # a failed job must not stop the jobs of other streams
        return error
