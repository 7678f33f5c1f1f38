"""Changes of stored metadata: written in a thread, made durable together, answered after that.

A request that changes metadata queues a `Change` and waits; what is queued while a batch is in flight is the next
batch. The thread writes the changes of a batch in the order in which they were queued and syncs once for all of them,
so a hundred requests cost what one does. A change that must not be seen before all of it is durable, a new directory
for one, is written under another name, synced, and published by a rename, for which the batch syncs once more.

States of a change: queued (its batch waits), running (in the thread), finished (durable, or it did not happen). One
batch of the server is in flight at a time, so two changes never run side by side, and a change that depends on an
earlier one finds it written, though perhaps not durable: if the sync fails, both have failed.

Knows nothing of streams, consumers and their files.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.core.chore import Chore
from pyjs.core.job import Job, Lane
from pyjs.core.sink import Turn
from pyjs.store.sync_set import SyncSet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from pyjs.base.disk import Disk
    from pyjs.core.chore import Step

    Done: TypeAlias = "Callable[[Exception | None], None]"

BATCH_MAX = 500  # changes


class Change:
    """One change of stored metadata. It holds values, and nothing that the node uses while it runs."""

    path = ""  # what it changes, for errors

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write the change, in a thread, and note in `dirty` the files and directories that have to be synced.

        Raises:
            OSError, StoreFailed: it did not happen, and nothing of it is left to be found by the next start.
        """
        raise NotImplementedError("a Change subclass writes it")

    def publish(self, disk: Disk, dirty: SyncSet) -> None:
        """Let the next start find what was written and is durable now; `dirty` is synced once more.

        Raises:
            OSError: it did not happen; `undo` follows.
        """

    def undo(self, disk: Disk) -> None:
        """Take back a written or published change that failed, as far as the disk allows; in the thread.

        Raises:
            OSError: the next start may find it.
        """

    def clean_up(self, disk: Disk) -> None:
        """Remove what the durable change has left over, in the thread.

        Raises:
            OSError: it stays for the next start.
        """


class Barrier(Change):
    """Changes nothing: it is over when every change that was queued before it is."""

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        """Write nothing."""


class _Entry:
    """A queued change, who waits for it, and how it ended."""

    __slots__ = ("change", "done", "failure")

    def __init__(self, change: Change, done: Done) -> None:
        self.change = change
        self.done = done
        self.failure: Exception | None = None


class _Batch(Job):
    """The changes that become durable together."""

    lane = Lane.FILES

    def __init__(self, writer: MetadataWriter, disk: Disk, root: str, entries: list[_Entry]) -> None:
        self._writer = writer
        self._disk = disk
        self._root = root
        self.entries = entries
        self.begun = False

    def __str__(self) -> str:
        return f"{len(self.entries)} changes of metadata"

    def run(self) -> None:
        """Write all changes, sync once; a change that fails does not touch the others."""
        if self.begun:
            return
        self.begun = True
        with SyncSet(self._disk, self._root) as dirty:
            for entry in self.entries:
                try:
                    entry.change.write(self._disk, dirty)
                except Exception as error:  # its own business: whoever waits for it gets it
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
                pass  # the next start removes it

    def _good(self) -> list[_Entry]:
        """Return what has not failed."""
        return [entry for entry in self.entries if entry.failure is None]

    def _sync(self, dirty: SyncSet) -> None:
        """Make durable what was written; if that fails, everything has failed."""
        try:
            dirty.sync()
        except OSError as error:
            for entry in reversed(self._good()):
                self._fail(entry, error)

    def _fail(self, entry: _Entry, error: Exception) -> None:
        """Take a change back."""
        entry.failure = error
        try:
            entry.change.undo(self._disk)
        except (OSError, PyjsError):
            pass  # the same disk fails; the error that came first is told

    def finish(self, failure: Exception | None) -> None:
        """Let those go on who wait."""
        if failure is not None:
            for entry in self.entries:
                entry.failure = entry.failure or failure
        self._writer.finished(self)


class MetadataWriter:
    """The queue of all accounts of a server."""

    def __init__(self, turn: Turn, disk: Disk, root: str) -> None:
        self._turn = turn
        self._disk = disk
        self._root = root  # a directory above everything that changes
        self._queue: deque[_Entry] = deque()
        self._batch: _Batch | None = None  # in flight
        self._unanswered = 0  # changes whose end nobody has been told
        self._closed = False

    @property
    def pending(self) -> int:
        """Return how many changes are queued, running, or finished without anybody having gone on since."""
        return self._unanswered

    def commit(self, change: Change) -> Generator[Step, None, None]:
        """Make a change, and go on when it is durable.

        Raises:
            StoreFailed: it did not happen.
        """
        if self._closed:
            raise _refused(change)
        ended: list[Exception | None] = []

        def park(chore: Chore) -> None:
            def done(failure: Exception | None) -> None:
                ended.append(failure)
                self._unanswered += 1  # until the chore goes on
                self._turn.chores.append(chore)

            self.submit(change, done)

        yield park
        self._unanswered -= 1
        if ended[0] is not None:
            raise ended[0]

    def submit(self, change: Change, done: Done) -> None:
        """Queue a change; `done` is called in a later turn: with None when it is durable, or with what went wrong.

        That is a StoreFailed, or an unexpected exception. After `close`, `done` is called at once.
        """
        if self._closed:
            done(_refused(change))
            return
        self._unanswered += 1
        self._queue.append(_Entry(change, done))
        self._begin()

    def commit_now(self, change: Change) -> None:
        """Make a change here and now; for starts and tests, where no batch is in flight that touches the same.

        Raises:
            StoreFailed: it did not happen.
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
        """Take no more changes: each is refused. Those that were taken come to their end."""
        self._closed = True

    def finish_now(self) -> None:
        """Bring everything that was taken to its end in this thread; no thread may be running a batch.

        Who waits goes on in a later turn, if there is one.
        """
        while self._batch is not None:
            batch, failure = self._batch, None
            try:
                batch.run()
            except OSError as error:
                failure = error
            batch.finish(failure)

    def finished(self, batch: _Batch) -> None:
        """Take the result of a batch: tell who waits, and begin the next one."""
        if batch is not self._batch:
            return  # finish_now was faster
        self._batch = None
        self._begin()
        for entry in batch.entries:
            self._unanswered -= 1
            failure = entry.failure
            entry.done(_failed(entry.change, failure) if isinstance(failure, OSError) else failure)

    def _begin(self) -> None:
        """Hand out what is queued, unless a batch is in flight."""
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
    """Tell nobody."""
