"""Which consumer logs hold bytes that are not known to be on the medium, and the jobs that bring them there.

Works like the syncs of a stream's store: `begin_sync` hands out a job that any thread may run, `finish_sync` takes
its result. A job opens the files anew, by their paths: a log's own descriptor may be given up at any time, and the
sync of a file covers what was written through any descriptor. A file that is gone was replaced by a later
generation, which is on the medium, or was removed with its consumer.

A log whose sync failed is never believed again: `is_lost` has its consumer begin a new generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import Disk, closing
from pyjs.base.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

Done: TypeAlias = "Callable[[Exception | None], None]"
JOB_LOGS_MAX = 64  # where publishers wait for the one thread, which syncs for streams as well


class LogSyncJob:
    """Some logs to sync. Run it in any thread; it touches nothing but files."""

    def __init__(self, disk: Disk, paths: list[str], new: set[str]) -> None:
        self._disk = disk
        self._paths = paths
        self._new = new  # the names of these, and of their directories, are not on the medium either
        self.together: Together | None = None  # None: syncs its logs alone
        self.failed: list[str] = []

    def __call__(self) -> Exception | None:
        """Sync every log; return the first error, None: all are safe."""
        first: Exception | None = None
        for path in self._paths:
            try:
                self._sync(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                first = first or error
                self.failed.append(path)
        return first

    def _sync(self, path: str) -> None:
        syncing = self.together or self._disk
        with closing(self._disk, self._disk.open_file(path)) as fd:
            syncing.sync_file(fd)
        if path in self._new:
            directory = path.rpartition("/")[0]
            syncing.sync_dir(directory)
            syncing.sync_dir(directory.rpartition("/")[0])


class LogSync:
    """The unsynced logs of all consumers. `ask` is called once when `begin_sync` should be.

    With `always` jobs are small, since others wait for theirs; else one job takes everything of its interval.
    """

    def __init__(
        self, disk: Disk, ask: Callable[[LogSync], None] = lambda sync: None, always: bool = True
    ) -> None:
        self._disk = disk
        self._ask = ask
        self._logs_max = JOB_LOGS_MAX if always else None
        self._asked = False
        self._waiting: dict[str, list[Done]] = {}  # unsynced log -> who waits for it, in the order of writes
        self._new: set[str] = set()
        self._lost: set[str] = set()
        self._job: LogSyncJob | None = None  # on its way, for `_syncing`
        self._syncing: dict[str, list[Done]] = {}

    def began(self, path: str) -> None:
        """Note that a log was made, perhaps in place of one that was removed."""
        self._lost.discard(path)
        self._new.add(path)
        self.wrote(path)

    def adopted(self, path: str, has_entries: bool) -> None:
        """Note a log that a start found: its name and its entries may be those of a process that was killed."""
        self._new.add(path)
        if has_entries:
            self.wrote(path)

    def wrote(self, path: str) -> None:
        """Note that a log has new bytes."""
        if path not in self._waiting:
            self._waiting[path] = []
            self._ask_once()

    def when_synced(self, path: str, done: Done) -> None:
        """Have `done` called with None when what a log holds now is safe, or with what went wrong."""
        self.wrote(path)
        self._waiting[path].append(done)

    def is_lost(self, path: str) -> bool:
        """Return whether a sync of the log failed, so that nothing may be appended."""
        return path in self._lost

    def forget(self, path: str) -> None:
        """Note that the log is no more; who waits for it is told by the next sync."""
        self._lost.discard(path)
        self._new.discard(path)

    def begin_sync(self) -> LogSyncJob | None:
        """Return a job for some of the unsynced logs; None: there are none, or a job is on its way."""
        self._asked = False
        if self._job is not None or not self._waiting:
            return None
        paths = list(self._waiting)[: self._logs_max]
        self._syncing = {path: self._waiting.pop(path) for path in paths}
        new = self._new.intersection(paths)
        self._new -= new
        self._job = LogSyncJob(self._disk, paths, new)
        return self._job

    def finish_sync(self, error: Exception | None) -> None:
        """Take the result of the job, and tell those who waited."""
        job, self._job = self._job, None
        assert job is not None
        syncing, self._syncing = self._syncing, {}
        self._lost.update(job.failed)
        for path, waiting in syncing.items():
            for done in waiting:
                done(error if path in job.failed else None)
        if self._waiting:
            self._ask_once()

    def sync_now(self) -> None:
        """Sync everything in this thread; for a stop and for tests."""
        while (job := self.begin_sync()) is not None:
            self.finish_sync(job())

    def _ask_once(self) -> None:
        if not self._asked:
            self._asked = True
            self._ask(self)
