"""The state of one consumer: a snapshot, and a log of what changed since.

A generation is `snap.<g>` (an envelope of store/meta with the bytes of the snapshot) and `log.<g>`:

    log = entry*        entry = size u32 | 0 u32 | checksum u64 | delta

The checksum is XXH64 of size and delta with the checksum of the entry before as seed; the first entry's seed is the
generation. An entry that does not fit ends the log: the last write was cut short. A new snapshot starts the next
generation and the one before is kept, because its snapshot and log together say the same: when a snapshot is
damaged, nothing is lost and the acknowledged floor never moves ahead.

Knows nothing of what snapshot and deltas mean.
"""

from __future__ import annotations

import struct

import xxhash

from pyjs.base.disk import Disk
from pyjs.base.errors import CorruptRecord
from pyjs.store.meta import decode, encode, write_whole

ENTRY = struct.Struct("<IIQ")


class ConsumerStateFile:
    """Where one consumer's state is kept. `append` costs one small write."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._generation = 0
        self._end = 0  # of the log
        self._chain = 0  # checksum of its last entry

    @property
    def deltas_size(self) -> int:
        """Return how many bytes of deltas are behind the snapshot."""
        return self._end

    def append(self, delta: bytes) -> None:
        """Add one turn's changes behind the snapshot.

        Raises:
            OSError: they are not kept; the log ends as before.
        """
        size = len(delta).to_bytes(4, "little")
        checksum = xxhash.xxh64_intdigest(size + delta, self._chain)
        data = ENTRY.pack(len(delta), 0, checksum) + delta
        fd = self._disk.open_file(self._path("log", self._generation), create=True)
        try:
            self._disk.write_at(fd, data, self._end)
        finally:
            self._disk.close_file(fd)
        self._end += len(data)
        self._chain = checksum

    def snapshot(self, data: bytes) -> None:
        """Begin a new generation with `data`; the one before the last is removed.

        Raises:
            OSError: the generation before still holds everything.
        """
        generation = self._generation + 1
        write_whole(self._disk, self._path("snap", generation), encode(generation, {"state": data}))
        self._disk.sync_dir(self._directory)
        self._generation, self._end, self._chain = generation, 0, generation
        for number, kind in self._files():
            if number < generation - 1:
                self._disk.unlink(self._path(kind, number))

    def load(self) -> tuple[bytes, list[bytes], list[str]]:
        """Return (snapshot, deltas, problems) of what is kept; append and snapshot go on behind it.

        Raises:
            CorruptRecord: no snapshot is whole.
            FileNotFoundError: there is none.
        """
        numbers = sorted({number for number, kind in self._files() if kind == "snap"}, reverse=True)
        problems: list[str] = []
        for number in numbers:
            path = self._path("snap", number)
            try:
                _, values = decode(self._disk.read_file(path), path)
                state = values["state"]
            except (CorruptRecord, ValueError, KeyError) as error:
                problems.append(str(error))
                continue
            deltas = []
            for later in range(number, numbers[0] + 1):
                deltas += self._read_log(later, problems)
            return bytes(state), deltas, problems
        if problems:
            raise CorruptRecord(self._directory, 0, "; ".join(problems))
        raise FileNotFoundError(f"{self._directory}/snap.*")

    def _read_log(self, number: int, problems: list[str]) -> list[bytes]:
        """Return the deltas of one generation and stand at its end; a cut last write is cut off."""
        path = self._path("log", number)
        data = self._disk.read_file(path) if self._disk.exists(path) else b""
        at, chain, deltas = 0, number, []
        while at + ENTRY.size <= len(data):
            size, spare, checksum = ENTRY.unpack_from(data, at)
            delta = data[at + ENTRY.size : at + ENTRY.size + size]
            fits = len(delta) == size and not spare
            if not fits or checksum != xxhash.xxh64_intdigest(size.to_bytes(4, "little") + delta, chain):
                break
            deltas.append(delta)
            at += ENTRY.size + size
            chain = checksum
        if at < len(data):
            problems.append(f"{path} at {at}: {len(data) - at} bytes of an incomplete write are cut off")
            fd = self._disk.open_file(path)
            try:
                self._disk.truncate(fd, at)
            finally:
                self._disk.close_file(fd)
        self._generation, self._end, self._chain = number, at, chain
        return deltas

    def _path(self, kind: str, number: int) -> str:
        return f"{self._directory}/{kind}.{number}"

    def _files(self) -> list[tuple[int, str]]:
        """Return (generation, kind) of every file."""
        found = []
        for name in self._disk.list_dir(self._directory):
            kind, _, number = name.partition(".")
            if kind in ("snap", "log") and number.isdigit():
                found.append((int(number), kind))
        return found
