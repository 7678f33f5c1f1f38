"""A stream under construction, which is invisible until it is complete and durable.

A file stream is built under a temporary directory name, and renamed when it is complete. A starting server removes
directories with temporary names, so after a kill the stream is either complete or absent. While it is built, its
bytes count towards the limits of account and server.

Source: ADR-63; limits as in nats-server's source.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.errors import StoreFailed
from pyjs.core.job import Job, JobQueue
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage import consumers, streams
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.stream.limits import Usage
from pyjs.jetstream.stream.stream import Stream
from pyjs.jetstream.transfer.writing import StreamWriter
from pyjs.store.store import StreamStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.manage.persist import AccountFiles

    Join: TypeAlias = Callable[["StreamBuild"], Generator[Step, None, Stream]]


class _Sync(Job):
    """A job that syncs a store in a thread, then continues the chore that waits for the sync."""

    queue = JobQueue.FILES

    def __init__(self, store: StreamStore, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._job = store.begin_sync()
        self.chore: Chore | None = None
        self.failure: Exception | None = None

    def run(self) -> None:
        """Sync the files; called in a thread."""
        if self._job is not None:
            self.failure = self._job()

    def finish(self, failure: Exception | None) -> None:
        """Pass the result of the sync to the store, and continue the chore; called in a turn."""
        self.failure = failure or self.failure
        if self._job is not None:
            self._store.finish_sync(self._job, self.failure)
        assert self.chore is not None
        self._turn.chores.append(self.chore)


class StreamBuild:
    """One stream under construction; the caller must close it in any case."""

    def __init__(self, js: JetStream, config: StreamConfig, join: Join | None = None) -> None:
        """Prepare a build; in a cluster, `join` adds the complete stream to the cluster."""
        self._js = js
        self._join = join
        self.config = config
        self.created_ns = js.shared.clock.wall_ns()  # used only in a cluster
        self._files: AccountFiles | None = None  # files of the temporary directory; None: a memory stream
        self._writer: StreamWriter | None = None
        self._counted = 0  # bytes added to the usage of account and server

    def begin(self, created_ns: int = 0) -> Generator[Step, None, None]:
        """Create the store of the stream, whose creation time is `created_ns` (0: now).

        In a cluster, the creation time is always `self.created_ns`.

        Raises:
            StoreFailed: the files of the stream cannot be written.
        """
        js, now_ns = self._js, self._js.shared.clock.wall_ns()
        if self._join is not None:
            created_ns = self.created_ns
        limits, consumers_max = consumers.limits_of(js), self.config.max_consumers
        if consumers_max <= 0:
            consumers_max = js.limits.max_consumers
        writer = StreamWriter(self.config, created_ns or now_ns, now_ns, limits, consumers_max)
        self._writer = writer
        if self.config.storage == MEMORY:
            writer.begin_in_memory()
            return
        self._files = js.files.hidden_files()
        yield from writer.begin_in_files(self._files, js.shared.metadata)

    @property
    def writer(self) -> StreamWriter:
        """The writer of the stream, which `begin` has created."""
        assert self._writer is not None
        return self._writer

    @property
    def payload_max(self) -> int:
        """The maximum size of a message in bytes."""
        return self._js.shared.max_payload

    def count(self, size: int) -> None:
        """Count `size` bytes, in place of those counted before, towards the limits of the account and the server.

        Raises:
            ApiError: a limit is exceeded: 10028 for a memory stream, 10047 for a file stream. In both cases `size`
                may stay counted.
        """
        if size > 1 << 62:
            raise self._too_much()
        change, self._counted = size - self._counted, size
        for usage in self._usages():
            usage.used += change
        if any(0 <= usage.max < usage.used for usage in self._usages()):
            raise self._too_much()

    def _usages(self) -> tuple[Usage, Usage]:
        storage = self.config.storage
        return self._js.usage[storage], self._js.shared.usage[storage]

    def _too_much(self) -> errcodes.ApiError:
        full = {MEMORY: errcodes.MEMORY_RESOURCES_EXCEEDED, FILE: errcodes.STORAGE_RESOURCES_EXCEEDED}
        return full[self.config.storage].error()

    def commit(self) -> None:
        """Write all appended messages, and check the limits.

        Raises:
            StoreFailed: the messages cannot be written.
            ApiError: a limit of the account or the server is exceeded.
        """
        self.writer.commit()
        self.count(max(self.writer.store.bytes, self._counted))

    def finish(self, last_seq: int) -> Generator[Step, None, Stream]:
        """Open the complete stream, whose next sequence will be above `last_seq`; return the stream.

        Raises:
            ApiError: the name was taken in the meantime, or the stream is refused.
            StoreFailed: the stream cannot be made durable.
        """
        self.writer.skip_to(last_seq)
        self.commit()
        if self._files is not None:
            yield from self._sync()
        if self._join is not None:
            return (yield from self._join(self))
        js = self._js
        add = partial(js.gates.within, self.config.name, True, self.add_steps)
        if js.shared.spread is None:
            return (yield from add())
        return (yield from js.shared.spread.desk.add_steps(js.account.name, add))

    def _sync(self) -> Generator[Step, None, None]:
        turn = self._js.account.turn
        job = _Sync(self.writer.store, turn)

        def park(chore: Chore) -> None:
            job.chore = chore
            turn.jobs.append(job)

        yield park
        if job.failure is not None:
            raise StoreFailed(self.config.name, str(job.failure)) from job.failure

    @property
    def account(self) -> str:
        """The name of the account."""
        return self._js.account.name

    def add_steps(self) -> Generator[Step, None, Stream]:
        """Open the complete stream under its final name; the caller must have exclusive access to this name.

        Raises:
            ApiError: the name was taken in the meantime, or the stream is refused.
            StoreFailed, OSError, MemoryError: the stream cannot be opened, and was removed.
        """
        js, config, writer = self._js, self.config, self.writer
        if config.name in js.streams or config.name in js.held or js.account.jetstream is not js:
            raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.error()
        streams.check_restored(js, config)
        self.uncount()
        store = writer.hand_over()
        if self._files is None:
            stream = yield from streams.open_restored(js, config, store, writer.created_ns)
        else:
            store.close()
            js.files.release(store)
            stream = yield from self._adopt(self._files)
        for each in writer.consumers.values():
            if each.name not in stream.consumers:
                stored = StoredConsumer(each.name, each.config, each.created_ns, each.state, (), (), None)
                consumers.open_stored(js, stream, stored)
        streams.tell(js, config.name, "create")
        return stream

    def _adopt(self, files: AccountFiles) -> Generator[Step, None, Stream]:
        """Rename the directory of the stream to its final name, and open the stream; after a failure, remove it."""
        js, name = self._js, self.config.name
        try:
            yield from js.files.adopt(files, name, js.shared.metadata)
            yield from streams.reopen_steps(js, name)
            if name not in js.streams:
                raise StoreFailed(name, "it was built and cannot be opened, see the log")
        except (StoreFailed, OSError, MemoryError):
            js.held.let_go(name)
            js.files.give_up(name)
            raise
        return js.streams[name]

    def uncount(self) -> None:
        """Subtract the bytes that `count` added."""
        for usage in self._usages():
            usage.used -= self._counted
        self._counted = 0

    def close(self) -> None:
        """Release all resources of the build; remove the stream unless it was completed."""
        self.uncount()
        if self._writer is not None:
            self._writer.close()
        if self._files is not None:
            self._js.files.drop_hidden(self._files)
