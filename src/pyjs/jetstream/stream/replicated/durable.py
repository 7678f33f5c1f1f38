"""Waits until the writes of a stream's store are durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.job import Job, JobQueue

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Chore, Step
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import SyncJob


class _StoreSync(Job):
    """A sync of a store, for the chore that waits for it."""

    queue = JobQueue.FILES

    def __init__(self, stream: Stream, job: SyncJob) -> None:
        self._stream = stream
        self._job = job
        self._error: Exception | None = None
        self._chore: Chore | None = None

    def park(self, chore: Chore) -> None:
        """Begin the sync; the chore continues when the sync has ended."""
        self._chore = chore
        self._stream.turn.jobs.append(self)

    def run(self) -> None:
        """Run the sync in a thread."""
        self._error = self._job()

    def finish(self, failure: Exception | None) -> None:
        """Pass the result of the sync to the store, and wake the chore."""
        self._stream.store.finish_sync(self._job, failure or self._error)
        self._stream.note_change()
        assert self._chore is not None
        self._stream.turn.chores.append(self._chore)


def durable_steps(stream: Stream) -> Generator[Step]:
    """Wait until all writes of the store are durable, or the store has failed."""
    while not (stream.store.durable or stream.store.failed):
        job = stream.store.begin_sync()
        yield None if job is None else _StoreSync(stream, job).park  # None: a sync is running already
