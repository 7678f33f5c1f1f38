"""The writer of a stream under construction: it writes the store and the consumers, which are not served yet.

This module does not use accounts, usage limits or running streams. A restore adds the complete stream to the account
(building.py); an import renames the directory of the stream. Messages keep their sequences and times; missing
sequences are used up without messages.

Source: rules of a restore as in nats-server's source, server/stream_backup.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.archive.consumer_file import ConsumerState
from pyjs.archive.frames import BadArchive
from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import MEMORY
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.consumer.record import first_state
from pyjs.jetstream.consumer.start import select_start
from pyjs.jetstream.rules import consumer as consumer_rules
from pyjs.jetstream.rules.consumer import ConsumerLimits
from pyjs.jetstream.stream.message_ttl import NEVER, parse_ttl_ns
from pyjs.jetstream.transfer.consumer_states import stored_state
from pyjs.jetstream.transfer.messages import append_messages
from pyjs.store.memory import MemStore
from pyjs.store.store import StreamStore
from pyjs.subjects.tokens import is_valid_subject, subject_has_wildcard

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from pyjs.archive.blocks import BlockRecord
    from pyjs.archive.entries import ArchiveEntry
    from pyjs.archive.entry_reader import EntryReader
    from pyjs.core.chore import Step
    from pyjs.jetstream.files.metadata import MetadataWriter
    from pyjs.jetstream.manage.persist import AccountFiles

    Message: TypeAlias = ArchiveEntry | BlockRecord

SUBJECT_MAX = 4096  # bytes; a subject that is longer does not fit in a control line
COMMIT_SIZE = 256 * 1024  # bytes of messages between two commits
STEP_SIZE = 128 * 1024  # bytes of messages appended in one step
DROP_STEP = 4096  # messages removed in one step


@dataclass(frozen=True, slots=True)
class WrittenConsumer:
    """One consumer of a stream that is being written."""

    name: str
    config: ConsumerConfig
    created_ns: int
    state: bytes


class StreamWriter:
    """The writer of one stream under construction. The caller must close it in any case."""

    def __init__(
        self,
        config: StreamConfig,
        created_ns: int,
        now_ns: int,
        consumer_limits: ConsumerLimits,
        consumers_max: int,
    ) -> None:
        self.config = config
        self.created_ns = created_ns
        self.consumers: dict[str, WrittenConsumer] = {}
        self.uncommitted = 0  # bytes of messages appended since the last commit
        self.files: AccountFiles | None = None  # files of the temporary directory; None: a memory stream
        self._metadata: MetadataWriter | None = None
        self._store: StreamStore | None = None
        self._now_ns = now_ns
        self._consumer_limits = consumer_limits
        self._consumers_max = consumers_max  # 0 or less: no limit

    def begin_in_memory(self) -> None:
        """Create the store of a memory stream."""
        assert self.config.storage == MEMORY
        self._store = MemStore()

    def begin_in_files(self, files: AccountFiles, metadata: MetadataWriter) -> Generator[Step, None, None]:
        """Create the store of a file stream in a temporary directory; return when the directory is durable.

        Raises:
            StoreFailed: the directory cannot be written.
        """
        self.files, self._metadata = files, metadata
        self._store = yield from files.create(self.config, self.created_ns, metadata)

    @property
    def store(self) -> StreamStore:
        """The store of the stream, which must have been created."""
        assert self._store is not None
        return self._store

    def hand_over(self) -> StreamStore:
        """Return the store, which the caller must close from now on."""
        store, self._store = self.store, None
        return store

    # -- messages ------------------------------------------------------------------------------------------

    def add(self, message: Message) -> None:
        """Append a message.

        Raises:
            BadArchive: the message is invalid, or its sequence is not above that of the previous one.
            StoreFailed: the message cannot be written.
        """
        store, seq = self.store, message.seq
        self._check(message)
        self.skip_to(seq - 1)
        if store.store(message.name, message.headers, message.payload, message.ts) != seq:
            raise StoreFailed(self.config.name, f"message {seq} was refused") from store.error
        self.uncommitted += len(message.payload) + len(message.headers)

    def add_from(self, entries: EntryReader, payload_max: int) -> int:
        """Append messages until one needs `add` or `pass_by`; return the total size of their entries in bytes."""
        limit = self.config.max_msg_size
        message_max = min(limit, payload_max) if limit >= 0 else payload_max
        has_ttls = self.config.allow_msg_ttl
        size = append_messages(self.store, entries, message_max, has_ttls, SUBJECT_MAX, STEP_SIZE)
        self.uncommitted += size
        return size

    def pass_by(self, message: Message) -> None:
        """Use up the sequence of a message without storing the message.

        Raises:
            BadArchive: the message is invalid, or its sequence is not above that of the previous one.
            StoreFailed: the sequence cannot be written.
        """
        self._check(message)
        self.skip_to(message.seq)

    def check_size(self, message: Message, payload_max: int) -> None:
        """Check the size of a message against `payload_max` bytes and the stream's `max_msg_size`.

        Raises:
            BadArchive: the message is too large.
        """
        size, limit = len(message.headers) + len(message.payload), self.config.max_msg_size
        if size > payload_max:
            raise BadArchive(f"message sequence {message.seq} exceeds maximum payload size")
        if 0 <= limit < size:
            raise BadArchive(f"message sequence {message.seq} exceeds maximum message size")

    def _check(self, message: Message) -> None:
        name, headers = message.name, message.headers
        if message.seq <= self.store.last_seq:
            raise BadArchive(f"message sequence {message.seq} out of order")
        if message.ts < 0:
            raise BadArchive(f"message sequence {message.seq} has the time {message.ts}")
        if len(name) > SUBJECT_MAX or not is_valid_subject(name) or subject_has_wildcard(name):
            raise BadArchive(f"message sequence {message.seq} has no valid subject")
        if headers and not (headers.startswith(b"NATS/1.0") and headers.endswith(b"\r\n\r\n")):
            raise BadArchive(f"message sequence {message.seq} has no valid headers")

    def is_over(self, message: Message) -> bool:
        """Return whether the message has expired by its own TTL."""
        if not self.config.allow_msg_ttl or b"Nats-TTL:" not in message.headers:
            return False
        text = message.headers.partition(b"Nats-TTL:")[2].partition(b"\r\n")[0].strip()
        ttl_ns = parse_ttl_ns(text)
        if ttl_ns is None or ttl_ns == NEVER or not ttl_ns:
            return False
        return self._now_ns > message.ts + ttl_ns

    def skip_to(self, seq: int) -> None:
        """Use up every sequence up to `seq` without storing messages.

        Raises:
            StoreFailed: the sequences cannot be written.
        """
        if seq > self.store.last_seq and not self.store.skip_seqs_to(seq):
            raise StoreFailed(self.config.name, f"sequence {seq} was refused") from self.store.error

    def drop(self, first_seq: int, last_seq: int) -> Generator[Step, None, None]:
        """Remove the messages from `first_seq` to `last_seq`, in steps.

        Raises:
            StoreFailed: the removals cannot be written.
        """
        store = self.store
        everything, seq = store.make_filter(()), first_seq
        while seq:
            _, seq = store.drop_some(everything, seq, last_seq + 1, DROP_STEP)
            if seq:
                self.commit()
                yield None

    def commit(self) -> None:
        """Write all appended messages.

        Raises:
            StoreFailed: the messages cannot be written.
        """
        self.uncommitted = 0
        self.store.flush()

    # -- consumers -----------------------------------------------------------------------------------------

    def add_consumer(
        self, name: str, config: ConsumerConfig, state: ConsumerState | None, created_ns: int = 0
    ) -> Generator[Step, None, None]:
        """Check and store a consumer; without a state, the consumer begins according to its deliver policy.

        Raises:
            ApiError: the configuration is refused.
            BadArchive: the consumer occurs twice, or its state is invalid.
            StoreFailed: the consumer cannot be written.
        """
        if name in self.consumers:
            raise BadArchive(f"consumer {name!r} is there twice")
        if 0 < self._consumers_max <= len(self.consumers):
            raise errcodes.MAXIMUM_CONSUMERS_LIMIT.error()
        config = yield from self._checked(config)
        if state is None:
            matches = self.store.make_filter(tuple(subject.encode() for subject in config.filters))
            per_subject = self.config.max_msgs_per_subject
            start = yield from select_start(config, self.store, matches, per_subject)
            stored = first_state(start)
        else:
            stored = yield from stored_state(state)
        self.consumers[name] = WrittenConsumer(name, config, created_ns or self.created_ns, stored)
        if self.files is not None and not (config.direct or config.mem_storage):
            assert self._metadata is not None
            made_ns = created_ns or self.created_ns
            change = self.files.new_consumer(self.config.name, name, config, made_ns, stored)
            yield from self._metadata.commit(change)

    def _checked(self, config: ConsumerConfig) -> Generator[Step, None, ConsumerConfig]:
        limits = self._consumer_limits
        covered = yield from consumer_rules.search_filters(config)
        config = consumer_rules.with_required_level(config)
        config = consumer_rules.normalised(config, self.config, limits, False)
        consumer_rules.check(config, self.config, limits, covered)
        return consumer_rules.mortal(config)

    def close(self) -> None:
        """Close the store without writing, unless it was handed over."""
        store, self._store = self._store, None
        if store is not None and self.files is not None:
            self.files.release(store)
        elif store is not None:
            store.close()
