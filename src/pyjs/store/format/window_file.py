"""The file of a duplicate window, in parts; a clean stop writes the message ids of the window to it.

Only one part is in memory at a time. A part is an envelope of store/format/meta whose generation is the number of
the part. The file only makes a start faster: if a part is missing or damaged, the ids are read from the messages.
docs/storage-format.md describes the format for other programs.

This module knows nothing of the stream or of the meaning of an id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import Disk, closing, write_file
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.format.meta import FRAME_SIZE, KIND_WINDOW, Opener, decode, encode, envelope_size, is_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

PART_IDS = 32_768  # number of ids in one part, which has about a megabyte
ENTRY_SIZE = 24  # minimum bytes of an id in a part


def write_parts(disk: Disk, path: str, parts: Iterable[dict[str, Any]], key: StreamKey | None = None) -> None:
    """Replace the window at `path` with `parts`, encrypted if there is a key.

    Raises:
        OSError: the write failed; the old window is unchanged.
    """
    temporary = f"{path}.tmp"
    write_file(
        disk, temporary, (encode(KIND_WINDOW, number, part, key) for number, part in enumerate(parts, 1))
    )
    disk.rename(temporary, path)


def read_parts(disk: Disk, path: str, key: StreamKey | None = None) -> Iterator[dict[str, Any]]:
    """Yield the parts of the window at `path`; the caller must check that they match the stream.

    Raises:
        CorruptRecord: a part is damaged or missing.
        UnknownFormat: another version wrote it.
        Locked: another key encrypted it.
        FileNotFoundError: there is no such file.
        OSError: the file cannot be read.
    """
    at, number, total, seen = 0, 0, 0, 0
    with closing(disk, disk.open_read_only(path)) as fd:
        end = disk.size_of(fd)
        while at < end or number == 0:
            head = disk.read_at(fd, FRAME_SIZE, at)
            data = disk.read_at(fd, min(envelope_size(head), end - at), at)
            number += 1
            part = _part(data or head, path, at, number, key)
            total, seen = part.get("total", -1), seen + part["count"]
            # the caller will allocate memory for this many ids
            if not isinstance(total, int) or total > end // ENTRY_SIZE:
                raise CorruptRecord(path, at, f"it tells of {total} message ids in {end} bytes")
            yield part
            at += len(data)
    if seen != total:
        raise CorruptRecord(path, end, f"it ends after {seen} of {total} message ids")


def _part(data: bytes, path: str, at: int, number: int, key: StreamKey | None) -> dict[str, Any]:
    try:
        generation, part = decode(data, KIND_WINDOW, path, Opener(key))
    except CorruptRecord as error:
        raise CorruptRecord(path, at + error.offset, error.reason) from None
    if generation != number:
        raise CorruptRecord(path, at + 24, f"part {generation} is where part {number} belongs")
    if not isinstance(part.get("count"), int):
        raise CorruptRecord(path, at, f"part {number} does not say how many message ids it has")
    return part


def is_plain(disk: Disk, path: str) -> bool:
    """Return whether the window at `path` is not encrypted. Raises OSError."""
    with closing(disk, disk.open_read_only(path)) as fd:
        return not is_sealed(disk.read_at(fd, FRAME_SIZE, 0))
