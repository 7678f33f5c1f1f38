"""Durability beside the loop: written records are synced in the I/O thread.

Many streams are synced together: their file system is written out first, when each has said what it wrote, some of
them in each callback of the loop. When many files wait for a sync, which keeps their descriptors, the interval is cut
short.

With `sync_interval: always` every turn hands its batch over at once, and PubAcks leave when it is on the medium:
group commit, one fdatasync per stream and batch, while the next batch is read. Otherwise what was written since
the last time is synced every interval.

Knows nothing of files: a stream gives a job, the job runs in the thread, its result goes back to the stream.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.base.together import Together
from pyjs.server.threads.io_thread import IoThread, result_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.config.options import JetStreamOptions
    from pyjs.core.sink import Syncing, SyncWork
    from pyjs.server.driver import Driver
    from pyjs.store.open_files import OpenFiles

    Work = tuple[Syncing, SyncWork]

NS_PER_S = 1_000_000_000
GROUP_MIN = 32  # streams that are cheaper to sync when their whole file system was
GROUP_MIN_ALWAYS = 256  # where publishers wait: others may have written much to that file system
BEGUN_AT_ONCE = 128  # streams that are asked for their jobs in one callback: about 20 us each
TOGETHER_MAX = 4096  # streams, while more are asked to be synced
RESULTS_AT_ONCE = 64  # of streams that are synced together: each takes about 10 us of a turn
DRAIN_S = 1.0  # then what is still being published is left to those who close the streams


class Syncer:
    """Syncs the streams of one node; the driver calls `after_turn`."""

    def __init__(
        self, driver: Driver, io_thread: IoThread, jetstream: JetStreamOptions, files: OpenFiles
    ) -> None:
        self._driver = driver
        self._turn_state = driver.node.turn_state
        self._io_thread = io_thread
        self._files = files
        self._directory = jetstream.store_dir
        self._interval_s = jetstream.sync_interval_ns / NS_PER_S
        self._always = jetstream.sync_always
        self.group_min = GROUP_MIN_ALWAYS if self._always else GROUP_MIN
        self._due: deque[Syncing] = deque()  # streams that are still to be asked
        self._works: list[Work] = []  # their jobs so far
        self._timer: asyncio.TimerHandle | None = None
        self._drained: Callable[[], None] | None = None  # not None: everything is to be synced, then this
        self._drain_until = 0.0  # what is written later is not waited for

    def after_turn(self) -> None:
        """Take care of what the turn wrote: now, or within the interval."""
        if not self._turn_state.unsynced:
            return
        if self._drained is not None and self._driver.loop.time() >= self._drain_until:
            return
        if self._always or self._files.crowded:
            self.sync()
        elif self._timer is None:
            self._timer = self._driver.loop.call_later(self._interval_s, self._interval_over)

    def sync(self) -> None:
        """Hand everything unsynced to the thread, soon."""
        is_busy = bool(self._due)
        self._due.extend(self._turn_state.take("unsynced"))
        if self._due and not is_busy:
            self._begin_some()

    def _begin_some(self) -> None:
        """Take the jobs of some streams; hand them to the thread when all have been asked."""
        try:
            for _ in range(min(len(self._due), BEGUN_AT_ONCE)):
                stream = self._due.popleft()
                job = stream.begin_sync()
                if job is not None:
                    self._works.append((stream, job))
                else:
                    self._driver.wake()  # answers that waited for nothing have been given
        finally:  # a stream that fails is no reason to forget the others
            if self._due:
                self._driver.loop.call_soon(self._begin_more)
            if not self._due or len(self._works) >= TOGETHER_MAX:
                self._submit_all()

    def _submit_all(self) -> None:
        works, self._works = self._works, []
        if len(works) >= self.group_min:
            self._submit_together(works)
        else:
            for stream, job in works:
                self._submit(stream, job)

    def _begin_more(self) -> None:
        try:
            self._begin_some()
        finally:
            if self._drained is not None and not (self._io_thread.pending or self._due):
                self._drain_on()  # there was nothing to sync: nobody else looks whether all is over

    def _submit_together(self, works: list[Work]) -> None:
        """Have streams synced together, and their results taken some at a time."""
        together = Together(self._driver.node.disk, self._directory)
        for _, job in works:
            job.together = together
        self._io_thread.submit(together.begin, _ignore)
        for at in range(0, len(works), RESULTS_AT_ONCE):
            self._submit_some(works[at : at + RESULTS_AT_ONCE])
        self._io_thread.submit(together.end, self._ended)

    def drain(self, then: Callable[[], None]) -> None:
        """Sync everything, then call `then`: acknowledgements that waited have been given.

        Clients may publish on. Of what comes after DRAIN_S nothing is acknowledged any more.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._always = True
        self._drained = then
        self._drain_until = self._driver.loop.time() + DRAIN_S
        self._drain_on()

    def _drain_on(self) -> None:
        try:
            self._driver.turn_now()
        finally:  # a turn that fails is no reason to wait for ever
            if self._drained is not None and not (self._io_thread.pending or self._due):
                then, self._drained = self._drained, None
                then()

    def _submit(self, stream: Syncing, job: SyncWork) -> None:
        def done(error: Exception | None) -> None:
            try:
                stream.finish_sync(error)
            finally:
                self._ended(None)

        self._io_thread.submit(job, done)

    def _submit_some(self, works: list[Work]) -> None:
        errors: list[Exception | None] = []

        def run() -> Exception | None:
            for _, job in works:
                errors.append(result_of(job))
            return None

        def done(failure: Exception | None) -> None:
            try:
                _finish(works, errors)
            finally:
                self._ended(failure)

        self._io_thread.submit(run, done)

    def _ended(self, failure: Exception | None) -> None:
        self._driver.wake()
        if self._drained is not None and not self._io_thread.pending:
            self._drain_on()

    def _interval_over(self) -> None:
        self._timer = None
        self.sync()


def _finish(works: list[Work], errors: list[Exception | None]) -> None:
    """Give each stream its result; raise the first exception when all have it."""
    failed: Exception | None = None
    for (stream, _), error in zip(works, errors, strict=True):
        try:
            stream.finish_sync(error)
        except Exception as exception:  # of one stream
            failed = failed or exception
    if failed is not None:
        raise failed


def _ignore(failure: Exception | None) -> None:
    """Do nothing: what failed is told by the syncs of the streams."""
