"""Removal of the files and memory of deleted streams, consumers and messages, by jobs in threads.

A directory is renamed before its removal (store/format/layout.py), so that a server that starts after a kill
recognizes it and removes the rest. A job removes a bounded number of files, since a server that stops waits for the
running job.

This module knows nothing of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.job import Job, JobQueue

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.core.sink import Turn
    from pyjs.store.index.dropped import Remains

FILES_PER_JOB = 64
PATH_SIZE_MAX = 4096  # PATH_MAX of Linux, with the final zero
END = b"\0"  # ends a path, which cannot contain it
ESCAPE = "surrogateescape"  # file names need not be UTF-8


class Removals:
    """The queue of directories to remove, one per server."""

    def __init__(self, disk: Disk, log: Log, turn: Turn) -> None:
        self._disk = disk
        self._log = log
        self._turn = turn
        # One buffer: thousands of strings, allocated while streams are freed, would keep as many memory pages in use.
        self._waiting = bytearray()
        self._running = False

    def add(self, directory: str) -> None:
        """Queue `directory` for removal.

        If the server stops before the removal is complete, the next start completes it.
        """
        self._waiting += directory.encode(errors=ESCAPE) + END
        self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._running:
            self._running = True
            next_ones = self._waiting[: FILES_PER_JOB * PATH_SIZE_MAX].split(END, FILES_PER_JOB)[:-1]
            directories = [each.decode(errors=ESCAPE) for each in next_ones]
            self._turn.jobs.append(_Removal(self, self._disk, directories))

    def finish(self, done: int, failure: Exception | None) -> None:
        """Drop the first `done` directories from the queue, and begin the next job.

        If there is a `failure`, the next directory cannot be removed; it is logged and dropped too.
        """
        self._running = False
        for _ in range(done):
            self._take()
        if failure is not None:
            self._log.warn(f"  {self._take()} cannot be removed: {failure}")
        self._begin()

    def _take(self) -> str:
        end = self._waiting.index(END)
        directory = self._waiting[:end].decode(errors=ESCAPE)
        del self._waiting[: end + 1]
        return directory


class _Removal(Job):
    """A job that removes a bounded number of files."""

    queue = JobQueue.REMOVALS

    def __init__(self, removals: Removals, disk: Disk, directories: list[str]) -> None:
        self._removals = removals
        self._disk = disk
        self._directories = directories
        self._done = 0  # number of directories that are removed completely

    def run(self) -> None:
        """Remove files and empty directories, up to the limit of one job."""
        left = FILES_PER_JOB
        for directory in self._directories:
            try:
                removed = self._disk.remove_some(directory, left)
            except FileNotFoundError:  # already removed together with its parent directory
                removed = 0
            if removed >= left:
                return
            self._done += 1
            left -= max(removed, 1)
            if left <= 0:
                return

    def finish(self, failure: Exception | None) -> None:
        """Report the result to the queue, which starts the next job."""
        self._removals.finish(self._done, failure)


class MemoryRelease(Job):
    """A job that frees the memory of a deleted store."""

    queue = JobQueue.REMOVALS

    def __init__(self, remains: Remains) -> None:
        self._remains = remains

    def run(self) -> None:
        """Free the memory, without the GIL."""
        self._remains.free()

    def finish(self, failure: Exception | None) -> None:
        """Do nothing: no caller waits for the job."""
