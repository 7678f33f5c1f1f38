"""Writes changes of stored metadata in a thread, makes them durable together, and then answers them.

A request that changes metadata queues a `Change` and waits. One batch is in flight at a time; changes queued
meanwhile are the next batch. The thread writes the changes of a batch in the order of the queue, and makes one sync
for all of them, so a hundred requests take as long as one. A change that must be durable before it becomes visible (a
new directory) is written under another name, synced, and published by a rename; the batch is then synced a second
time. A change is queued (it waits for its batch), running (in the thread), or finished (durable or undone). Two
changes never run at the same time, so a change that depends on an earlier one finds the earlier one written, but
perhaps not durable: if the sync fails, both fail.

This module knows nothing of streams, consumers and their files.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.core.chore import Chore
from pyjs.core.job import Job, JobQueue
from pyjs.core.sink import Turn
from pyjs.store.sync_set import SyncSet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from pyjs.base.disk import Disk
    from pyjs.core.chore import Step

    Done: TypeAlias = "Callable[[Exception | None], None]"

BATCH_MAX = 500  # maximum number of changes in a batch


class Change:
    """One change of stored metadata.

    It holds only values, since the node keeps running while the thread writes.
    """

    path = ""  # the path that is changed, for error texts

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write the change in the thread, and add to `dirty` the files and directories that must be synced.

        Raises:
            OSError, StoreFailed: nothing was changed, and the next start will find no trace of the change.
        """
        raise NotImplementedError("a Change subclass writes it")

    def publish(self, disk: Disk, dirty: SyncSet) -> None:
        """Rename written and synced files to their final names; `dirty` is synced again after this.

        Raises:
            OSError: nothing was renamed; `undo` will be called.
        """

    def undo(self, disk: Disk) -> None:
        """Undo a written or published change of a failed batch, as far as the disk allows.

        This runs in the thread.

        Raises:
            OSError: the next start may find the change.
        """

    def clean_up(self, disk: Disk) -> None:
        """Remove the files that the durable change made superfluous.

        This runs in the thread.

        Raises:
            OSError: the next start will remove them.
        """


