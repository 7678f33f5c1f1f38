"""The durable writes of the log, and the work that waits for them, in the order of turns.

Every write has a number. A queued item waits until the write with its number is durable, or only until the write is
in the file. With `sync_interval: always`, all items wait for a sync. Otherwise only votes and snapshots wait for one,
and other writes are synced within the interval.

A sync is a job for a thread; later writes wait for the next sync.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyjs.base.errors import StoreFailed
from pyjs.core.job import Job, JobQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyjs.base.timers import Timer, Timers
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.log.sync_job import FreshFileJob, SyncJob
    from pyjs.consensus.member import Member
    from pyjs.core.sink import Turn


class Waits(Enum):
    """The kinds of queued work."""

    STORED = "stored"  # the writes of one turn of the engine
    INSTALLED = "installed"  # a snapshot
    REOPEN = "reopen"  # a group that is reopened from its written entries


@dataclass(slots=True)  # one is created for each write, and creating a frozen dataclass takes longer
class Due:
    """One item of work that waits for writes of the log."""

    kind: Waits
    token: int = 0  # for STORED: the engine's token for the writes
    member: Member | None = None  # for the other kinds; another object if the group was reopened meanwhile
    index: int = 0  # for INSTALLED: index of the snapshot


class LogSync(Job):
    """A job that does one sync of the node's log."""

    queue = JobQueue.LOG

    def __init__(self, job: SyncJob, done: Callable[[LogSync, Exception | None], None]) -> None:
        self.job = job
        self._error: Exception | None = None
        self._done = done

    def run(self) -> None:
        """Sync the log; called in a thread."""
        self._error = self.job()

    def finish(self, failure: Exception | None) -> None:
        """Report the end of the sync; called in a turn. `failure` is an exception raised by `run`, or None."""
        self._done(self, self._error if failure is None else failure)


class FreshFile(Job):
    """A job that creates, in advance, a file that the log will need."""

    queue = JobQueue.REMOVALS

    def __init__(self, job: FreshFileJob, log: NodeLog) -> None:
        self._job = job
        self._log = log
        self._error: Exception | None = None

    def run(self) -> None:
        """Write and sync the file; called in a thread."""
        self._error = self._job()

    def finish(self, failure: Exception | None) -> None:
        """Pass the created file, or the error, to the log; called in a turn."""
        self._log.finish_fresh_file(self._job, self._error if failure is None else failure)


class Durability:
    """The syncs of the node's log, and the queue of work that waits for writes of the log."""

    def __init__(
        self,
        log: NodeLog,
        turn: Turn,
        timers: Timers,
        interval_ns: int,
        ended: Callable[[Exception | None], None],
    ) -> None:
        self.is_always = interval_ns == 0
        self._log = log
        self._turn = turn
        self._timers = timers
        self._interval_ns = interval_ns
        self._ended = ended  # called when a sync has ended
        # queued work: number of a write, and the work that waits for the write
        self.queue: deque[tuple[int, Due]] = deque()
        self._written = 0  # number of the last write
        self._wanted = 0  # number of the last write for which work waits
        self._covered = 0  # the running sync covers writes up to this number
        self._durable = 0
        self._running: LogSync | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        """Whether no work is queued."""
        return not self.queue

    def wrote(self) -> None:
        """Count a write of the log. With a sync interval, also start the timer of the next sync."""
        self._written += 1
        if self._interval_ns and self._timer is None:
            self._timer = self._timers.at(self._turn.now + self._interval_ns, self._interval_over)

    def add(self, due: Due, *, needs_sync: bool) -> None:
        """Queue work until all writes so far are in the file or, if `needs_sync`, durable."""
        number = self._written if needs_sync else 0
        self._wanted = max(self._wanted, number)
        self.queue.append((number, due))

    def stored(self, token: int, *, has_vote: bool) -> int:
        """Queue a report to the engine that the writes with `token` are stored, and return 0.

        If the report need not wait, it is not queued, and `token` is returned. Writes with a vote wait for a sync; so
        do all writes if there is no sync interval.
        """
        needs_sync = has_vote or self.is_always
        if not token or not (needs_sync or self.queue):
            return token
        self.add(Due(Waits.STORED, token), needs_sync=needs_sync)
        return 0

    def take(self) -> Iterator[Due]:
        """Remove and yield the queued work that need not wait any longer, oldest first."""
        queue = self.queue
        while queue and queue[0][0] <= self._durable:
            yield queue.popleft()[1]

    def begin(self) -> None:
        """Start a sync if queued work needs one."""
        if self._running is None and self._wanted > self._durable:
            self._sync()

    def hurry(self) -> None:
        """With a sync interval, sync the current writes now, or after the running sync.

        The caller is syncing a store. Without this call, the durable store would be ahead of the durable log until
        the interval ends.
        """
        if self._interval_ns and not self._is_stopped:
            self._wanted = self._written
            self.begin()

    def look_ahead(self) -> None:
        """Begin to create the next file of the log in a thread, unless there is one already."""
        job = self._log.begin_fresh_file()
        if job is not None:
            self._turn.jobs.append(FreshFile(job, self._log))

    def stop(self) -> None:
        """Start no more syncs, and drop the queued work."""
        self.queue.clear()
        self._wanted, self._is_stopped = 0, True
        if self._timer is not None:
            self._timer.cancel()

    def _sync(self) -> None:
        try:
            job = self._log.begin_sync()
        except StoreFailed as error:
            self._ended(error)
            return
        if job is None:  # nothing has to be synced
            self._durable = self._written
            return
        self._covered = self._written
        self._running = LogSync(job, self._synced)
        self._turn.jobs.append(self._running)

    def _synced(self, sync: LogSync, error: Exception | None) -> None:
        self._running = None
        self._log.finish_sync(sync.job, error)
        if error is None:
            self._durable = max(self._durable, self._covered)
        self._ended(error)

    def _interval_over(self) -> None:
        self._timer = None
        if self._running is None and self._written > self._durable:
            self._sync()
        elif self._written > self._covered:  # the next sync covers the other writes
            self._timer = self._timers.at(self._turn.now + self._interval_ns, self._interval_over)
