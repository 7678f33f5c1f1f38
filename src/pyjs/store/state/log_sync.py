"""Consumer logs with unsynced bytes, and the jobs that sync them.

The syncs work like those of a stream's store: `begin_sync` returns a job that any thread may run, and `finish_sync`
handles its result. A job opens the files by path, since a log's own descriptor may be closed at any time; a sync of
a file covers the writes through all descriptors. A missing file was replaced by a later generation, which is durable,
or was removed with its consumer.

After a failed sync `is_lost` is true, and the consumer must start a new generation. If the process ends before that,
the mark of store/format/lost_sync makes the next start write the log again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import Disk, closing
from pyjs.base.together import Together
from pyjs.store.format.lost_sync import mark_lost_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

Done: TypeAlias = "Callable[[Exception | None], None]"
JOB_LOGS_MAX = 64  # with `always`, publishers wait for the only thread, which also syncs streams


class LogSyncJob:
    """A job that syncs some consumer logs. It uses only files, so any thread may run it."""

    def __init__(self, disk: Disk, paths: list[str], new: set[str]) -> None:
        self._disk = disk
        self._paths = paths
        self._new = new  # logs whose file name and directory are not durable yet
        self.together: Together | None = None  # None: this job syncs each log by itself
        self.failed: list[str] = []

    def __call__(self) -> Exception | None:
        """Sync every log that still exists; return the first error, or None if all of them are durable."""
        first: Exception | None = None
        for path in self._paths:
            try:
                self._sync(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                first = first or error
                self.failed.append(path)
                mark_lost_sync(self._disk, path.rpartition("/")[0])
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
    """The unsynced logs of all consumers; `ask` is called when the owner should call `begin_sync`.

    With `always`, jobs are small, since clients wait for them. Otherwise one job syncs all unsynced logs.
    """

    def __init__(
        self, disk: Disk, ask: Callable[[LogSync], None] = lambda sync: None, always: bool = True
    ) -> None:
        self._disk = disk
        self._ask = ask
        self.sync_always = always  # acks may wait for a sync
        self._logs_max = JOB_LOGS_MAX if always else None
        self._asked = False
        self._waiting: dict[str, list[Done]] = {}  # unsynced log -> callbacks, in the order of the writes
        self._new: set[str] = set()
        self._lost: set[str] = set()
        self._job: LogSyncJob | None = None  # the running job, which syncs the logs in `_syncing`
        self._syncing: dict[str, list[Done]] = {}

    def began(self, path: str) -> None:
        """Add a new log, which may have the path of a removed one."""
        self._lost.discard(path)
        self._new.add(path)
        self.wrote(path)

    def adopted(self, path: str, has_entries: bool) -> None:
        """Add a log found by the recovery; a killed process may not have synced its name and entries."""
        self._new.add(path)
        if has_entries:
            self.wrote(path)

    def wrote(self, path: str) -> None:
        """Mark a log as unsynced."""
        if path not in self._waiting:
            self._waiting[path] = []
            self._ask_once()

    def when_synced(self, path: str, done: Done) -> None:
        """Call `done` with None when the log's current bytes are durable, or with the error of a failed sync."""
        self.wrote(path)
        self._waiting[path].append(done)

    def is_lost(self, path: str) -> bool:
        """Return whether a sync of the log failed; after that, nothing may be appended to it."""
        return path in self._lost

    def forget(self, path: str) -> None:
        """Record that the log at `path` was removed; callbacks that wait for the log are called at the next sync."""
        self._lost.discard(path)
        self._new.discard(path)

    def begin_sync(self) -> LogSyncJob | None:
        """Return a job for some unsynced logs, or None if there are none or a job is running."""
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
        """Handle the result of the job and call the waiting callbacks."""
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
        """Sync all logs in this thread; for a stopping server and for tests."""
        while (job := self.begin_sync()) is not None:
            self.finish_sync(job())

    def _ask_once(self) -> None:
        if not self._asked:
            self._asked = True
            self._ask(self)
