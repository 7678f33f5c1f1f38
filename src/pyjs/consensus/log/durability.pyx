"""The durable writes of the log, and the work that waits for them, in the order of turns.

Every write has a number. A queued item waits until the write with its number is durable, or only until the write is
in the file. With `sync_interval: always`, all items wait for a sync. Otherwise only votes and snapshots wait for one,
and other writes are synced within the interval.

A sync is a job for a thread; later writes wait for the next sync.

Compiled because each replicated entry passes it on three servers (benchmarks/: r3-sync-1).
"""

from collections import deque
from enum import Enum

from pyjs.base.errors import StoreFailed
from pyjs.core.job import Job, JobQueue


class Waits(Enum):
    """The kinds of queued work."""

    STORED = "stored"  # the writes of one turn of the engine
    INSTALLED = "installed"  # a snapshot
    REOPEN = "reopen"  # a group that is reopened from its written entries


STORED = Waits.STORED


cdef class Due:
    """One item of work that waits for writes of the log."""

    def __init__(self, kind, token=0, member=None, index=0) -> None:
        self.kind, self.token, self.member, self.index = kind, token, member, index


class LogSync(Job):
    """A job that does one sync of the node's log."""

    queue = JobQueue.LOG

    def __init__(self, job, done) -> None:
        self.job = job
        self._error = None
        self._done = done

    def run(self) -> None:
        """Sync the log; called in a thread."""
        self._error = self.job()

    def finish(self, failure) -> None:
        """Report the end of the sync; called in a turn. `failure` is an exception raised by `run`, or None."""
        self._done(self, self._error if failure is None else failure)


class FreshFile(Job):
    """A job that creates, in advance, a file that the log will need."""

    queue = JobQueue.REMOVALS

    def __init__(self, job, log) -> None:
        self._job = job
        self._log = log
        self._error = None

    def run(self) -> None:
        """Write and sync the file; called in a thread."""
        self._error = self._job()

    def finish(self, failure) -> None:
        """Pass the created file, or the error, to the log; called in a turn."""
        self._log.finish_fresh_file(self._job, self._error if failure is None else failure)


cdef class Durability:
    """The syncs of the node's log, and the queue of work that waits for writes of the log."""

    def __init__(self, log, Turn turn not None, timers, interval_ns, ended) -> None:
        self.is_always = interval_ns == 0
        self.log, self.turn, self.timers = log, turn, timers
        self.interval_ns = interval_ns
        self.ended = ended
        self.queue = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no work is queued."""
        return not self.queue

    cpdef wrote(self):
        """Count a write of the log. With a sync interval, also start the timer of the next sync."""
        self.written += 1
        if self.interval_ns and self.timer is None:
            self.timer = self.timers.at(self.turn.now + self.interval_ns, self.interval_over)

    cpdef add(self, Due due, bint needs_sync):
        """Queue work until all writes so far are in the file or, if `needs_sync`, durable."""
        cdef uint64_t number = self.written if needs_sync else 0
        self.wanted = max(self.wanted, number)
        due.number = number
        self.queue.append(due)

    cpdef uint64_t stored(self, uint64_t token, bint has_vote) except? 0:
        """Queue a report to the engine that the writes with `token` are stored, and return 0.

        If the report need not wait, it is not queued, and `token` is returned. Writes with a vote wait for a sync; so
        do all writes if there is no sync interval.
        """
        cdef bint needs_sync = has_vote or self.is_always
        if not token or not (needs_sync or self.queue):
            return token
        self.add(Due(STORED, token), needs_sync)
        return 0

    cpdef Due take(self):
        """Remove and return the oldest queued work if it need not wait any longer; otherwise return None."""
        if self.queue and (<Due> self.queue[0]).number <= self.durable:
            return self.queue.popleft()
        return None

    cpdef begin(self):
        """Start a sync if queued work needs one."""
        if self.running is None and self.wanted > self.durable:
            self.sync()

    def hurry(self) -> None:
        """With a sync interval, sync the current writes now, or after the running sync.

        The caller is syncing a store. Without this call, the durable store would be ahead of the durable log until
        the interval ends.
        """
        if self.interval_ns and not self.is_stopped:
            self.wanted = self.written
            self.begin()

    def look_ahead(self) -> None:
        """Begin to create the next file of the log in a thread, unless there is one already."""
        job = self.log.begin_fresh_file()
        if job is not None:
            self.turn.jobs.append(FreshFile(job, self.log))

    def stop(self) -> None:
        """Start no more syncs, and drop the queued work."""
        self.queue.clear()
        self.wanted, self.is_stopped = 0, True
        if self.timer is not None:
            self.timer.cancel()

    cdef sync(self):
        try:
            job = self.log.begin_sync()
        except StoreFailed as error:
            self.ended(error)
            return
        if job is None:     # nothing has to be synced
            self.durable = self.written
            return
        self.covered = self.written
        self.running = LogSync(job, self.synced)
        self.turn.jobs.append(self.running)

    def synced(self, sync: LogSync, error: Exception | None) -> None:
        """Handle the end of a sync."""
        self.running = None
        self.log.finish_sync(sync.job, error)
        if error is None:
            self.durable = max(self.durable, self.covered)
        self.ended(error)

    def interval_over(self) -> None:
        """Begin the sync that is due; called by the timer."""
        self.timer = None
        if self.running is None and self.written > self.durable:
            self.sync()
        elif self.written > self.covered:   # the next sync covers the other writes
            self.timer = self.timers.at(self.turn.now + self.interval_ns, self.interval_over)
