"""A stream under construction: nobody sees it before it is complete and durable.

A file stream is built in a directory whose name a start removes, and renamed when it is complete: after a kill it is
there with everything, or not at all. Its bytes count in the limits of account and server while it is built.

Source: ADR-63; limits as in nats-server's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.archive.entries import ArchiveEntry
from pyjs.archive.frames import BadArchive
from pyjs.base.errors import StoreFailed
from pyjs.core.job import Job, Lane
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import FILE, MEMORY, StreamConfig
from pyjs.jetstream.manage import consumers, streams
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.rules import consumer as consumer_rules
from pyjs.jetstream.stream.limits import Usage
from pyjs.jetstream.stream.message_ttl import NEVER, parse_ttl_ns
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore
from pyjs.subjects.tokens import is_valid_subject, subject_has_wildcard

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.manage.persist import AccountFiles

SUBJECT_MAX = 4096  # bytes; as long as a control line may be
COMMIT_SIZE = 256 * 1024  # bytes of messages between two commits


@dataclass(frozen=True, slots=True)
class BuiltConsumer:
    """One consumer of a stream under construction."""

    name: str
    config: ConsumerConfig
    state: bytes


class _Sync(Job):
    """Syncs a store in a thread, then continues a chore."""

    lane = Lane.FILES

    def __init__(self, store: StreamStore, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._job = store.begin_sync()
        self.chore: Chore | None = None
        self.failure: Exception | None = None

    def run(self) -> None:
        """Sync the files."""
        if self._job is not None:
            self.failure = self._job()

    def finish(self, failure: Exception | None) -> None:
        """Continue the chore."""
        self.failure = failure or self.failure
        if self._job is not None:
            self._store.finish_sync(self._job, self.failure)
        assert self.chore is not None
        self._turn.chores.append(self.chore)


class StreamBuild:
    """One stream under construction; `close` it in any case."""

    def __init__(self, js: JetStream, config: StreamConfig) -> None:
        self._js = js
        self.config = config
        self._created_ns = js.shared.clock.wall_ns()
        self._files: AccountFiles | None = None  # of the hidden directory; None: a memory stream
        self._store: StreamStore | None = None
        self._consumers: list[BuiltConsumer] = []
        self._counted = 0  # bytes added to the usage of account and server
        self._uncommitted = 0

    def begin(self, first_seq: int) -> Generator[Step, None, None]:
        """Create the store; the sequence after it is at least `first_seq`."""
        if self.config.storage == MEMORY:
            self._store = MemStore()
        else:
            self._files = self._js.files.hidden_files()
            self._store = yield from self._files.create(
                self.config, self._created_ns, self._js.shared.metadata
            )
        if first_seq > 1:
            self._store.set_first_seq(first_seq)

    @property
    def store(self) -> StreamStore:
        """The store, after `begin`."""
        assert self._store is not None
        return self._store

    def count(self, size: int) -> None:
        """Count `size` bytes in all, and refuse them beyond a limit. Raises ApiError: 10047, 10028."""
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

    def add_message(self, entry: ArchiveEntry) -> None:
        """Append a message.

        Raises:
            BadArchive: it is invalid, or not after the one before.
            StoreFailed: it cannot be written.
            ApiError: a limit of the account or the server is reached.
        """
        self._check(entry)
        store = self.store
        if entry.seq <= store.last_seq:
            raise BadArchive(f"message sequence {entry.seq} out of order")
        if self._is_over(entry):
            self._skip_to(entry.seq)
            return
        self._skip_to(entry.seq - 1)
        if store.store(entry.name, entry.headers, entry.payload, entry.ts) != entry.seq:
            raise StoreFailed(self.config.name, f"message {entry.seq} was refused") from store.error
        self._uncommitted += len(entry.payload) + len(entry.headers)
        if self._uncommitted > COMMIT_SIZE:
            self.commit()

    def _check(self, entry: ArchiveEntry) -> None:
        size = len(entry.headers) + len(entry.payload)
        limit = self.config.max_msg_size
        if 0 <= limit < size:
            raise BadArchive(f"message sequence {entry.seq} exceeds maximum message size")
        if entry.ts < 0:
            raise BadArchive(f"message sequence {entry.seq} has the time {entry.ts}")
        if (
            len(entry.name) > SUBJECT_MAX
            or not is_valid_subject(entry.name)
            or subject_has_wildcard(entry.name)
        ):
            raise BadArchive(f"message sequence {entry.seq} has no valid subject")
        if entry.headers and not (
            entry.headers.startswith(b"NATS/1.0") and entry.headers.endswith(b"\r\n\r\n")
        ):
            raise BadArchive(f"message sequence {entry.seq} has no valid headers")

    def _is_over(self, entry: ArchiveEntry) -> bool:
        """Return whether the message's own TTL is over; then only its sequence is used."""
        if not self.config.allow_msg_ttl or b"Nats-TTL:" not in entry.headers:
            return False
        text = entry.headers.partition(b"Nats-TTL:")[2].partition(b"\r\n")[0].strip()
        ttl_ns = parse_ttl_ns(text)
        if ttl_ns is None or ttl_ns == NEVER or not ttl_ns:
            return False
        return self._created_ns > entry.ts + ttl_ns

    def _skip_to(self, seq: int) -> None:
        if seq > self.store.last_seq and not self.store.skip_seqs_to(seq):
            raise StoreFailed(self.config.name, f"sequence {seq} was refused") from self.store.error

    def commit(self) -> None:
        """Write what was appended; check the limits. Raises StoreFailed, ApiError."""
        self._uncommitted = 0
        self.store.flush()
        self.count(max(self.store.bytes, self._counted))

    def add_consumer(self, name: str, config: ConsumerConfig, state: bytes) -> Generator[Step, None, None]:
        """Check and store a consumer.

        Raises:
            ApiError: its configuration is refused.
            StoreFailed: it cannot be written.
        """
        if any(each.name == name for each in self._consumers):
            raise BadArchive(f"consumer {name!r} is there twice")
        limit = self.config.max_consumers if self.config.max_consumers > 0 else self._js.limits.max_consumers
        if 0 < limit <= len(self._consumers):
            raise errcodes.MAXIMUM_CONSUMERS_LIMIT.error()
        covered = yield from consumer_rules.search_filters(config)
        config = consumer_rules.with_required_level(config)
        limits = consumers.limits_of(self._js)
        config = consumer_rules.normalised(config, self.config, limits, False)
        consumer_rules.check(config, self.config, limits, covered)
        config = consumer_rules.mortal(config)
        self._consumers.append(BuiltConsumer(name, config, state))
        if self._files is not None and not (config.direct or config.mem_storage):
            metadata, created_ns = self._js.shared.metadata, self._created_ns
            change = self._files.new_consumer(self.config.name, name, config, created_ns, state)
            yield from metadata.commit(change)

    def finish(self, last_seq: int) -> Generator[Step, None, Stream]:
        """Open the complete stream, whose sequences go on after `last_seq`; return it.

        Raises:
            ApiError: the name was taken meanwhile, or the stream is refused.
            StoreFailed: it cannot be made durable.
        """
        if last_seq > self.store.last_seq:
            self._skip_to(last_seq)
        self.commit()
        if self._files is not None:
            yield from self._sync()
        name = self.config.name
        return (yield from self._js.gates.within(name, True, self._publish))

    def _sync(self) -> Generator[Step, None, None]:
        turn = self._js.account.turn
        job = _Sync(self.store, turn)

        def park(chore: Chore) -> None:
            job.chore = chore
            turn.jobs.append(job)

        yield park
        if job.failure is not None:
            raise StoreFailed(self.config.name, str(job.failure)) from job.failure

    def _publish(self) -> Generator[Step, None, Stream]:
        js, config = self._js, self.config
        if config.name in js.streams or config.name in js.held or js.account.jetstream is not js:
            raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED.error()
        streams.check_restored(js, config)
        store = self.store
        self.uncount()
        if self._files is None:
            self._store = None
            stream = yield from streams.open_restored(js, config, store, self._created_ns)
        else:
            store.close()
            js.files.release(store)
            self._store = None
            yield from js.files.adopt(self._files, config.name, js.shared.metadata)
            yield from streams.reopen_steps(js, config.name)
            if config.name not in js.streams:
                raise StoreFailed(config.name, "it was built and cannot be opened, see the log")
            stream = js.streams[config.name]
        for each in self._consumers:
            if each.name not in stream.consumers:
                stored = StoredConsumer(each.name, each.config, self._created_ns, each.state, (), (), None)
                consumers.open_stored(js, stream, stored)
        streams.tell(js, config.name, "create")
        return stream

    def uncount(self) -> None:
        """Take back what `count` added."""
        for usage in self._usages():
            usage.used -= self._counted
        self._counted = 0

    def close(self) -> None:
        """Remove what was built, unless it is complete."""
        self.uncount()
        if self._store is not None:
            self._store.close()
            if self._files is not None:
                self._js.files.release(self._store)
            self._store = None
        if self._files is not None:
            self._js.files.drop_hidden(self._files)
