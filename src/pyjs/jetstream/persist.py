"""Where an account's file streams and their consumers live, and how they come back.

The one module of the engine that knows the directory layout and the formats of the store room. What cannot be read
is set aside under another name and reported, never removed, and never keeps the rest from coming back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyjs.base.disk import Disk
from pyjs.base.errors import CorruptRecord
from pyjs.base.log import Log
from pyjs.jetstream.config import LIMITS, StreamConfig
from pyjs.jetstream.consumer_config import ConsumerConfig, from_json
from pyjs.jetstream.consumer_record import StateFile
from pyjs.store.consumer_state import ConsumerStateFile
from pyjs.store.filestore import FileStore
from pyjs.store.layout import file_name, finish_removals, remove_directory, set_aside
from pyjs.store.meta import load_meta, save_meta
from pyjs.store.store import StreamStore

SEGMENT_SIZE_MAX = 8 << 20
SEGMENT_SIZE_QUEUE = 4 << 20  # interest and work queue streams: files go as messages are acknowledged
SEGMENT_SIZE_MIN = 64 << 10


@dataclass(frozen=True, slots=True)
class StoredConsumer:
    """One consumer as it was kept."""

    name: str
    config: ConsumerConfig
    created_ns: int
    snapshot: bytes
    deltas: tuple[bytes, ...]
    file: StateFile


def segment_size(config: StreamConfig) -> int:
    """Return where a segment of this stream ends: small enough that its limits free whole files."""
    size = SEGMENT_SIZE_MAX if config.retention == LIMITS else SEGMENT_SIZE_QUEUE
    if config.max_bytes > 0:
        size = max(SEGMENT_SIZE_MIN, min(size, config.max_bytes // 4))
    return size


class AccountFiles:
    """The stored streams of one account, below `<root>/<account>/streams`."""

    def __init__(self, disk: Disk, root: str, account: str, log: Log, now_ns: Callable[[], int]) -> None:
        self._disk = disk
        self._account = account
        self._log = log
        self._now_ns = now_ns
        self._streams = f"{root}/{file_name(account)}/streams"
        self._generations: dict[str, int] = {}  # directory -> generation of its metadata

    # -- streams -------------------------------------------------------------------------------------------

    def create(self, config: StreamConfig, created_ns: int) -> StreamStore:
        """Make the directory of a new stream and return its empty store."""
        directory = self._stream_dir(config.name)
        if self._disk.exists(directory):
            aside = set_aside(self._disk, directory)
            self._log.warn(f"  {directory} belonged to no stream and is set aside as {aside}")
        self._disk.make_dirs(f"{directory}/consumers")
        self.save(config, created_ns)
        self._disk.sync_dir(self._streams)
        return FileStore(self._disk, f"{directory}/msgs", self._log, segment_size(config), created_ns)

    def save(self, config: StreamConfig, created_ns: int) -> None:
        """Keep a changed configuration."""
        self._save(self._stream_dir(config.name), {"created_ns": created_ns, "config": config.to_meta()})

    def remove(self, name: str) -> None:
        """Remove what is left of a stream whose store has been destroyed."""
        self._remove(self._stream_dir(name))

    def recover(self) -> Iterator[tuple[StreamConfig, int, StreamStore]]:
        """Yield configuration, creation time and store of every stream."""
        finish_removals(self._disk, self._streams)
        for name in self._disk.list_dir(self._streams):
            if name.startswith("."):
                continue
            found = self._open_stream(f"{self._streams}/{name}")
            if found is not None:
                yield found

    def _open_stream(self, directory: str) -> tuple[StreamConfig, int, StreamStore] | None:
        values = self._load(directory, "stream")
        if values is None:
            return None
        started_ns = self._now_ns()
        try:
            config, created_ns = StreamConfig.from_meta(values["config"]), int(values["created_ns"])
            path = f"'{self._account} > {config.name}'"
            self._log.info(f"  Starting restore for stream {path}")
            store = FileStore(self._disk, f"{directory}/msgs", self._log, segment_size(config), created_ns)
        except (CorruptRecord, ValueError, KeyError, TypeError, OSError) as error:
            self._log.error(f"  Stream in {directory} is not recovered, its files stay: {error}")
            return None
        took_ms = (self._now_ns() - started_ns) // 1_000_000
        self._log.info(f"  Restored {store.msgs:,} messages for stream {path} in {took_ms}ms")
        return config, created_ns, store

    # -- consumers -----------------------------------------------------------------------------------------

    def create_consumer(
        self, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> StateFile | None:
        """Make the files of a new consumer and return where its state goes."""
        directory = self._consumer_dir(stream, name)
        if self._disk.exists(directory):
            self._remove(directory)
        self._disk.make_dirs(directory)
        self.save_consumer(stream, name, config, created_ns)
        return ConsumerStateFile(self._disk, directory)

    def save_consumer(self, stream: str, name: str, config: ConsumerConfig, created_ns: int) -> None:
        """Keep a changed configuration."""
        values = {"name": name, "created_ns": created_ns, "config": config.as_json()}
        self._save(self._consumer_dir(stream, name), values)

    def remove_consumer(self, stream: str, name: str) -> None:
        """Remove what is kept of a consumer."""
        self._remove(self._consumer_dir(stream, name))

    def recover_consumers(self, stream: str) -> Iterator[StoredConsumer]:
        """Yield every kept consumer of a stream."""
        parent = f"{self._stream_dir(stream)}/consumers"
        finish_removals(self._disk, parent)
        names = [name for name in self._disk.list_dir(parent) if not name.startswith(".")]
        if names:
            self._log.info(f"  Recovering {len(names)} consumers for stream - '{self._account} > {stream}'")
        for name in names:
            found = self._open_consumer(f"{parent}/{name}")
            if found is not None:
                yield found

    def _open_consumer(self, directory: str) -> StoredConsumer | None:
        values = self._load(directory, "consumer")
        if values is None:
            return None
        file = ConsumerStateFile(self._disk, directory)
        try:
            config = from_json(values["config"])
            snapshot, deltas, problems = file.load()
        except FileNotFoundError:
            self._log.warn(f"  Consumer in {directory} was never begun and is removed")
            self._remove(directory)
            return None
        except (CorruptRecord, ValueError, KeyError, TypeError, OSError) as error:
            self._set_aside(directory, "consumer", error)
            return None
        for problem in problems:
            self._log.warn(f"  {problem}")
        return StoredConsumer(values["name"], config, values["created_ns"], snapshot, tuple(deltas), file)

    # -- parts ---------------------------------------------------------------------------------------------

    def _stream_dir(self, name: str) -> str:
        return f"{self._streams}/{file_name(name)}"

    def _consumer_dir(self, stream: str, name: str) -> str:
        return f"{self._stream_dir(stream)}/consumers/{file_name(name)}"

    def _save(self, directory: str, values: dict[str, Any]) -> None:
        generation = self._generations.get(directory, 0) + 1
        save_meta(self._disk, directory, "meta", values, generation)
        self._generations[directory] = generation

    def _load(self, directory: str, what: str) -> dict[str, Any] | None:
        """Return the metadata of a directory, None: it cannot be read and was set aside."""
        try:
            generation, values, problems = load_meta(self._disk, directory, "meta")
        except (CorruptRecord, OSError) as error:
            self._set_aside(directory, what, error)
            return None
        for problem in problems:
            self._log.warn(f"  {problem}; its other copy is whole and is used")
        self._generations[directory] = generation
        return values

    def _set_aside(self, directory: str, what: str, error: Exception) -> None:
        aside = set_aside(self._disk, directory)
        self._log.error(
            f"  {what.capitalize()} in {directory} cannot be read and is set aside as {aside}: {error}"
        )

    def _remove(self, directory: str) -> None:
        for known in [each for each in self._generations if each.startswith(directory)]:
            del self._generations[known]
        if self._disk.exists(directory):
            remove_directory(self._disk, directory)
