"""The state of one consumer: a snapshot, and a log of what changed since.

A generation g is two files that begin with the same envelope of store/format/meta, which holds the snapshot:

    snap.<g> = envelope
    log.<g>  = envelope entry*          entry = size u32 | 0 u32 | checksum u64 | delta

little-endian. The checksum is XXH64 of size and delta with the checksum of the entry before as seed; the first
entry's seed is the envelope's checksum. So any one damaged byte leaves a whole snapshot, and an entry that does not
fit ends the log: applying what comes after it could move the acknowledged floor ahead, ending there only has
messages delivered again. The next generation is written whole before the files of the one before are removed.

The first snapshot may be kept elsewhere, durably, before there is a directory: `append` makes it then, and the first
generation, without a sync, and as long as none of its envelopes is whole that snapshot is the state.

With the data key of an encrypted stream the envelope is sealed, and so is each delta, for itself, under a key that
belongs to the generation. What is found plain then is written anew, sealed, by `load`.

Knows nothing of what snapshot and deltas mean.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

import xxhash

from pyjs.base.disk import Disk, write_file
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.vault import Sealer, StreamKey, WrongKey
from pyjs.store.format.layout import make_directory
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
FIRST = 1  # generation
NUMBER_DIGITS_MAX = 19  # of a generation, a u64
ASIDE = ".damaged-"  # before the name of a file that is no longer looked at
SEED_SIZE = 24  # the end of a sealed envelope, tag and checksum: no two are the same


@dataclass(frozen=True, slots=True)
class NextState:
    """A generation that somebody else writes: both files hold the envelope."""

    directory: str
    generation: int
    envelope: bytes
    replaced: tuple[str, ...]  # files of the generation before

    def path_of(self, kind: str) -> str:
        """Return where the file goes whose kind is "snap" or "log"."""
        return f"{self.directory}/{kind}.{self.generation}"


class OpenLogs:
    """Descriptors of the logs written last, since opening one costs four times a write, and what is to be synced."""

    def __init__(self, disk: Disk, files: OpenFiles | None = None, sync: LogSync | None = None) -> None:
        self.sync = sync or LogSync(disk)
        self.files = files or OpenFiles(disk)  # shared with the segments


class ConsumerStateFile:
    """Where one consumer's state is kept. `append` costs one small write."""

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
        self._first = first  # the first snapshot, which is durable elsewhere
        self._logs = logs or OpenLogs(disk)
        self._key = key
        self._sealer: Sealer | None = None  # of this generation's deltas
        self._generation = 0
        self._newest = 0  # generation that was handed out, and may have files if it failed
        self._start = 0  # of the log's entries, behind its envelope
        self._end = 0  # of the log
        self._chain = 0  # checksum of its last entry

    @property
    def deltas_size(self) -> int:
        """Return how many bytes of deltas are behind the snapshot."""
        return self._end - self._start

    @property
    def snapshot_size(self) -> int:
        """Return how many bytes the snapshot takes, 0: it is the first one."""
        return self._start

    def begun(self) -> None:
        """Stand behind the first snapshot; the first `append` or `snapshot` makes the directory."""
        assert self._first is not None, "it is kept elsewhere"
        self._generation = FIRST

    def append(self, delta: bytes) -> None:
        """Add one turn's changes behind the snapshot; they are on the medium after the next sync.

        Raises:
            OSError: they are not kept; the next call must be `snapshot` or `next_state`.
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
        """Have `done` called when everything appended so far is on the medium, with the error if it cannot be."""
        self._logs.sync.when_synced(self._path("log", self._generation), done)

    def snapshot(self, data: bytes) -> None:
        """Begin a new generation with `data`, on the medium at once, and remove the one before.

        Raises:
            OSError: the one before still holds everything that was appended, or the new one is whole.
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
        """Return a new generation with `data`, for a thread to write; then `took`, if it is durable.

        Until then nothing may be appended; afterwards neither, if it failed: `snapshot` comes next.
        """
        self._newest = max(self._newest, self._generation) + 1
        replaced = tuple(self._path(kind, self._generation) for kind in ("snap", "log"))
        envelope = encode(KIND_STATE, self._newest, {"state": data}, self._key)
        return NextState(self._directory, self._newest, envelope, replaced)

    def took(self, state: NextState) -> None:
        """Stand behind a new generation, which is durable; the one before is gone."""
        for path in state.replaced:
            self._logs.files.close(path)
            self._logs.sync.forget(path)
        self._logs.files.close(state.path_of("log"))
        self._stand_behind(state.generation, state.envelope)

    def _make_first(self) -> None:
        """Write both files of the first generation; the sync of the log syncs names as well.

        Raises:
            OSError: the first snapshot is still what counts.
        """
        assert self._first is not None, "a snapshot comes first"
        envelope = encode(KIND_STATE, FIRST, {"state": self._first}, self._key)
        self._disk.make_dirs(self._directory)
        write_file(self._disk, self._path("snap", FIRST), [envelope], sync=False)
        self._start_log(FIRST, envelope)
        self._stand_behind(FIRST, envelope)

    def _stand_behind(self, generation: int, envelope: bytes) -> None:
        """Let the next entry be the first one of the log of a generation."""
        self._generation = generation
        self._start = self._end = len(envelope)
        self._chain = _checksum_of(envelope)
        self._sealer = self._sealer_of(envelope)

    def _remove_others(self) -> None:
        """Remove the files of all generations but this one."""
        for number, kind in self._files():
            if number != self._generation:
                self._logs.files.close(self._path(kind, number))
                self._disk.unlink(self._path(kind, number))
                self._logs.sync.forget(self._path(kind, number))

    def load(self, *, seal: bool = True) -> tuple[bytes, list[bytes], list[str]]:
        """Return (snapshot, deltas, problems) of what is kept; without `seal` nothing is written.

        `append` goes on behind the deltas; when there were problems, `snapshot` should, so that they are over.

        Raises:
            CorruptRecord: no snapshot is whole.
            UnknownFormat: another version wrote it.
            Locked: it is sealed, and not with this key.
            FileNotFoundError: there is none.
            OSError: the disk does not give it.
        """
        numbers = sorted({number for number, _ in self._files()}, reverse=True)
        problems: list[Exception] = []
        for number in numbers:
            found = self._read_generation(number, problems)
            if found is not None:
                self._generation = numbers[0]  # a new one must not meet files of a damaged one
                if number == numbers[0] and not problems:  # else a new one is begun, synced
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
        """Give every file a name that is not looked at, so that `snapshot` begins anew; after `load`. Returns them.

        Raises:
            OSError: some keep their names.
        """
        for number, kind in self._files():
            self._logs.files.close(self._path(kind, number))
            self._disk.rename(self._path(kind, number), f"{self._directory}/{ASIDE}{kind}.{number}")
        return [f"{self._directory}/{ASIDE}{kind}.{number}" for number, kind in self._files(ASIDE)]

    # -- parts ---------------------------------------------------------------------------------------------

    def _seal(self, state: bytes, deltas: list[bytes]) -> None:
        """Write what was found plain anew, sealed: first the log, with all deltas or not at all."""
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
        """Return a delta as it stands in the log behind the entry with the checksum `chain`, and its checksum."""
        if self._sealer is not None:
            delta = self._sealer.seal(delta, b"")
        checksum: int = xxhash.xxh64_intdigest(len(delta).to_bytes(4, "little") + delta, chain)
        return ENTRY.pack(len(delta), 0, checksum) + delta, checksum

    def _sealer_of(self, envelope: bytes) -> Sealer | None:
        """Return what seals the deltas behind an envelope; None: they are plain."""
        if self._key is None or not is_sealed(envelope):
            return None
        return self._key.sealer(b"log" + envelope[-SEED_SIZE:])

    def _start_log(self, generation: int, envelope: bytes) -> None:
        path = self._path("log", generation)
        self._logs.files.close(path)
        write_file(self._disk, path, [envelope], sync=False)
        self._logs.sync.began(path)

    def _sync_names(self) -> None:
        """Make the names of the files durable, and the directory's own: nobody may have synced the first log."""
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._directory.rpartition("/")[0])

    def _is_first_torn(self, numbers: list[int]) -> bool:
        """Return whether the first generation was not durable yet when the server was killed."""
        paths = [self._path(kind, number) for number, kind in self._files()]
        return max(numbers, default=0) <= FIRST and all(is_torn(self._disk.read_file(path)) for path in paths)

    def _read_generation(self, number: int, problems: list[Exception]) -> tuple[bytes, list[bytes]] | None:
        """Return (snapshot, deltas) of one generation, None: neither of its files has the snapshot."""
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
            if error.errno != errno.EIO:  # a bad medium stays bad; a lack of descriptors ends
                raise
            problems.append(error)
            return None

    def _entries(self, number: int, envelope: bytes, log: bytes, problems: list[Exception]) -> list[bytes]:
        """Return the deltas of a log and stand at its end; what does not fit ends it."""
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

    def _files(self, prefix: str = "") -> list[tuple[int, str]]:
        """Return (generation, kind) of every file whose name has `prefix`."""
        found = []
        for name in self._disk.list_dir(self._directory):
            kind, _, number = name.removeprefix(prefix).partition(".")
            if (
                name.startswith(prefix)
                and kind in ("snap", "log")
                and number.isdecimal()
                and len(number) < NUMBER_DIGITS_MAX
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
