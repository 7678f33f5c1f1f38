"""The syncs of streams: when they run, and their jobs in the I/O thread.

- By default, the streams written since the last sync are synced every `sync_interval`. They are synced earlier if
  many files wait for a sync, since unsynced files occupy descriptors.
- With `sync_interval: always`, every turn submits its batch at once, and PubAcks are sent as soon as the batch is
  durable. This is group commit: each stream of a batch gets one fdatasync, during which the next batch is read.
  Streams with replicas do not need this, since their messages are durable in the log of their group. They are synced
  at the end of the interval, one after the other, so that a batch waits for at most one of them.

Many streams are synced together. The streams return their jobs, a limited number in each callback of the loop; then
one sync of the file system covers all these jobs.

This module knows nothing of files: a stream returns a job, the job runs in the thread, and its result is passed to
the stream.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.base.together import Together
from pyjs.server.threads.io_thread import IoThread, result_of
from pyjs.server.threads.sync_watch import SyncWatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.config.options import JetStreamOptions
    from pyjs.core.sink import Syncing, SyncWork
    from pyjs.server.driver import Driver
    from pyjs.store.open_files import OpenFiles

    Work = tuple[Syncing, SyncWork]

NS_PER_S = 1_000_000_000
# for this many streams or more, one sync of the whole file system is faster than separate syncs
GROUP_MIN = 32
GROUP_MIN_ALWAYS = 256  # the same with `always`: other programs' writes could delay waiting publishers
BEGUN_AT_ONCE = 128  # streams that return their jobs in one callback; about 20 us each
TOGETHER_MAX = 4096  # streams in one sync of the file system
RESULTS_AT_ONCE = 64  # results handled in one turn; about 10 us each
DRAIN_S = 1.0  # seconds: a drain waits for messages published within this time


class Syncer:
    """The scheduler of the syncs of one node's streams; the driver calls `after_turn` after each turn."""

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
        self._due: deque[Syncing] = deque()  # streams that have not returned their job yet
        self._works: list[Work] = []  # the jobs returned so far
        self._later: list[Syncing] = []  # with `always`: streams whose PubAcks do not wait for a sync
        self._late: deque[Syncing] = deque()  # streams of `_later` whose interval is over
        self._has_late_job = False  # a stream of `_late` is being synced
        self._timer: asyncio.TimerHandle | None = None
        self._drained: Callable[[], None] | None = None  # called when everything is synced; None: no drain
        # begins a sync that must accompany those of the streams
        self.beside: Callable[[], None] | None = None
        self._drain_until = 0.0  # a drain waits for messages published before this time
        self._watch = SyncWatch(driver.node.turn_state, files, self)
        self.after_turn = self._watch.after_turn

    def unsynced_left(self) -> None:
        """Sync the streams that the turn wrote: at once, or within the interval."""
        if self._drained is not None and self._driver.loop.time() >= self._drain_until:
            return
        if self._files.crowded or self._drained is not None:
            self.sync()
        elif self._always:
            self._sync_urgent()
        elif self._timer is None:
            self._sync_later()

    def sync(self) -> None:
        """Submit jobs for all unsynced streams, some in each callback."""
        if self.beside is not None:
            self.beside()
            self._driver.wake()
        later, self._later = [*self._late, *self._later], []
        self._late.clear()
        self._begin([*later, *self._turn_state.take("unsynced")])

    def _sync_urgent(self) -> None:
        """Submit jobs for the streams whose PubAcks wait for a sync; put the others into `_later`."""
        urgent: list[Syncing] = []
        for stream in self._turn_state.take("unsynced"):
            (urgent if stream.sync_always else self._later).append(stream)
        self._begin(urgent)
        if self._later:
            self._sync_later()

    def _sync_later(self) -> None:
        if self._timer is None:
            self._timer = self._driver.loop.call_later(self._interval_s, self._interval_over)
            self._watch.is_timed = not self._always

    def _begin(self, streams: list[Syncing]) -> None:
        is_busy = bool(self._due)
        self._due.extend(streams)
        if self._due and not is_busy:
            self._begin_some()

    def _begin_some(self) -> None:
        """Get the jobs of some streams; submit the jobs if all streams have returned theirs, or if many jobs wait."""
        try:
            for _ in range(min(len(self._due), BEGUN_AT_ONCE)):
                stream = self._due.popleft()
                job = stream.begin_sync()
                if job is not None:
                    self._works.append((stream, job))
                else:
                    self._driver.wake()  # some answers may no longer need to wait for a sync
        finally:  # an error of one stream must not affect the others
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
                self._drain_on()  # nothing needed a sync, so no result will continue the drain

    def _submit_together(self, works: list[Work]) -> None:
        """Sync streams together, and handle the results of a limited number of them in each turn."""
        together = Together(self._driver.node.disk, self._directory)
        for _, job in works:
            job.together = together
        self._io_thread.submit(together.begin, _ignore)
        for at in range(0, len(works), RESULTS_AT_ONCE):
            self._submit_some(works[at : at + RESULTS_AT_ONCE])
        self._io_thread.submit(together.end, self._ended)

    def drain(self, then: Callable[[], None]) -> None:
        """Sync all streams, and call `then` after every PubAck that waited for a sync was sent.

        Clients may continue to publish, but messages published more than DRAIN_S seconds after this call are not
        acknowledged.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._watch.is_timed = False
        self._drained = then
        self._drain_until = self._driver.loop.time() + DRAIN_S
        self.sync()
        self._drain_on()

    def _drain_on(self) -> None:
        try:
            self._driver.turn_now()
        finally:  # even if the turn failed
            if self._drained is not None and not (self._io_thread.pending or self._due):
                then, self._drained = self._drained, None
                then()

    def _submit(self, stream: Syncing, job: SyncWork, then: Callable[[], None] | None = None) -> None:
        def done(error: Exception | None) -> None:
            try:
                stream.finish_sync(error)
            finally:
                self._ended(None)
                if then is not None:
                    then()

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
        self._watch.is_timed = False
        if not self._always or self._files.crowded:
            self.sync()
            return
        if len(self._late) + len(self._later) >= self.group_min:
            self.sync()  # all together: one by one, the last stream would wait for all others
            return
        self._late.extend(self._later)
        self._later.clear()
        self._begin_late()

    def _begin_late(self) -> None:
        """Submit the job of one stream whose PubAcks do not wait for a sync; when it ends, begin the next stream."""
        if self._has_late_job:
            return
        job = None
        try:
            for _ in range(min(len(self._late), BEGUN_AT_ONCE)):
                stream = self._late.popleft()
                job = stream.begin_sync()
                if job is not None:
                    self._has_late_job = True
                    self._submit(stream, job, self._late_ended)
                    break
        finally:  # an error of one stream must not affect the others
            if job is None and self._late:
                self._driver.loop.call_soon(self._begin_late)

    def _late_ended(self) -> None:
        self._has_late_job = False
        self._begin_late()


def _finish(works: list[Work], errors: list[Exception | None]) -> None:
    """Pass each stream its result; then raise the first exception that a stream raised, if any."""
    failed: Exception | None = None
    for (stream, _), error in zip(works, errors, strict=True):
        try:
            stream.finish_sync(error)
        except Exception as exception:  # raised for one stream
            failed = failed or exception
    if failed is not None:
        raise failed


def _ignore(failure: Exception | None) -> None:
    """Ignore `failure`, which the syncs of the streams report too."""
