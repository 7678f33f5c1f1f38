"""Creates, updates, removes and recovers the stored streams and consumers of an account.

Damaged files are set aside, and other unreadable files stay; both are reported, and recovery continues without them.
Long because creation, update, recovery and removal share one layout and one set of caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.disk import Disk, is_shortage
from pyjs.base.errors import NONSENSE, CorruptRecord, PyjsError, StoreFailed
from pyjs.base.log import Log
from pyjs.jetstream.config.consumer import ConsumerConfig, from_json
from pyjs.jetstream.config.declared import as_json, from_meta
from pyjs.jetstream.config.level import level_problem
from pyjs.jetstream.config.offline import NewerConsumer, Offline, newer_consumer, offline_stream
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.files.consumer_files import (
    ChangedConsumer,
    ListFile,
    NewConsumer,
    RemovedConsumer,
    state_directory,
)
from pyjs.jetstream.files.stored_purge import PurgeFile
from pyjs.jetstream.files.stream_changes import NamesChange, StreamCreation, StreamUpdate
from pyjs.jetstream.files.tails import TailIndexes
from pyjs.jetstream.manage.segments import codec, seal_age_ns, segment_size, stream_values
from pyjs.store.crypt.keys import KeyRing, Locked, StreamKey
from pyjs.store.file.store import FileStore
from pyjs.store.format.layout import (
    DAMAGED,
    DELETING,
    file_name,
    finish_removals,
    free_name,
    hide_directory,
    make_directory,
    set_aside,
    streams_directory,
)
from pyjs.store.format.meta import KIND_STREAM, Opener, UnknownFormat, decode, encode, load_meta, save_meta
from pyjs.store.format.window_file import is_plain, read_parts, write_parts
from pyjs.store.open_files import OpenFiles
from pyjs.store.segment.meta_record import meta_in
from pyjs.store.segment.view import ViewCache
from pyjs.store.state.consumer_list import NAME, REMOVED, UNKNOWN, ConsumerList, Listed, Owners, load_list
from pyjs.store.state.consumer_state import ConsumerStateFile, OpenLogs
from pyjs.store.store import StreamStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.jetstream.consumer.record import StateFile
    from pyjs.jetstream.files.metadata import MetadataWriter
    from pyjs.jetstream.files.removals import Removals


class StoredConsumer(NamedTuple):
    """One consumer, as it was stored."""

    name: str
    config: ConsumerConfig
    created_ns: int
    snapshot: bytes | None  # None: the state is unreadable and was set aside; `problems` has the reasons
    deltas: tuple[bytes, ...]
    problems: tuple[str, ...]  # why the state is not the last one written, or a copy is lost
    file: StateFile | None  # None: the consumer has no files


class Unusable(PyjsError):
    """Raised if a stored stream is in a directory that does not match its name; its files must stay."""


@dataclass(eq=False, repr=False, slots=True)
class Stores:
    """The parts that the files of all accounts of a server share."""

    disk: Disk
    root: str
    log: Log
    now_ns: Callable[[], int]
    open_files: OpenFiles
    logs: OpenLogs
    views: ViewCache
    key_ring: KeyRing | None = None  # None: new files are not encrypted
    removals: Removals | None = None  # None: files are removed immediately


class AccountFiles:
    """The stored streams of one account, in `<root>/<account>/streams`."""

    def __init__(self, stores: Stores, account: str, streams: str = "") -> None:
        self._stores = stores
        self._disk = stores.disk
        self._log = stores.log
        self._logs = stores.logs
        self._account = account
        self._streams = streams or streams_directory(stores.root, account)
        self._generations: dict[str, int] = {}  # directory of a stream -> generation of its metadata
        self._unread: set[str] = set()  # directories that could not be read, and remain unchanged
        self._damaged: list[str] = []  # paths of files that this or an earlier start has set aside
        # Directories of streams not opened for lack of descriptors or memory -> metadata; None: not read yet.
        self.postponed: dict[str, StreamConfig | None] = {}
        self.unrecovered: list[str] = []  # file names of streams that could not be opened
        self.offline: dict[str, Offline] = {}  # by stream: streams that a newer server wrote
        self.tails = TailIndexes(self._disk, self._streams, self._log)
        self._anchored = False  # the names of `_streams` and of the account's directory are durable
        self._hidden = 0  # number of directories hidden since the start
        self._rewrapped: set[str] = set()  # streams whose segments have an older copy of the metadata
        self._keys: dict[str, StreamKey] = {}  # directory of an encrypted stream -> its data key
        self._lists: dict[str, ListFile] = {}  # directory of a stream -> the list of its consumers
        # (directory of a stream, name of a consumer) -> directory of the consumer's state.
        self._states: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        """Close every file without writing."""
        self._logs.files.close_below(self._streams)

    def directory_of(self, stream: str) -> str:
        """Return the directory of a stream."""
        return f"{self._streams}/{file_name(stream)}"

    def damaged(self) -> list[str]:
        """Return the paths of the files that were set aside and still exist."""
        self._damaged = [path for path in dict.fromkeys(self._damaged) if self._disk.exists(path)]
        return self._damaged

    # -- streams -------------------------------------------------------------------------------------------

    def create(
        self, config: StreamConfig, created_ns: int, metadata: MetadataWriter, group: int = 0
    ) -> Generator[Step, None, StreamStore]:
        """Create the durable directory of a new stream or replica; return its empty store, or raise StoreFailed."""
        directory = self.directory_of(config.name)
        self._check_room(directory)
        self._forget(directory)
        if self._stores.key_ring is not None:
            self._keys[directory] = self._stores.key_ring.new_key()
        meta = self._encoded(directory, stream_values(config, created_ns, group))
        change = StreamCreation(directory, meta, self._anchored)
        try:
            yield from metadata.commit(change)
        except StoreFailed:
            self._forget(directory)
            raise
        finally:
            if change.aside:
                self._log.warn(f"  {directory} belonged to nothing and is set aside as {change.aside}")
        self._anchored = True
        try:
            store = self._new_store(directory, config, created_ns, group)
            for _ in store.recover_steps():
                pass
            self._complete(store, config, meta)
            return store
        except OSError as error:
            self._discard(directory)
            raise _failed(directory, error) from error

    def hidden_files(self) -> AccountFiles:
        """Return the files of a new temporary directory, for `adopt` or `drop_hidden`, or raise StoreFailed."""
        path = free_name(self._disk, f"{self._streams}/restore", DELETING, self._hidden)
        self._hidden += 1
        try:
            make_directory(self._disk, path)
        except OSError as error:
            raise _failed(path, error) from error
        return AccountFiles(self._stores, self._account, path)

    def drop_hidden(self, built: AccountFiles) -> None:
        """Remove the directory of `hidden_files` and the files left in it."""
        built.close()
        self.remove(built._streams)

    def adopt(self, built: AccountFiles, name: str, metadata: MetadataWriter) -> Generator[Step, None, None]:
        """Rename a stream that was built in hidden files to its final name; return when this is durable.

        Raise StoreFailed if unreadable files have this name, or if the new name may not be durable.
        """
        directory = self.directory_of(name)
        self._check_room(directory)
        built.close()
        self._forget(directory)
        try:
            if self._disk.exists(directory):
                self._log.warn(f"  {directory} belonged to nothing: {set_aside(self._disk, directory)}")
            self._disk.rename(built.directory_of(name), directory)
        except OSError as error:
            raise _failed(directory, error) from error
        yield from metadata.commit(NamesChange(self._streams))

    def give_up(self, name: str) -> None:
        """Remove the directory of a stream that could not be opened after `adopt`; log an error if this fails."""
        directory = self.directory_of(name)
        self._unread.discard(directory)
        self.postponed.pop(directory, None)
        self.unrecovered = [each for each in self.unrecovered if each != file_name(name)]
        try:
            self.remove(self._hide(directory))
        except OSError as error:
            self._log.error(f"  {directory} is incomplete and cannot be removed: {error}")

    def release(self, store: StreamStore) -> None:
        """Close the files of a store that is no longer used."""
        assert isinstance(store, FileStore)
        store.release()

    def change(
        self, config: StreamConfig, created_ns: int, store: StreamStore, metadata: MetadataWriter
    ) -> Generator[Step, None, None]:
        """Write a new configuration, and apply it when durable. After StoreFailed, the old one may remain."""
        directory = self.directory_of(config.name)
        values = stream_values(config, created_ns, store.group)
        change = StreamUpdate(directory, self._encoded(directory, values))
        yield from metadata.commit(change)
        self._configure(store, config, change.data)

    def save(self, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        """Write a stream's new configuration at once, and apply it. After StoreFailed, the old one may remain."""
        directory = self.directory_of(config.name)
        assert isinstance(store, FileStore)
        try:
            meta = self._save(directory, stream_values(config, created_ns, store.group))
        except OSError as error:
            raise _failed(directory, error) from error
        self._configure(store, config, meta)

    def _configure(self, store: StreamStore, config: StreamConfig, meta: bytes) -> None:
        """Apply an updated configuration to the store of an open stream."""
        assert isinstance(store, FileStore)
        store.writer.set_meta(meta)
        store.writer.segment_size, store.writer.seal_age_ns = segment_size(config), seal_age_ns(config)
        store.compactor.set_codec(codec(config))

    def open_purge(self, stream: str) -> PurgeFile:
        """Return the file in which a purge of a stream is recorded."""
        directory = self.directory_of(stream)
        return PurgeFile(self._disk, directory, self._key_of(directory), self._log)

    def hide(self, name: str) -> str:
        """Rename a stream's directory so that the next start ignores it; return the new path, for `remove_hidden`.

        Return "" if the directory does not exist. After StoreFailed, the next start may find the stream.
        """
        directory = self.directory_of(name)
        try:
            return self._hide(directory, sync=False)
        except OSError as error:
            raise _failed(directory, error) from error

    def remove_hidden(self, hidden: str, metadata: MetadataWriter) -> Generator[Step, None, None]:
        """Make the renaming by `hide` durable, then queue the removal.

        After StoreFailed, the next start may find the stream.
        """
        yield from metadata.commit(NamesChange(self._streams))
        self.remove(hidden)

    def remove(self, hidden: str) -> None:
        """Queue a hidden directory for removal, or remove it at once if there is no queue; log a failure.

        If the server stops before the removal is complete, the next start removes the rest.
        """
        try:
            if hidden and self._stores.removals is not None:
                self._stores.removals.add(hidden)
            elif hidden:
                self._disk.remove_tree(hidden)
        except OSError as error:
            self._log.warn(f"  {hidden} cannot be removed: {error}")

    def recover_steps(self) -> Iterator[tuple[StreamConfig, int, StreamStore] | None]:
        """Yield configuration, creation time in ns and store of every stream that can be opened.

        None is yielded after other steps.
        """
        for problem in finish_removals(self._disk, self._streams):
            self._log.warn(f"  {problem}")
        self.tails.load()
        for name in self._disk.list_dir(self._streams):
            if name.startswith("."):
                self._note_damaged(self._streams, name)
                continue
            directory = f"{self._streams}/{name}"
            values = self._load(directory)
            if values is None:
                yield None
            else:
                yield from self._open_stream(directory, values)

    def close_for_good(self, name: str) -> None:
        """Close the files of the stream `name`, which can be neither opened nor created before the next start."""
        directory = self.directory_of(name)
        self._logs.files.close_below(directory)
        self._unread.add(directory)
        self._note_unrecovered(directory, "Stream")

    def reopen_steps(self, name: str) -> Iterator[tuple[StreamConfig, int, StreamStore] | None]:
        """Recover the stream `name` alone, as `recover_steps` does; its store must have been released."""
        self._logs.files.close_below(self.directory_of(name))
        yield from self._recover_directory(self.directory_of(name))

    def recover_postponed_steps(self) -> Iterator[tuple[StreamConfig, int, StreamStore] | None]:
        """Recover the postponed streams, as `recover_steps` does; some may be postponed again."""
        for directory in list(self.postponed):
            yield from self._recover_directory(directory)

    def _recover_directory(self, directory: str) -> Iterator[tuple[StreamConfig, int, StreamStore] | None]:
        if directory in self.postponed:
            del self.postponed[directory]
            self._unread.discard(directory)
        values = self._load(directory)
        if values is not None:
            yield from self._open_stream(directory, values)

    def _open_stream(
        self, directory: str, values: dict[str, Any]
    ) -> Iterator[tuple[StreamConfig, int, StreamStore] | None]:
        """Open the store of a stream, in steps; after an error, which is logged, the stream stays closed."""
        started_ns = self._stores.now_ns()
        store: FileStore | None = None
        config: StreamConfig | None = None
        try:
            if (newer := offline_stream(values["config"])) is not None:
                _check_place(directory, newer.config.name)
                self.take_offline(newer)
                return
            config, created_ns = from_meta(StreamConfig, values["config"]), int(values["created_ns"])
            _check_place(directory, config.name)
            for subject in config.subjects:
                subject.encode()  # raises an error for an invalid name before any file is opened
            path = f"'{self._account} > {config.name}'"
            self._log.info(f"  Starting restore for stream {path}")
            meta = encode(KIND_STREAM, self._generations[directory], values, self._keys.get(directory))
            store = self._new_store(directory, config, created_ns, int(values.get("group", 0)))
            for _ in store.recover_steps():
                yield None
            self._complete(store, config, meta)
            # If the creation was interrupted by a kill, the names may not be synced.
            account = self._streams.rpartition("/")[0]
            above = (directory, self._streams, account, account.rpartition("/")[0])
            consumers = f"{directory}/{NAME}"
            store.files.names_above = (consumers, *above) if self._disk.exists(consumers) else above
            if directory in self._rewrapped:
                store.writer.start_over()
        except (PyjsError, *NONSENSE, OSError, MemoryError, RecursionError) as error:
            if store is not None:
                store.release()
            self._leave(directory, "Stream", error, config)
            return
        except GeneratorExit:  # the server stops during the recovery
            if store is not None:
                store.release()
            raise
        took_ms = (self._stores.now_ns() - started_ns) // 1_000_000
        self._log.info(f"  Restored {store.msgs:,} messages for stream {path} in {took_ms}ms")
        yield config, created_ns, store

    def take_offline(self, newer: Offline) -> None:
        """Record that a stored stream is offline, because this server cannot serve it; its files stay."""
        name = newer.config.name
        self.offline[name] = newer
        self._unread.add(self.directory_of(name))
        self._log.warn(f"  Detected unsupported stream '{self._account} > {name}': {newer.cause}")

    def hide_offline(self, name: str) -> str:
        """Hide an offline stream, which then no longer counts as stored; result and errors are those of `hide`."""
        hidden = self.hide(name)
        self._unread.discard(self.directory_of(name))
        del self.offline[name]
        return hidden

    def leave_stream(self, config: StreamConfig, store: StreamStore, error: Exception) -> None:
        """Close the store of a stream that cannot be served; its files stay."""
        assert isinstance(store, FileStore)
        store.release()
        self._leave(self.directory_of(config.name), "Stream", error, config)

    def _new_store(self, directory: str, config: StreamConfig, created_ns: int, group: int) -> FileStore:
        """Return a store for a directory that has not been read yet."""
        size, key = segment_size(config), self._keys.get(directory)
        return FileStore(
            self._disk,
            f"{directory}/msgs",
            self._log,
            size,
            created_ns,
            key,
            recovered=False,
            files=self._stores.open_files,
            stored_tail=self.tails.of(directory.rpartition("/")[2]),
            views=self._stores.views,
            replicated=group,
        )

    def _complete(self, store: FileStore, config: StreamConfig, meta: bytes) -> None:
        """Apply the stream's configuration to a store after its recovery."""
        self._damaged += store.set_aside
        store.writer.set_meta(meta)
        store.compactor.set_codec(codec(config))
        store.writer.seal_age_ns = seal_age_ns(config)

    def open_positions(self, stream: str) -> ConsumerStateFile:
        """Return the file with the positions of a stream's sources; create its directory, or raise StoreFailed."""
        directory = f"{self.directory_of(stream)}/sources"
        try:
            if not self._disk.exists(directory):
                make_directory(self._disk, directory)
        except OSError as error:
            raise _failed(directory, error) from error
        return ConsumerStateFile(self._disk, directory, self._logs, self._key_of(directory))

    def save_window(self, stream: str, parts: Iterable[dict[str, object]] | None) -> None:
        """Write the duplicate window of a closed stream.

        If `parts` is None, remove the file; the next start then reads the window from messages. Errors are logged.
        """
        path = f"{self.directory_of(stream)}/window"
        try:
            if parts is not None:
                write_parts(self._disk, path, parts, self._key_of(path))
            elif self._disk.exists(path):
                self._disk.unlink(path)
        except OSError as error:
            self._log.warn(f"  {path} is not kept, and read from messages at the next start: {error}")

    def load_window(self, stream: str) -> Iterator[dict[str, Any]]:
        """Yield the saved parts of a stream's duplicate window; yield nothing if there is no such file.

        Raises:
            PyjsError, OSError: a part is unreadable.
        """
        path = f"{self.directory_of(stream)}/window"
        key = self._key_of(path)
        if self._disk.exists(path):
            if key is not None and is_plain(self._disk, path):
                write_parts(self._disk, path, read_parts(self._disk, path, key), key)
            yield from read_parts(self._disk, path, key)

    # -- consumers -----------------------------------------------------------------------------------------

    def new_consumer(
        self, stream: str, name: str, config: ConsumerConfig, created_ns: int, state: bytes
    ) -> NewConsumer:
        """Return the change that creates a consumer with the state `state`; call `open_consumer` after its commit.

        Raises:
            StoreFailed: unreadable files have the name of the consumer.
        """
        file = self.list_of(stream)
        self._check_room(f"{file.directory}/{NAME}")
        self._check_room(f"{file.directory}/{NAME}/{file_name(name)}")
        return NewConsumer(file, name, created_ns, as_json(config), state)

    def open_consumer(self, stream: str, change: NewConsumer) -> StateFile:
        """Return the state file of a consumer that was created."""
        directory = change.directory
        if change.aside:
            self._log.warn(f"  {directory} belonged to nothing and is set aside as {change.aside}")
        self._states[self.directory_of(stream), change.name] = directory
        file = ConsumerStateFile(self._disk, directory, self._logs, self._key_of(directory), change.state)
        file.begun()
        return file

    def changed_consumer(
        self, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> ChangedConsumer:
        """Return the change that updates the configuration of a consumer."""
        return ChangedConsumer(self.list_of(stream), name, created_ns, as_json(config))

    def removed_consumer(self, stream: str, name: str) -> RemovedConsumer:
        """Close the files of a closed consumer, and return the change that removes them."""
        file = self.list_of(stream)
        directory = self._states.pop((file.directory, name), "")
        if directory:
            self._logs.files.close_below(directory)
        return RemovedConsumer(file, name)

    def list_of(self, stream: str) -> ListFile:
        """Return the list of a stream's consumers."""
        directory = self.directory_of(stream)
        if directory not in self._lists:
            self._lists[directory] = ListFile(directory, self._keys.get(directory))
        return self._lists[directory]

    def num_consumers(self, stream: str) -> int:
        """Return the number of a stream's stored consumers, including those with damaged files or list entries."""
        file = self.list_of(stream)
        names = self._disk.list_dir(f"{file.directory}/{NAME}")
        return len(file.live) + file.missing + sum(name.startswith(DAMAGED) for name in names)

    def recover_consumers(self, stream: str) -> Iterator[StoredConsumer]:
        """Yield the stored consumers of a stream, except unreadable ones, which are logged.

        Raises:
            NewerConsumer: a newer version wrote a consumer or the list of consumers.
            OSError: out of file descriptors or memory.
        """
        directory = self.directory_of(stream)
        file = self._lists[directory] = ListFile(directory, self._keys.get(directory))
        found = self._load_list(directory)
        if found is None:
            file.missing = 1
            return
        self._adopt_list(file, found)
        self._look_through(file, found)
        if found.live:
            count = len(found.live)
            self._log.info(f"  Recovering {count} consumers for stream - '{self._account} > {stream}'")
        for each in found.live.values():
            opened = self._open_consumer(directory, each)
            if opened is not None:
                yield opened

    def reopen_consumer(self, stream: str, name: str) -> StoredConsumer | None:
        """Return a stored consumer, or None if it is not listed or its files are unreadable.

        Unreadable files are logged.
        """
        file = self.list_of(stream)
        found = self._load_list(file.directory, file.ends)
        listed = None if found is None else found.live.get(name)
        return None if listed is None else self._open_consumer(file.directory, listed)

    def _load_list(self, directory: str, ends: tuple[int, int] | None = None) -> ConsumerList | None:
        """Return the list of a stream's consumers, or None if it is unreadable and must stay unchanged.

        Raises:
            NewerConsumer: a newer version wrote the list.
            OSError: out of file descriptors or memory.
        """
        try:
            return load_list(self._disk, directory, Opener(self._keys.get(directory)), ends)
        except (UnknownFormat, Locked, OSError) as error:
            if is_shortage(error):
                raise  # open the whole stream later: without one of its consumers, it might remove messages
            self._leave(f"{directory}/{NAME}", "List of consumers", error)
            if isinstance(error, UnknownFormat):
                raise newer_consumer("", error) from error
            return None

    def _adopt_list(self, file: ListFile, found: ConsumerList) -> None:
        """Log the damage of a list, and repair the list."""
        for first, last in found.gaps:
            self._log.error(
                f"  Entries {first} to {last} of {file.directory}/{NAME}.a and {NAME}.b are damaged:"
                " consumers may be missing, or be as they were before"
            )
        for problem in found.problems:
            self._log.warn(f"  {problem}; another copy is used")
        file.missing = len(found.gaps)
        try:
            file.adopt(self._disk, found)
        except OSError as error:
            self._log.warn(f"  {file.directory}/{NAME}.a and {NAME}.b are not rewritten: {error}")

    def _look_through(self, file: ListFile, found: ConsumerList) -> None:
        """Remove the files of deleted consumers, and log files that belong to no consumer."""
        parent, owners = f"{file.directory}/{NAME}", Owners(found)
        for name in self._disk.list_dir(parent):
            owner = owners.owner_of(name)
            if name.startswith("."):
                self._note_damaged(parent, name)
            elif owner == REMOVED:
                self.remove(f"{parent}/{name}")
            elif owner == UNKNOWN:
                file.missing += 1
                self._log.error(f"  {parent}/{name} belongs to no consumer of the list, and stays")

    def _open_consumer(self, stream: str, listed: Listed) -> StoredConsumer | None:
        name = listed.name
        directory = self._states[stream, name] = state_directory(stream, name, listed.ident)
        file = ConsumerStateFile(self._disk, directory, self._logs, self._key_of(directory), listed.state)
        try:
            config, created_ns = from_json(listed.config), listed.created_ns
            if problem := level_problem(config.metadata):
                raise NewerConsumer(name, problem)
            snapshot, deltas, problems = file.load()
        except NewerConsumer:
            raise
        except (CorruptRecord, FileNotFoundError) as error:
            return self._without_state(stream, listed, config, file, error)
        except (PyjsError, *NONSENSE, OSError) as error:
            if is_shortage(error):
                raise
            self._leave_consumer(stream, directory, name, error)
            if isinstance(error, UnknownFormat):
                raise newer_consumer(name, error) from error
            return None
        for problem in problems:
            self._log.warn(f"  {problem}")
        return StoredConsumer(name, config, created_ns, snapshot, tuple(deltas), tuple(problems), file)

    def _without_state(
        self, stream: str, listed: Listed, config: ConsumerConfig, file: ConsumerStateFile, problem: Exception
    ) -> StoredConsumer | None:
        """Set aside the damaged state of a consumer; return the consumer without state, or None if this fails."""
        try:
            self._damaged += file.set_aside()
        except OSError as error:
            self._leave_consumer(stream, self._states[stream, listed.name], listed.name, error)
            return None
        return StoredConsumer(listed.name, config, listed.created_ns, None, (), (str(problem),), file)

    def _leave_consumer(self, stream: str, directory: str, name: str, error: Exception) -> None:
        self._unread.add(f"{stream}/{NAME}/{file_name(name)}")
        self._leave(directory, "Consumer", error)

    # -- helpers -------------------------------------------------------------------------------------------

    def _save(self, directory: str, values: dict[str, Any]) -> bytes:
        """Write a stream's metadata; return the envelope."""
        data = self._encoded(directory, values)
        save_meta(self._disk, directory, "meta", data)
        return data

    def _encoded(self, directory: str, values: dict[str, Any]) -> bytes:
        """Return the envelope for new metadata of a stream."""
        generation = self._generations.get(directory, 0) + 1
        self._generations[directory] = generation  # not used again, even if the write fails
        return encode(KIND_STREAM, generation, values, self._key_of(directory))

    def _load(self, directory: str) -> dict[str, Any] | None:
        """Return a stream's metadata, or None if the metadata cannot be read, which is logged.

        The data key of the stream is stored, and damaged copies of the metadata are rewritten.
        """
        opener = Opener(key_ring=self._stores.key_ring)
        try:
            generation, values, problems = load_meta(self._disk, directory, "meta", KIND_STREAM, opener)
        except (FileNotFoundError, CorruptRecord) as error:
            try:
                if isinstance(error, FileNotFoundError) and self._is_empty(directory):
                    self._discard(directory)
                    return None
                found = self._from_segments(directory, error, opener)
            except (Locked, OSError) as failure:
                self._leave(directory, "Stream", failure)
                return None
            if found is None:
                self._set_aside(directory, "Stream", error)
                return None
            generation, values, problems = found
        except (UnknownFormat, Locked, OSError) as error:
            self._leave(directory, "Stream", error)
            return None
        self._generations[directory] = generation
        self._take_key(directory, opener)
        key = self._key_of(directory)
        if key is not None and opener.key is None and not self._seal(directory, values):
            return None
        unsealed = opener.saw_plain and opener.key is not None
        if problems or unsealed or opener.rotated:
            self._mend(directory, values, problems)
        return values

    def _seal(self, directory: str, values: dict[str, Any]) -> bool:
        """Write a stream's metadata with its new data key, before the key is used; return False if that failed."""
        try:
            self._save(directory, values)
        except OSError as error:
            self._leave(directory, "Stream", error)
            return False
        return True

    def _take_key(self, directory: str, opener: Opener) -> None:
        """Store the data key of a recovered stream; create a missing one if encryption is configured."""
        key = opener.key
        if key is None and self._stores.key_ring is not None:
            key = self._stores.key_ring.new_key()
            self._log.info(f"  {directory} is not encrypted: it will be now")
        if key is not None:
            self._keys[directory] = key
        if opener.rotated:
            self._log.info(f"  {directory} was opened with prev_key, and needs only key from now on")
        if key is not None and (opener.rotated or opener.saw_plain):
            self._rewrapped.add(directory)

    def _key_of(self, directory: str) -> StreamKey | None:
        """Return the data key of the stream that `directory` belongs to, or None if the stream is not encrypted."""
        return self._keys.get(self._stream_of(directory))

    def _stream_of(self, directory: str) -> str:
        """Return the directory of the stream that `directory` belongs to."""
        return f"{self._streams}/{directory.removeprefix(f'{self._streams}/').partition('/')[0]}"

    def _from_segments(
        self, directory: str, error: Exception, opener: Opener
    ) -> tuple[int, dict[str, Any], list[str]] | None:
        """Return generation, values and problems of the newest META record in a stream's segments.

        Return None if no segment has a META record that can be read.

        Raises:
            Locked: the record is encrypted, and the key is unknown.
            OSError: out of file descriptors or memory.
        """
        messages = f"{directory}/msgs"
        for name in sorted(self._disk.list_dir(messages), key=lambda each: (len(each), each), reverse=True):
            path = f"{messages}/{name}"
            try:
                meta = meta_in(self._disk, path, opener) if name.endswith(".seg") else b""
                if meta:
                    generation, values = decode(meta, KIND_STREAM, path, opener)
                    return generation, values, [f"{error}; {path} has the configuration as well"]
            except Locked:
                raise
            except (PyjsError, OSError) as unusable:
                if is_shortage(unusable):
                    raise
                self._log.warn(f"  {path} does not tell the configuration of its stream: {unusable}")
        return None

    def _mend(self, directory: str, values: dict[str, Any], problems: list[str]) -> None:
        """Log `problems`, and write both copies of the metadata of a stream again."""
        for problem in problems:
            self._log.warn(f"  {problem}; another copy is used")
        try:
            self._save(directory, values)
        except OSError as error:
            self._log.warn(f"  {directory} keeps one copy of its metadata: {error}")

    def _is_empty(self, directory: str) -> bool:
        """Return whether the directory of a stream is empty because its creation was interrupted."""
        names = set(self._disk.list_dir(directory)) - {"meta.tmp", "msgs", "consumers"}
        inside = [*self._disk.list_dir(f"{directory}/msgs"), *self._disk.list_dir(f"{directory}/consumers")]
        return not names and not inside

    def _discard(self, directory: str) -> None:
        """Remove the directory of a stream whose creation was not acknowledged."""
        self._log.warn(f"  {directory} was never begun and is removed")
        try:
            self.remove(self._hide(directory))
        except OSError as error:
            self._leave(directory, "Directory", error)

    def _set_aside(self, directory: str, what: str, error: Exception) -> None:
        try:
            aside = set_aside(self._disk, directory)
        except OSError as failure:
            self._leave(directory, what, failure)
            return
        self._damaged.append(aside)
        self._note_unrecovered(directory, what)
        self._log.error(f"  {what} in {directory} cannot be read and is set aside as {aside}: {error}")

    def _leave(self, directory: str, what: str, error: Exception, config: StreamConfig | None = None) -> None:
        self._unread.add(directory)
        self._note_unrecovered(directory, what)
        if what == "Stream" and isinstance(error, OSError) and is_shortage(error):
            self.postponed[directory] = config
            self._log.error(f"  {what} in {directory} is not open yet, and tried again: {error}")
            return
        self._log.error(f"  {what} in {directory} is not recovered, its files stay: {error}")

    def _note_damaged(self, parent: str, name: str) -> None:
        if name.startswith(DAMAGED):
            self._damaged.append(f"{parent}/{name}")

    def _note_unrecovered(self, directory: str, what: str) -> None:
        if what == "Stream":
            self.unrecovered.append(directory.rpartition("/")[2])

    def _check_room(self, directory: str) -> None:
        """Raise StoreFailed if the directory of a new stream or consumer has files that could not be recovered."""
        if directory in self._unread:
            raise StoreFailed(directory, "holds what could not be recovered: see the log, or move it away")

    def _hide(self, directory: str, sync: bool = True) -> str:
        """Rename a directory that will be removed; return its new path, or "" if it does not exist."""
        hidden = ""
        if self._disk.exists(directory):
            hidden = hide_directory(self._disk, directory, self._hidden, sync)
            self._hidden += 1
        self._forget(directory)
        return hidden

    def _forget(self, directory: str) -> None:
        self._logs.files.close_below(directory)
        self._keys.pop(directory, None)
        self._generations.pop(directory, None)
        file = self._lists.pop(directory, None)
        if file is not None:
            file.closed = True
            for name in file.live:
                self._states.pop((directory, name), None)


def _check_place(directory: str, name: str) -> None:
    if directory.rpartition("/")[2] != file_name(name):
        raise Unusable(f"it is of {name!r}, which belongs in {file_name(name)}; was it copied?")


def _failed(directory: str, error: OSError) -> StoreFailed:
    return StoreFailed(directory, error.strerror or str(error))
