"""The state of one consumer: a snapshot, and a log of the changes since the snapshot.

Two files form a generation g; both begin with the same envelope of store/format/meta, which has the
snapshot:

    snap.<g> = envelope
    log.<g>  = envelope entry*          entry = size u32 | 0 u32 | checksum u64 | delta

Numbers are little-endian. The checksum is XXH64 of size and delta, seeded with the previous entry's checksum, or with
the envelope's checksum for the first entry. Because there are two envelopes, one damaged byte always leaves an
intact snapshot. The log ends at the first entry with a wrong checksum: applying later entries could move the
ack floor too far, while ignoring them only causes redeliveries. A new generation is complete before the files
of the old one are removed.

The first snapshot may be durable in the list of consumers before the directory exists. `append` then
creates the directory and the first generation, without a sync. As long as no envelope of the first generation is
intact, the snapshot in the list is the state.

In an encrypted stream the envelope is encrypted with the data key, and each delta with a key of the generation.
`load` rewrites plain files in encrypted form.

This module knows nothing of the meaning of snapshot and deltas.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

import xxhash

from pyjs.base.disk import Disk, write_file
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import Sealer, StreamKey, WrongKey
from pyjs.store.format.layout import UNSYNCED, make_directory
from pyjs.store.format.lost_sync import forget_lost_sync, write_again
from pyjs.store.format.meta import (
    CHECKSUM,
    KIND_STATE,
    Opener,
    decode,
    encode,
    envelope_size,
    is_sealed,
    is_torn,
    write_whole,
)
from pyjs.store.open_files import OpenFiles
from pyjs.store.state.log_sync import Done, LogSync

ENTRY = struct.Struct("<IIQ")
FIRST = 1  # number of the first generation
NUMBER_DIGITS_MAX = 19  # digits of a generation in a file name; such a number fits in a u64
ASIDE = ".damaged-"  # prefix for files that no server reads any more
SEED_SIZE = 24  # bytes at the end of an encrypted envelope (tag and checksum), unique to each envelope


class NextState(NamedTuple):
    """A new generation, which the caller must write; both files begin with the envelope."""

    directory: str
    generation: int
    envelope: bytes
    replaced: tuple[str, ...]  # paths of the files of the previous generation

    def path_of(self, kind: str) -> str:
        """Return the path of the file of kind "snap" or "log"."""
        return f"{self.directory}/{kind}.{self.generation}"


class OpenLogs:
    """The open files and the syncs of consumer logs."""

    def __init__(self, disk: Disk, files: OpenFiles | None = None, sync: LogSync | None = None) -> None:
        self.sync = sync or LogSync(disk)
        self.files = files or OpenFiles(disk)  # shared with the segments


class ConsumerStateFile:
    """The files of one consumer's state: a snapshot, and a log of the changes since then."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        logs: OpenLogs | None = None,
        key: StreamKey | None = None,
        first: bytes | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._first = first  # the first snapshot, if it is durable in the list of consumers
        self._logs = logs or OpenLogs(disk)
        self._key = key
        self._sealer: Sealer | None = None  # encrypts the deltas of this generation
        self._generation = 0
        self._newest = 0  # highest generation so far; some of its files may exist even if writing it failed
        self._start = 0  # offset of the log's first entry, after its envelope
        self._end = 0  # size of the log; _start <= _end
        self._chain = 0  # checksum of the last entry

    @property
    def deltas_size(self) -> int:
        """The size in bytes of the log entries since the snapshot."""
        return self._end - self._start

    @property
    def snapshot_size(self) -> int:
        """The size in bytes of the snapshot's envelope, or 0 while no generation is written."""
        return self._start

    def begun(self) -> None:
        """Continue after the first snapshot; the next `append` or `snapshot` creates the directory."""
        assert self._first is not None, "it is kept elsewhere"
        self._generation = FIRST

    def append(self, delta: bytes) -> None:
        """Append the changes of one turn to the log; they are durable after the next sync.

        Raises:
            OSError: the delta was not written; call `snapshot` or `next_state` next.
        """
        if not self._start:
            self._make_first()
        path = self._path("log", self._generation)
        if self._logs.sync.is_lost(path):
            raise OSError(errno.EIO, "what was written before could not be synced", path)
        data, checksum = self._entry(delta, self._chain)
        self._disk.write_at(self._logs.files.open(path), data, self._end)
        self._logs.sync.wrote(path)
        self._end += len(data)
        self._chain = checksum

    def when_synced(self, done: Done) -> None:
        """Call `done` with None when everything appended so far is durable, or with the error of a failed sync."""
        self._logs.sync.when_synced(self._path("log", self._generation), done)

    def snapshot(self, data: bytes) -> None:
        """Begin a new generation with `data`, and remove the previous one; `data` is durable on return.

        Raises:
            OSError: a write failed; the stored state is the old one or `data`.
        """
        generation = max(self._newest, self._generation) + 1
        envelope = encode(KIND_STATE, generation, {"state": data}, self._key)
        if not self._disk.exists(self._directory):
            make_directory(self._disk, self._directory)
        write_whole(self._disk, f"{self._directory}/snap.tmp", self._path("snap", generation), envelope)
        self._sync_names()
        self._start_log(generation, envelope)
        self._stand_behind(generation, envelope)
        self._remove_others()

    def next_state(self, data: bytes) -> NextState:
        """Return a new generation with `data`, which a thread must write; call `took` when it is durable.

        Until then, do not call `append`. If writing fails, call `snapshot` next.
        """
        self._newest = max(self._newest, self._generation) + 1
        replaced = tuple(self._path(kind, self._generation) for kind in ("snap", "log"))
        envelope = encode(KIND_STATE, self._newest, {"state": data}, self._key)
        return NextState(self._directory, self._newest, envelope, replaced)

    def took(self, state: NextState) -> None:
        """Continue with the new generation `state`, which must be durable; close the files that it replaced."""
        for path in state.replaced:
            self._logs.files.close(path)
            self._logs.sync.forget(path)
        self._logs.files.close(state.path_of("log"))
        self._stand_behind(state.generation, state.envelope)

    def _make_first(self) -> None:
        """Write both files of the first generation; the sync of the log also syncs their names.

        Raises:
            OSError: a write failed; the first snapshot is still the state.
        """
        assert self._first is not None, "a snapshot comes first"
        envelope = encode(KIND_STATE, FIRST, {"state": self._first}, self._key)
        self._disk.make_dirs(self._directory)
        write_file(self._disk, self._path("snap", FIRST), [envelope], sync=False)
        self._start_log(FIRST, envelope)
        self._stand_behind(FIRST, envelope)

    def _stand_behind(self, generation: int, envelope: bytes) -> None:
        """Continue with the given generation, whose log is empty after `envelope`."""
        self._generation = generation
        self._start = self._end = len(envelope)
        self._chain = _checksum_of(envelope)
        self._sealer = self._sealer_of(envelope)

    def _remove_others(self) -> None:
        """Remove the files of all other generations."""
        names = self._disk.list_dir(self._directory)
        for number, kind in self._files(names=names):
            if number != self._generation:
                self._logs.files.close(self._path(kind, number))
                self._disk.unlink(self._path(kind, number))
                self._logs.sync.forget(self._path(kind, number))
        if UNSYNCED in names:
            forget_lost_sync(self._disk, self._directory)

    def load(self, *, seal: bool = True) -> tuple[bytes, list[bytes], list[str]]:
        """Return (snapshot, deltas, problems) of the stored state.

        Plain files of an encrypted stream are rewritten in encrypted form, unless `seal` is False.

        `append` continues after the deltas. If there are problems, the caller should call `snapshot`, which replaces
        the damaged files.

        Raises:
            CorruptRecord: no snapshot is intact.
            UnknownFormat: another version wrote the files.
            Locked: another key encrypted the files.
            FileNotFoundError: there are no files.
            OSError: the files cannot be read.
        """
        names = self._disk.list_dir(self._directory)
        numbers = sorted({number for number, _ in self._files(names=names)}, reverse=True)
        problems: list[Exception] = []
        for number in numbers:
            found = self._read_generation(number, problems)
            if found is not None:
                self._generation = numbers[0]  # a new generation must not use the names of a damaged one
                # otherwise the caller begins a new generation, which is synced
                if seal and UNSYNCED in names:
                    self._write_again(number, problems)
                if number == numbers[0] and not problems:
                    self._logs.sync.adopted(self._path("log", number), bool(found[1]))
                if seal and self._key is not None and self._sealer is None:
                    self._seal(*found)
                return found[0], found[1], [str(problem) for problem in problems]
        aside = [number for number, _ in self._files(ASIDE)]
        if self._first is not None and not aside and self._is_first_torn(numbers):
            self.begun()
            return self._first, [], []
        self._generation = max([*numbers, *aside], default=0)
        if aside and not numbers:
            raise CorruptRecord(self._directory, 0, "its damaged files are set aside")
        if not numbers:
            raise FileNotFoundError(f"{self._directory}/snap.*")
        for problem in problems:
            if isinstance(problem, OSError):
                raise problem
        raise CorruptRecord(self._directory, 0, "; ".join(map(str, problems)))

    def set_aside(self) -> list[str]:
        """Rename every file to a name that no server reads; return the new paths. Call `snapshot` next.

        Raises:
            OSError: some files were not renamed.
        """
        for number, kind in self._files():
            self._logs.files.close(self._path(kind, number))
            self._disk.rename(self._path(kind, number), f"{self._directory}/{ASIDE}{kind}.{number}")
        return [f"{self._directory}/{ASIDE}{kind}.{number}" for number, kind in self._files(ASIDE)]

    # -- parts ---------------------------------------------------------------------------------------------

    def _write_again(self, number: int, problems: list[Exception]) -> None:
        """Write a log again whose sync failed in an earlier process, so that the next sync covers it."""
        try:
            write_again(self._disk, self._path("log", number))
        except OSError as error:
            problems.append(error)

    def _seal(self, state: bytes, deltas: list[bytes]) -> None:
        """Replace plain files with an encrypted generation; write the log with all its deltas before the snapshot."""
        generation = self._generation + 1
        envelope = encode(KIND_STATE, generation, {"state": state}, self._key)
        self._sealer = self._sealer_of(envelope)
        log, chain = envelope, _checksum_of(envelope)
        for delta in deltas:
            entry, chain = self._entry(delta, chain)
            log += entry
        for kind, data in (("log", log), ("snap", envelope)):
            path = self._path(kind, generation)
            self._logs.files.close(path)
            write_whole(self._disk, f"{self._directory}/snap.tmp", path, data)
            self._sync_names()
        self._generation = generation
        self._start, self._end, self._chain = len(envelope), len(log), chain
        self._remove_others()

    def _entry(self, delta: bytes, chain: int) -> tuple[bytes, int]:
        """Return the log entry for a delta, and its checksum; `chain` is the checksum of the previous entry."""
        if self._sealer is not None:
            delta = self._sealer.seal(delta, b"")
        checksum: int = xxhash.xxh64_intdigest(len(delta).to_bytes(4, "little") + delta, chain)
        return ENTRY.pack(len(delta), 0, checksum) + delta, checksum

    def _sealer_of(self, envelope: bytes) -> Sealer | None:
        """Return the cipher for the deltas that follow `envelope`, or None if they are not encrypted."""
        if self._key is None or not is_sealed(envelope):
            return None
        return self._key.sealer(b"log" + envelope[-SEED_SIZE:])

    def _start_log(self, generation: int, envelope: bytes) -> None:
        path = self._path("log", generation)
        self._logs.files.close(path)
        write_file(self._disk, path, [envelope], sync=False)
        self._logs.sync.began(path)

    def _sync_names(self) -> None:
        """Make the names of the files and of their directory durable."""
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._directory.rpartition("/")[0])

    def _is_first_torn(self, numbers: list[int]) -> bool:
        """Return whether all files are torn and none is of a later generation than the first."""
        paths = [self._path(kind, number) for number, kind in self._files()]
        return max(numbers, default=0) <= FIRST and all(is_torn(self._disk.read_file(path)) for path in paths)

    def _read_generation(self, number: int, problems: list[Exception]) -> tuple[bytes, list[bytes]] | None:
        """Return (snapshot, deltas) of one generation, or None if neither of its two files has an intact snapshot."""
        log = self._read(self._path("log", number), problems)
        envelope = state = None
        for path, data in (
            (self._path("snap", number), self._read(self._path("snap", number), problems)),
            (self._path("log", number), None if log is None else log[: envelope_size(log)]),
        ):
            try:
                found = None if data is None else _snapshot_in(data, number, path, Opener(self._key))
            except CorruptRecord as error:
                problems.append(error)
                continue
            if found is not None and state is None:
                envelope, state = data, found
        if envelope is None or state is None:
            return None
        return state, self._entries(number, envelope, log or b"", problems)

    def _read(self, path: str, problems: list[Exception]) -> bytes | None:
        if not self._disk.exists(path):
            problems.append(CorruptRecord(path, 0, "it is missing"))
            return None
        try:
            return self._disk.read_file(path)
        except OSError as error:
            if error.errno != errno.EIO:  # EIO is permanent, a lack of descriptors is not
                raise
            problems.append(error)
            return None

    def _entries(self, number: int, envelope: bytes, log: bytes, problems: list[Exception]) -> list[bytes]:
        """Return the deltas of a log up to the first entry with a wrong checksum; later appends continue there."""
        at, chain, deltas = len(envelope), _checksum_of(envelope), []
        self._sealer = sealer = self._sealer_of(envelope)
        while at + ENTRY.size <= len(log):
            size, spare, checksum = ENTRY.unpack_from(log, at)
            delta = log[at + ENTRY.size : at + ENTRY.size + size]
            if spare or len(delta) != size:
                break
            if checksum != xxhash.xxh64_intdigest(log[at : at + 4] + delta, chain):
                break
            try:
                deltas.append(delta if sealer is None else sealer.open(delta, b""))
            except WrongKey:
                break
            at += ENTRY.size + size
            chain = checksum
        if at < len(log):
            reason = f"the last {len(log) - at} bytes do not fit and are not used"
            problems.append(CorruptRecord(self._path("log", number), at, reason))
        self._start, self._end, self._chain = len(envelope), at, chain
        return deltas

    def _path(self, kind: str, number: int) -> str:
        return f"{self._directory}/{kind}.{number}"

    def _files(self, prefix: str = "", names: list[str] | None = None) -> list[tuple[int, str]]:
        """Return (generation, kind) of every snapshot and log file whose name starts with `prefix`.

        `names` are all names in the directory; None: read them.
        """
        found = []
        for name in self._disk.list_dir(self._directory) if names is None else names:
            kind, _, number = name.removeprefix(prefix).partition(".")
            if (
                name.startswith(prefix)
                and kind in ("snap", "log")
                and number.isdecimal()
                and len(number) <= NUMBER_DIGITS_MAX
            ):
                found.append((int(number), kind))
        return found


def _snapshot_in(envelope: bytes, number: int, path: str, opener: Opener) -> bytes:
    generation, values = decode(envelope, KIND_STATE, path, opener)
    state = values.get("state")
    if generation != number or not isinstance(state, bytes):
        raise CorruptRecord(path, 0, f"it holds no snapshot of generation {number}")
    return state


def _checksum_of(envelope: bytes) -> int:
    checksum: int = CHECKSUM.unpack(envelope[-CHECKSUM.size :])[0]
    return checksum
