"""Removal of what deleted streams, consumers and messages leave: directories and memory, by threads.

A directory that is removed has its own name already (store/format/layout.py), so a start after a kill knows it and
ends its removal. One job removes a bounded number of files; a stop waits for that one only.

Knows nothing of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.job import Job, Lane

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.core.sink import Turn
    from pyjs.store.index.dropped import Remains

FILES_PER_JOB = 64
PATH_SIZE_MAX = 4096  # PATH_MAX of Linux, with its end
END = b"\0"  # of a path; none holds it
ESCAPE = "surrogateescape"  # names of files need not be text


class Removals:
    """The directories of one server that are to be removed."""

    def __init__(self, disk: Disk, log: Log, turn: Turn) -> None:
        self._disk = disk
        self._log = log
        self._turn = turn
        # In one piece: thousands of strings, made while what was deleted is freed, would hold as many pages.
        self._waiting = bytearray()
        self._running = False

    def add(self, directory: str) -> None:
        """Have `directory` removed some time; what a stop leaves of it, the next start removes."""
        self._waiting += directory.encode(errors=ESCAPE) + END
        self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._running:
            self._running = True
            next_ones = self._waiting[: FILES_PER_JOB * PATH_SIZE_MAX].split(END, FILES_PER_JOB)[:-1]
            directories = [each.decode(errors=ESCAPE) for each in next_ones]
            self._turn.jobs.append(_Removal(self, self._disk, directories))

    def finish(self, done: int, failure: Exception | None) -> None:
        """Forget the first `done` directories, and the next one if it cannot be removed."""
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
    """A bounded number of files of some directories."""

    lane = Lane.REMOVALS

    def __init__(self, removals: Removals, disk: Disk, directories: list[str]) -> None:
        self._removals = removals
        self._disk = disk
        self._directories = directories
        self._done = 0  # directories of which nothing is left

    def run(self) -> None:
        """Remove files; an empty directory counts as one."""
        left = FILES_PER_JOB
        for directory in self._directories:
            try:
                removed = self._disk.remove_some(directory, left)
            except FileNotFoundError:  # it went with the directory that it was in
                removed = 0
            if removed >= left:
                return
            self._done += 1
            left -= max(removed, 1)
            if left <= 0:
                return

    def finish(self, failure: Exception | None) -> None:
        """Let the next job begin."""
        self._removals.finish(self._done, failure)


class MemoryRelease(Job):
    """The memory of what a store held."""

    lane = Lane.REMOVALS

    def __init__(self, remains: Remains) -> None:
        self._remains = remains

    def run(self) -> None:
        """Free it, without the GIL."""
        self._remains.free()

    def finish(self, failure: Exception | None) -> None:
        """Do nothing: nobody waits for it."""
