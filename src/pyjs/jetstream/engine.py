"""JetStream of one account: its streams, what they reserve, and what all accounts share.

Creates, changes, deletes and recovers streams; everything per message is in stream.pyx. Knows nothing of API
subjects and JSON (api/): who wants to know of streams coming and going registers as `observer`.

Source: nats.docs "JetStream"; order of checks probed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import Protocol

import orjson

from pyjs.base.clock import Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.account import Account
from pyjs.jetstream import consumers, errcodes, stream_rules
from pyjs.jetstream.config import FILE, MEMORY, StreamConfig
from pyjs.jetstream.expiry import Expiry
from pyjs.jetstream.options import AccountLimits, JetStreamOptions
from pyjs.jetstream.persist import AccountFiles
from pyjs.jetstream.store_probe import StoreProbe
from pyjs.jetstream.stream import Stream
from pyjs.jetstream.usage import Usage
from pyjs.store.filestore import FileStore
from pyjs.store.memstore import MemStore
from pyjs.store.store import StreamStore
from pyjs.subjects.sublist import Subscription
from pyjs.subjects.tokens import subjects_overlap


class StreamObserver(Protocol):
    """Who is told about streams of an account, in the order of the effects."""

    def stream_opened(self, stream: Stream, recovered: bool) -> None:
        """A stream is there and takes messages."""

    def stream_changed(self, stream: Stream, old: StreamConfig) -> None:
        """A stream has a new configuration."""

    def stream_closing(self, stream: Stream, deleted: bool) -> None:
        """A stream is about to be deleted, or to be closed with the server."""


class Shared:
    """What all accounts of a server have in common: the seams, the options, the totals."""

    def __init__(
        self, options: JetStreamOptions, server_name: str, clock: Clock, timers: Timers, rng: Rng, log: Log
    ) -> None:
        self.options = options
        self.server_name = server_name
        self.clock = clock
        self.timers = timers
        self.rng = rng
        self.log = log
        self.usage = {MEMORY: Usage(options.max_memory), FILE: Usage(options.max_store)}
        self.api_total = 0
        self.api_errors = 0
        self.api_inflight = 0


class JetStream:
    """JetStream of one account."""

    def __init__(self, account: Account, shared: Shared, limits: AccountLimits, files: AccountFiles) -> None:
        self.account = account
        self.shared = shared
        self.limits = limits
        self.files = files
        self.streams: dict[str, Stream] = {}
        self.usage = {MEMORY: Usage(limits.max_memory), FILE: Usage(limits.max_store)}
        self.api_total = 0
        self.api_errors = 0
        self.observer: StreamObserver | None = None
        self._subscriptions: dict[str, dict[str, Subscription]] = {}  # by stream, by subject

    # -- what there is -------------------------------------------------------------------------------------

    @property
    def options(self) -> JetStreamOptions:
        """The server's options."""
        return self.shared.options

    def stream(self, name: str) -> Stream:
        """Return the stream called `name`.

        Raises:
            ApiError: 10059.
        """
        stream = self.streams.get(name)
        if stream is None:
            raise errcodes.STREAM_NOT_FOUND.error()
        return stream

    def num_consumers(self) -> int:
        """Return how many consumers all streams have."""
        return sum(len(stream.consumers) for stream in self.streams.values())

    def max_consumers_of(self, stream: Stream) -> int:
        """Return how many consumers `stream` may have; -1: any number."""
        if stream.config.max_consumers > 0:
            return stream.config.max_consumers
        if self.limits.max_consumers > 0:
            return self.limits.max_consumers
        return self.options.max_consumers_of_stream()

    def check(self, config: StreamConfig, pedantic: bool, unsupported: tuple[str, ...]) -> StreamConfig:
        """Return `config` with defaults filled in.

        Raises:
            ApiError: says what is wrong.
        """
        return stream_rules.check(config, self.options, self.limits, pedantic, unsupported)

    # -- create, update, delete ----------------------------------------------------------------------------

    def create_stream(
        self, config: StreamConfig, pedantic: bool = False, unsupported: tuple[str, ...] = ()
    ) -> Stream:
        """Return a new stream, or the one that is there with the same configuration.

        Raises:
            ApiError: says why not.
            StoreFailed: its directory cannot be written.
        """
        config = config.with_required_level()
        stream_rules.check_create(config)
        if config.name not in self.streams and 0 < self.limits.max_streams <= len(self.streams):
            raise errcodes.MAXIMUM_STREAMS_LIMIT.error()
        config = self.check(config, pedantic, unsupported)
        stream_rules.check_single_server(config)
        existing = self.streams.get(config.name)
        if existing is not None:
            if existing.config.same_as(config):
                return existing
            raise errcodes.STREAM_NAME_EXIST.error()
        self._check_room(config, max(config.max_bytes, 0))
        self._check_overlap(config)
        created_ns = self.shared.clock.now_ns()
        stream = self._open(config, self._new_store(config, created_ns), created_ns)
        if self.observer is not None:
            self.observer.stream_opened(stream, recovered=False)
        return stream

    def update_stream(self, config: StreamConfig) -> Stream:
        """Change a stream; `config` has passed `check`.

        Raises:
            ApiError: says why not.
        """
        stream = self.stream(config.name)
        old = stream.config
        config = stream_rules.check_update(old, config.with_required_level())
        self._check_room(config, max(max(config.max_bytes, 0) - max(old.max_bytes, 0), 0))
        self._check_consumer_limits(stream, config)
        self._check_overlap(config)
        if config.storage == FILE:
            self.files.save(config, stream.created_ns)
        self._reserve(old, -1)
        self._reserve(config, 1)
        self._subscribe(stream, config.subjects)
        stream.configure(config)
        stream.commit_now()
        if self.observer is not None:
            self.observer.stream_changed(stream, old)
        return stream

    def delete_stream(self, name: str) -> None:
        """Remove a stream with its consumers and everything stored.

        Raises:
            ApiError: 10059.
            StoreFailed: its directory cannot be renamed; nothing has changed.
        """
        stream = self.stream(name)
        hidden = self.files.hide(name) if stream.config.storage == FILE else ""
        self._close(stream, deleted=True)
        stream.store.destroy()
        self.files.remove(hidden)

    # -- start and stop ------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Open every stream that is stored; what cannot be opened is named in the log and left alone."""
        for config, created_ns, store in self.files.recover():
            stream = self._open(config, store, created_ns)
            stream.relearn(self.shared.clock.now_ns())
            consumers.recover(self, stream)
            if self.observer is not None:
                self.observer.stream_opened(stream, recovered=True)

    def stop(self) -> None:
        """Close every stream; what they hold is on disk."""
        for stream in list(self.streams.values()):
            self._close(stream, deleted=False)
            stream.store.close()
        self.files.close()

    # -- parts ---------------------------------------------------------------------------------------------

    def _new_store(self, config: StreamConfig, created_ns: int) -> StreamStore:
        store = MemStore() if config.storage == MEMORY else self.files.create(config, created_ns)
        if config.first_seq > 1:
            store.set_first_seq(config.first_seq)
        return store

    def _open(self, config: StreamConfig, store: StreamStore, created_ns: int) -> Stream:
        usage, server_usage = self.usage[config.storage], self.shared.usage[config.storage]
        head = _ack_head(config.name, self.options.domain)
        expiry = Expiry(self.shared.timers)
        probe = StoreProbe(store, self.shared.timers) if isinstance(store, FileStore) else None
        stream = Stream(self.account, config, store, created_ns, usage, server_usage, head, expiry, probe)
        stream.sync_always = self.options.sync_always and config.storage == FILE
        self.streams[config.name] = stream
        self._reserve(config, 1)
        self._subscribe(stream, config.subjects)
        return stream

    def _close(self, stream: Stream, deleted: bool) -> None:
        if self.observer is not None:
            self.observer.stream_closing(stream, deleted)
        for consumer in list(stream.consumers.values()):
            consumer.stop("deleted" if deleted else "shutdown")
        self._subscribe(stream, ())
        stream.close()
        self._reserve(stream.config, -1)
        del self.streams[stream.name]

    def _subscribe(self, stream: Stream, subjects: tuple[str, ...]) -> None:
        """Make `subjects` what the stream listens to."""
        current = self._subscriptions.setdefault(stream.name, {})
        for subject in [subject for subject in current if subject not in subjects]:
            self.account.unsubscribe(current.pop(subject))
        for subject in subjects:
            if subject not in current:
                current[subject] = self.account.subscribe(subject.encode(), stream)
        if not current:
            del self._subscriptions[stream.name]

    def _reserve(self, config: StreamConfig, sign: int) -> None:
        size = max(config.max_bytes, 0) * sign
        self.usage[config.storage].reserved += size
        self.shared.usage[config.storage].reserved += size

    def _check_room(self, config: StreamConfig, extra: int) -> None:
        """Refuse what account or server have no room for; `extra` bytes are to be reserved."""
        if 0 < self.limits.max_consumers < config.max_consumers:
            raise errcodes.MAXIMUM_CONSUMERS_LIMIT.error()
        need = extra if config.max_bytes > 0 else 1
        for usage in (self.usage[config.storage], self.shared.usage[config.storage]):
            if 0 <= usage.max < usage.reserved + need:
                full = {MEMORY: errcodes.MEMORY_RESOURCES_EXCEEDED, FILE: errcodes.STORAGE_RESOURCES_EXCEEDED}
                raise full[config.storage].error()

    def _check_overlap(self, config: StreamConfig) -> None:
        for other in self.streams.values():
            if other.name == config.name:
                continue
            for taken in other.config.subjects:
                if any(subjects_overlap(taken.encode(), subject.encode()) for subject in config.subjects):
                    raise errcodes.STREAM_SUBJECT_OVERLAP.error()

    def _check_consumer_limits(self, stream: Stream, config: StreamConfig) -> None:
        new, old = config.consumer_limits, stream.config.consumer_limits
        if new == old:
            return
        longest, most = new.inactive_threshold_ns, new.max_ack_pending
        names = [
            name
            for name, consumer in stream.consumers.items()
            if 0 < longest < consumer.config.inactive_threshold_ns
            or 0 < most < consumer.config.max_ack_pending
        ]
        if names:
            text = f"change to limits violates consumers: {', '.join(names)}"
            raise errcodes.STREAM_UPDATE.error(err=text)


def _ack_head(name: str, domain: str) -> bytes:
    """Return what every PubAck of a stream begins with."""
    fields = {"stream": name, "domain": domain} if domain else {"stream": name}
    return orjson.dumps(fields)[:-1] + b',"seq":'