class Barrier(Change):
    """A change without effect, which finishes after every change queued before it."""

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write nothing."""


class _Entry:
    """A queued change, its callback and its result."""

    __slots__ = ("change", "done", "failure")

    def __init__(self, change: Change, done: Done) -> None:
        self.change = change
        self.done = done
        self.failure: Exception | None = None


class _Batch(Job):
    """A job that writes a batch of changes, and makes them durable together."""

    queue = JobQueue.FILES

    def __init__(self, writer: MetadataWriter, disk: Disk, root: str, entries: list[_Entry]) -> None:
        self._writer = writer
        self._disk = disk
        self._root = root
        self.entries = entries
        self.begun = False

    def __str__(self) -> str:
        return f"{len(self.entries)} changes of metadata"

    def run(self) -> None:
        """Write all changes of the batch, and make them durable.

        A change that cannot be written or published does not affect the others. If a sync fails, all changes fail.
        """
        if self.begun:
            return
        self.begun = True
        with SyncSet(self._disk, self._root) as dirty:
            for entry in self.entries:
                try:
                    entry.change.write(self._disk, dirty)
                except Exception as error:  # passed to the change's callback, which reports it
                    entry.failure = error
            self._sync(dirty)
            for entry in self._good():
                try:
                    entry.change.publish(self._disk, dirty)
                except Exception as error:
                    self._fail(entry, error)
            self._sync(dirty)
        for entry in self._good():
            try:
                entry.change.clean_up(self._disk)
            except OSError:
                pass  # the next start will remove them

    def _good(self) -> list[_Entry]:
        """Return the entries that have not failed."""
        return [entry for entry in self.entries if entry.failure is None]

    def _sync(self, dirty: SyncSet) -> None:
        """Sync the files that the changes wrote; if this fails, all changes fail."""
        try:
            dirty.sync()
        except OSError as error:
            for entry in reversed(self._good()):
                self._fail(entry, error)

    def _fail(self, entry: _Entry, error: Exception) -> None:
        """Undo a change, and store its error."""
        entry.failure = error
        try:
            entry.change.undo(self._disk)
        except (OSError, PyjsError):
            pass  # report only the first error, since both have the same cause

    def finish(self, failure: Exception | None) -> None:
        """Pass the result to the writer."""
        if failure is not None:
            for entry in self.entries:
                entry.failure = entry.failure or failure
        self._writer.finished(self)


class MetadataWriter:
    """The queue of metadata changes, one per server."""

    def __init__(self, turn: Turn, disk: Disk, root: str) -> None:
        self._turn = turn
        self._disk = disk
        self._root = root  # a directory above all changed files
        self._queue: deque[_Entry] = deque()
        self._batch: _Batch | None = None  # the batch in flight
        self._unanswered = 0  # number of finished changes whose chores have not continued yet
        self._closed = False

    @property
    def pending(self) -> int:
        """The number of changes that are queued, running, or finished and not yet answered."""
        return self._unanswered

    def commit(self, change: Change) -> Generator[Step, None, None]:
        """Queue a change, and wait until it is durable.

        Raises:
            StoreFailed: nothing was changed.
        """
        if self._closed:
            raise _refused(change)
        ended: list[Exception | None] = []

        def park(chore: Chore) -> None:
            def done(failure: Exception | None) -> None:
                ended.append(failure)
                self._unanswered += 1  # until the chore continues
                self._turn.chores.append(chore)

            self.submit(change, done)

        yield park
        self._unanswered -= 1
        if ended[0] is not None:
            raise ended[0]

    def submit(self, change: Change, done: Done) -> None:
        """Queue a change; a later turn calls `done` with None if the change is durable, or with the error.

        The error is a StoreFailed or an unexpected exception. After `close`, `done` is called at once with a
        StoreFailed.
        """
        if self._closed:
            done(_refused(change))
            return
        self._unanswered += 1
        self._queue.append(_Entry(change, done))
        self._begin()

    def commit_now(self, change: Change) -> None:
        """Write and sync a change before returning.

        This is only for starts and tests, since no batch in flight may use the same files.

        Raises:
            StoreFailed: nothing was changed.
        """
        batch = _Batch(self, self._disk, self._root, [_Entry(change, _nobody)])
        try:
            batch.run()
        except OSError as error:
            raise _failed(change, error) from error
        failure = batch.entries[0].failure
        if isinstance(failure, OSError):
            raise _failed(change, failure) from failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Refuse further changes; changes that are already queued are still written."""
        self._closed = True

    def finish_now(self) -> None:
        """Write all queued changes before returning; no thread may be running a batch.

        Waiting chores continue in a later turn, if there is one.
        """
        while self._batch is not None:
            batch, failure = self._batch, None
            try:
                batch.run()
            except OSError as error:
                failure = error
            batch.finish(failure)

    def finished(self, batch: _Batch) -> None:
        """Handle the result of a batch: let its chores continue, and start the next batch."""
        if batch is not self._batch:
            return  # finish_now has already finished it
        self._batch = None
        self._begin()
        for entry in batch.entries:
            self._unanswered -= 1
            failure = entry.failure
            entry.done(_failed(entry.change, failure) if isinstance(failure, OSError) else failure)

    def _begin(self) -> None:
        """Start a job for the queued changes, unless a batch is in flight."""
        if self._batch is None and self._queue:
            count = min(len(self._queue), BATCH_MAX)
            entries = [self._queue.popleft() for _ in range(count)]
            self._batch = _Batch(self, self._disk, self._root, entries)
            self._turn.jobs.append(self._batch)


def _failed(change: Change, error: OSError) -> StoreFailed:
    failure = StoreFailed(change.path or str(error.filename), error.strerror or str(error))
    failure.__cause__ = error
    return failure


def _refused(change: Change) -> StoreFailed:
    return StoreFailed(change.path, "the server is shutting down")


def _nobody(failure: Exception | None) -> None:
    """Ignore the result."""
