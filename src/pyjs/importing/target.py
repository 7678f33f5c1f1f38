"""The store directory into which an import writes; it is locked as a server locks it.

A stream is built in a temporary directory, which is renamed when the stream is complete and durable. A starting
server removes temporary directories, so after a kill the stream is either complete or absent.

The work for which a server has other threads is done here in one thread, step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive
from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.core.chore import Chore
from pyjs.core.sink import Turn
from pyjs.jetstream.config.declared import from_meta
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.files.metadata import MetadataWriter
from pyjs.jetstream.manage.persist import AccountFiles, Stores
from pyjs.jetstream.rules.consumer import ConsumerLimits
from pyjs.jetstream.transfer.writing import StreamWriter
from pyjs.store.format.layout import finish_removals, lock_store, streams_directory
from pyjs.store.format.meta import KIND_STREAM, Opener, load_meta
from pyjs.store.format.workers import worker_roots
from pyjs.store.open_files import OpenFiles
from pyjs.store.segment.view import ViewCache
from pyjs.store.state.consumer_state import OpenLogs
from pyjs.store.state.log_sync import LogSync
from pyjs.subjects.overlap import SubjectTree, at_once

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    from pyjs.base.clock import Clock
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.core.chore import Step
    from pyjs.store.crypt.keys import KeyRing
    from pyjs.store.store import StreamStore

    Result = TypeVar("Result")


class Target:
    """The store directory that an import writes to; it is locked until `close`."""

    def __init__(self, disk: Disk, root: str, clock: Clock, log: Log, key_ring: KeyRing | None) -> None:
        """Lock the store directory.

        Raises:
            StoreLocked: a server uses the directory.
            OSError: the directory cannot be used.
        """
        self._lock = lock_store(disk, root)
        self._disk = disk
        self._root = root
        self._clock = clock
        self._log = log
        self._key_ring = key_ring
        self._turn = Turn()
        self._metadata = MetadataWriter(self._turn, disk, root)
        files = OpenFiles(disk, disk.open_files_max)
        self._logs = OpenLogs(disk, files, sync=LogSync(disk, always=False))
        now_ns = clock.now_ns
        self._stores = Stores(disk, root, log, now_ns, files, self._logs, ViewCache(), key_ring)

    def close(self) -> None:
        """Sync all written data, and unlock the directory."""
        try:
            self._logs.sync.sync_now()
        finally:
            self._lock.release()

    def account(self, name: str) -> TargetAccount:
        """Remove unfinished streams that an earlier process left in an account, and return the account's streams."""
        for problem in finish_removals(self._disk, streams_directory(self._root, name)):
            self._log.warn(problem)
        return TargetAccount(self, AccountFiles(self._stores, name), self._configs(name))

    def _configs(self, account: str) -> dict[str, StreamConfig]:
        """Return the configurations of an account's streams in the directories of all workers, by stream name.

        Configurations that cannot be read are left out.
        """
        found: dict[str, StreamConfig] = {}
        for root in (self._root, *worker_roots(self._disk, self._root)):
            self._read_configs(streams_directory(root, account), found)
        return found

    def _read_configs(self, parent: str, found: dict[str, StreamConfig]) -> None:
        for name in self._disk.list_dir(parent) if self._disk.is_directory(parent) else []:
            opener = Opener(key_ring=self._key_ring)
            try:
                _, values, _ = load_meta(self._disk, f"{parent}/{name}", "meta", KIND_STREAM, opener)
                config = from_meta(StreamConfig, values["config"])
            except (PyjsError, OSError, *NONSENSE):
                continue
            found[config.name] = config

    @property
    def now_ns(self) -> int:
        """The wall time in ns since 1970."""
        return self._clock.wall_ns()

    @property
    def metadata(self) -> MetadataWriter:
        """The writer of metadata; `run` carries out its queued writes."""
        return self._metadata

    def run(self, steps: Generator[Step, None, Result]) -> Result:
        """Run `steps` to their end, with the jobs that they wait for, and return their result.

        An exception of the steps is passed on.
        """
        while True:
            try:
                park = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if park is None:
                continue
            park(Chore(steps, (None, None)))
            for job in self._turn.take("jobs"):
                failure: Exception | None = None
                try:
                    job.run()
                except Exception as error:  # the job handles the error, and reports it
                    failure = error
                job.finish(failure)
            self._turn.take("chores")

    def sync(self, store: StreamStore) -> None:
        """Sync the files of a store.

        Raises:
            StoreFailed: the sync failed.
        """
        job = store.begin_sync()
        if job is not None:
            failure = job()
            store.finish_sync(job, failure)
            if failure is not None:
                raise StoreFailed(self._root, str(failure)) from failure


