"""Durability beside the loop: written records are synced in the I/O thread.

With `sync_interval: always` every turn hands its batch over at once, and PubAcks leave when it is on the medium:
group commit, one fdatasync per stream and batch, while the next batch is read. Otherwise what was written since
the last time is synced every interval.

Knows nothing of files: a stream gives a job, the job runs in the thread, its result goes back to the stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pyjs.server.io_thread import IoThread

if TYPE_CHECKING:
    from pyjs.jetstream.stream import Stream
    from pyjs.server.driver import Driver
    from pyjs.server.io_thread import Job

NS_PER_S = 1_000_000_000
DRAIN_STEP_S = 0.001


class Syncer:
    """Syncs the streams of one node; the driver calls `after_turn`."""

    def __init__(self, driver: Driver, io_thread: IoThread, interval_ns: int, always: bool) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._io_thread = io_thread
        self._interval_s = interval_ns / NS_PER_S
        self._always = always
        self._timer: asyncio.TimerHandle | None = None

    def after_turn(self) -> None:
        """Take care of what the turn wrote: now, or within the interval."""
        if not self._turn_state.unsynced:
            return
        if self._always:
            self.sync()
        elif self._timer is None:
            self._timer = self._driver.loop.call_later(self._interval_s, self._interval_over)

    def sync(self) -> None:
        """Hand everything unsynced to the thread."""
        for stream in cast("list[Stream]", self._turn_state.take("unsynced")):
            job = stream.begin_sync()
            if job is not None:
                self._submit(stream, job)
            else:
                self._driver.wake()  # answers that waited for nothing have been given

    async def drain(self) -> None:
        """Sync everything and wait until it is done; acknowledgements that waited have been given."""
        if self._timer is not None:
            self._timer.cancel()
        self._always = True
        self._driver.turn_now()
        while self._io_thread.pending:
            await asyncio.sleep(DRAIN_STEP_S)
            self._driver.turn_now()

    def _submit(self, stream: Stream, job: Job) -> None:
        def done(error: Exception | None) -> None:
            stream.finish_sync(error)
            self._driver.wake()

        self._io_thread.submit(job, done)

    def _interval_over(self) -> None:
        self._timer = None
        self.sync()
