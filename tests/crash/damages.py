"""Damages to one file of a store, all of them or a sample, and the messages that each may destroy.

A message may only be lost if a byte of its own record changed or is missing. If neither a sealed segment nor an index
file proves that a record was complete, it may be an unfinished write: if the end of an open segment is cut after a
kill, the two cannot be told apart. `is_cut` recognizes such damages.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
GARBAGE_SIZE = 700
SPARSE_STEP = 61  # in large payloads, the distance between damaged bytes; elsewhere every byte is damaged
SMALL = 20_000  # a segment of at most this many bytes has no large payloads
DENSE_START = 1500  # header, metadata and the first records
DENSE_END = 700  # the number of bytes at the end of a sealed segment that count as its tail records
DENSE_TAIL = 5000  # the same for the last segment
MSG, FOOTER = 1, 4


@dataclass(frozen=True)
class File:
    """One file of a store that is not in use."""

    path: str
    data: bytes  # without the zeros that are reserved after it
    size: int


@dataclass(frozen=True)
class Damage:
    """A change to one file: flip (bit `bit` at `at`), cut, zeros, garbage (after `at`), or remove."""

    path: str
    kind: str
    at: int = 0
    bit: int = 0

    def __str__(self) -> str:
        where = f" at {self.at}" if self.kind != "remove" else ""
        return f"{self.kind}{where}{f' bit {self.bit}' if self.kind == 'flip' else ''} of {self.path}"


class Tree:
    """The files of a store directory that is not in use, in memory."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, File] = {}
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.name != ".lock":
                data = path.read_bytes()
                name = path.relative_to(root).as_posix()
                self.files[name] = File(
                    name, data.rstrip(b"\0") if name.endswith(".seg") else data, len(data)
                )
        self.records = {name: list(_records(file)) for name, file in self.files.items()}

    def write(self, root: Path, damages: tuple[Damage, ...] = ()) -> None:
        """Write the files, with the damages applied, to the empty directory `root`."""
        hit: dict[str, list[Damage]] = {}
        for damage in damages:
            hit.setdefault(damage.path, []).append(damage)
        for name, file in self.files.items():
            path = root / name
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            data: bytes | None = file.data
            if name in hit:
                data = file.data.ljust(file.size, b"\0")
                for damage in hit[name]:
                    data = _damaged(data, damage) if data is not None else None
            if data is None:
                continue
            with path.open("wb") as out:
                out.write(data)
                if name not in hit and len(data) < file.size:
                    out.truncate(file.size)

    def hit_seqs(self, damage: Damage) -> tuple[str, set[int]]:
        """Return (stream, sequences whose records `damage` touches)."""
        stream = damage.path.split("/streams/")[1].split("/")[0] if "/streams/" in damage.path else ""
        start, end = _range_of(damage, self.files[damage.path])
        return stream, {seq for first, last, seq in self.records[damage.path] if first < end and start < last}

    def is_cut(self, damages: tuple[Damage, ...]) -> bool:
        """Return whether a damaged file looks like an unfinished write, and no index file shows that it is not."""
        touched = {damage.path for damage in damages}
        return any(
            damage.kind in ("cut", "zeros", "remove") and self._has_no_witness(damage.path, touched)
            for damage in damages
        )

    def _has_no_witness(self, name: str, touched: set[str]) -> bool:
        """Return whether no index file describes the segment: it is the last one, or its index file is damaged."""
        index = name[:-3] + "idx"
        if not name.endswith(".seg") or (index in self.files and index not in touched):
            return False
        return name == max(self.siblings(name)) or index in touched

    def siblings(self, name: str) -> list[str]:
        """Return the files of the same kind in the same directory."""
        kind = name[-4:]
        return [each for each in self.files if each.endswith(kind) and _folder(each) == _folder(name)]


def all_damages(tree: Tree) -> Iterator[Damage]:
    """Yield every damage of the matrix."""
    for name, file in tree.files.items():
        yield Damage(name, "remove")
        yield Damage(name, "garbage", len(file.data))
        if file.size > len(file.data):
            yield Damage(name, "garbage", file.size)
        for at in range(0, len(file.data), SECTOR):
            yield Damage(name, "zeros", at)
        for at in _places(name, file, tree):
            yield Damage(name, "cut", at)
            for bit in range(8):
                yield Damage(name, "flip", at, bit)


def sampled(tree: Tree, rng: random.Random, count: int) -> Iterator[Damage]:
    """Yield `count` damages; a third of them affect whole sectors or files."""
    names = list(tree.files)
    for number in range(count):
        file = tree.files[rng.choice(names)]
        kind = rng.choice(("zeros", "garbage", "remove", "cut")) if number % 3 == 0 else "flip"
        at = rng.randrange(max(1, len(file.data)))
        if kind == "garbage":
            at = len(file.data)
        elif kind == "zeros":
            at -= at % SECTOR
        yield Damage(
            file.path, kind, 0 if kind == "remove" else at, rng.randrange(8) if kind == "flip" else 0
        )


def _places(name: str, file: File, tree: Tree) -> Iterator[int]:
    """Yield each offset to damage: all bytes, but only some in the middle of a segment with large payloads."""
    end = len(file.data) - (DENSE_TAIL if name == max(tree.siblings(name)) else DENSE_END)
    for at in range(len(file.data)):
        is_payload = name.endswith(".seg") and len(file.data) > SMALL and DENSE_START < at < end
        if not is_payload or at % SPARSE_STEP == 0:
            yield at


def _range_of(damage: Damage, file: File) -> tuple[int, int]:
    """Return the range of bytes that changed."""
    if damage.kind == "remove":
        return 0, file.size
    if damage.kind == "garbage":
        return damage.at, damage.at
    if damage.kind == "cut":
        return damage.at, file.size
    return damage.at, damage.at + (SECTOR if damage.kind == "zeros" else 1)


def _damaged(data: bytes, damage: Damage) -> bytes | None:
    at = damage.at
    if damage.kind == "remove":
        return None
    if damage.kind == "cut":
        return data[:at]
    if damage.kind == "garbage":
        garbage = random.Random(at).randbytes(GARBAGE_SIZE)
        return data[:at] + garbage + data[at + GARBAGE_SIZE :]
    if damage.kind == "zeros":
        end = max(at, min(at + SECTOR, len(data)))  # an earlier damage may have cut the file
        return data[:at] + bytes(end - at) + data[end:]
    return data[:at] + bytes([data[at] ^ 1 << damage.bit]) + data[at + 1 :]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _records(file: File) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, seq) of the messages in a segment of this server or a block of nats-server."""
    data = file.data
    if file.path.endswith(".seg"):
        at = 64
        while at + 32 <= len(data) and (length := int.from_bytes(data[at : at + 4], "little")):
            if data[at + 4] == MSG:
                yield at, at + length, int.from_bytes(data[at + 8 : at + 16], "little")
            at += length
    elif file.path.endswith(".blk"):
        at = 0
        while at + 22 <= len(data):
            length, seq = struct.unpack_from("<IQ", data, at)
            length &= 0x7FFFFFFF
            if length == 0:
                return
            if seq < 1 << 62:  # the two top bits mark removals
                yield at, at + length, seq
            at += length