class TargetAccount:
    """The streams of one account in the target directory."""

    def __init__(self, target: Target, files: AccountFiles, configs: dict[str, StreamConfig]) -> None:
        self.target = target
        self.files = files
        self.configs = configs  # of all streams, stored earlier or imported
        self._disk = target._disk
        self._subjects = SubjectTree()
        for config in configs.values():
            self._add(config)

    def _add(self, config: StreamConfig) -> None:
        for subject in config.subjects:
            self._subjects.add(subject, config.name)

    def conflict(self, config: StreamConfig) -> str:
        """Return the reason why a stream cannot be added, or "" if it can."""
        name = config.name
        if name in self.configs or self._disk.exists(self.files.directory_of(name)):
            return f"a stream {name!r} is in the store already"
        for subject in config.subjects:
            if at_once(self._subjects.overlapping(subject, name)):
                return f"its subject {subject!r} overlaps with those of another stream in the store"
        return ""

    def begin(self, config: StreamConfig, created_ns: int) -> Build:
        """Begin to build a stream; if `created_ns` is 0, the stream is created at the current time.

        Raises:
            StoreFailed: the temporary directory cannot be created.
        """
        return Build(self, config, created_ns)

    def publish(self, build: Build) -> None:
        """Sync a complete stream, and move it from its temporary directory to its final directory.

        Raises:
            StoreFailed: the stream was not imported. If its directory remains, the error message asks to remove it.
        """
        target, writer = self.target, build.writer
        writer.commit()
        target.sync(writer.store)
        store = writer.hand_over()
        store.close()
        self.files.release(store)
        try:
            target.run(self.files.adopt(build.files, writer.config.name, target.metadata))
        except StoreFailed as error:
            self._take_back(build, error)
            raise
        self.configs[writer.config.name] = writer.config
        self._add(writer.config)

    def _take_back(self, build: Build, error: StoreFailed) -> None:
        """Remove the final directory of a stream, if a move that failed has left the stream there.

        Raises:
            StoreFailed: the directory cannot be removed.
        """
        name = build.writer.config.name
        if self._disk.exists(build.files.directory_of(name)):
            return  # the move had no effect
        self.files.give_up(name)
        directory = self.files.directory_of(name)
        if self._disk.exists(directory):
            raise StoreFailed(
                directory, f"{error}; what was written stays and may be incomplete: remove it"
            ) from error


class Build:
    """A stream that is being built; the owner must close it in any case."""

    def __init__(self, account: TargetAccount, config: StreamConfig, created_ns: int) -> None:
        self._account = account
        target = account.target
        self.files = account.files.hidden_files()
        now_ns = target.now_ns
        self._writer = StreamWriter(config, created_ns or now_ns, now_ns, ConsumerLimits(), 0)
        try:
            target.run(self._writer.begin_in_files(self.files, target.metadata))
        except BaseException:
            self.close()
            raise

    @property
    def writer(self) -> StreamWriter:
        """The writer of the stream."""
        return self._writer

    def commit(self) -> None:
        """Write all appended messages. Raises BadArchive if the store refuses them."""
        self._writer.commit()
        if self._writer.store.error is not None:
            raise BadArchive(str(self._writer.store.error))

    def close(self) -> None:
        """Remove the built files, unless they were published."""
        self._writer.close()
        self._account.files.drop_hidden(self.files)
