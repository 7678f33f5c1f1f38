"""Metadata files: a msgpack map in a checksummed envelope, kept twice.

    envelope = "PYJSMETA" | version u32 | body_size u32 | generation u64 | body (msgpack map) | XXH64 u64

little-endian; the checksum covers everything before it, with seed 0. `<name>.a` and `<name>.b` hold the same map; of
two valid copies the one with the higher generation counts. Each is written to a temporary file, synced, renamed and
its directory synced before the other is touched, so that one of them is whole at every moment.

Knows nothing of what the map means. docs/storage-format.md says the same for readers outside.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import xxhash

from pyjs.base.disk import Disk
from pyjs.base.errors import CorruptRecord

MAGIC = b"PYJSMETA"
VERSION = 1
HEADER = struct.Struct("<8sIIQ")
CHECKSUM = struct.Struct("<Q")
COPIES = ("a", "b")


def encode(generation: int, values: dict[str, Any]) -> bytes:
    """Return the envelope of `values`."""
    body: bytes = msgpack.packb(values)
    data = HEADER.pack(MAGIC, VERSION, len(body), generation) + body
    return data + CHECKSUM.pack(xxhash.xxh64_intdigest(data))


def decode(data: bytes, path: str) -> tuple[int, dict[str, Any]]:
    """Return (generation, values) of an envelope.

    Raises:
        CorruptRecord: it is not what was written, or a newer version wrote it.
    """
    if len(data) < HEADER.size + CHECKSUM.size:
        raise CorruptRecord(path, 0, f"{len(data)} bytes are no metadata")
    magic, version, size, generation = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptRecord(path, 0, "it does not begin as metadata does")
    end = HEADER.size + size
    if len(data) != end + CHECKSUM.size:
        raise CorruptRecord(path, 12, f"{len(data)} bytes where {end + CHECKSUM.size} were written")
    if CHECKSUM.unpack_from(data, end)[0] != xxhash.xxh64_intdigest(data[:end]):
        raise CorruptRecord(path, end, "its checksum does not fit")
    if version > VERSION:
        raise CorruptRecord(path, 8, f"format {version} needs a newer pyjs-server")
    values = msgpack.unpackb(data[HEADER.size : end], strict_map_key=False)
    if not isinstance(values, dict):
        raise CorruptRecord(path, HEADER.size, "its body is no map")
    return generation, values


def save_meta(disk: Disk, directory: str, name: str, values: dict[str, Any], generation: int) -> None:
    """Write both copies of `<directory>/<name>`; `generation` must be higher than that of what is there.

    Raises:
        OSError: the old map, or a copy of the new one, is still whole.
    """
    data = encode(generation, values)
    for copy in COPIES:
        path = f"{directory}/{name}.{copy}"
        write_whole(disk, path, data)
        disk.sync_dir(directory)


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` in place of what is at `path`, in one step; the name is safe after sync_dir."""
    temporary = f"{path}.tmp"
    fd = disk.open_file(temporary, create=True)
    try:
        disk.truncate(fd, 0)
        disk.write_at(fd, data, 0)
        disk.sync_file(fd)
    finally:
        disk.close_file(fd)
    disk.rename(temporary, path)


def load_meta(disk: Disk, directory: str, name: str) -> tuple[int, dict[str, Any], list[str]]:
    """Return (generation, values, problems) of the newest whole copy; a problem tells of a damaged one.

    Raises:
        CorruptRecord: no copy is whole.
        FileNotFoundError: there is none at all.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    problems: list[CorruptRecord] = []
    missing = 0
    for copy in COPIES:
        path = f"{directory}/{name}.{copy}"
        try:
            found.append(decode(disk.read_file(path), path))
        except FileNotFoundError:
            missing += 1
        except (CorruptRecord, ValueError, msgpack.UnpackException) as error:
            problems.append(error if isinstance(error, CorruptRecord) else CorruptRecord(path, 0, str(error)))
    if found:
        generation, values = max(found, key=lambda each: each[0])
        return generation, values, [str(problem) for problem in problems]
    if problems:
        raise problems[0]
    assert missing == len(COPIES)
    raise FileNotFoundError(f"{directory}/{name}.a")
