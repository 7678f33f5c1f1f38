"""Bytes of stored files as they were before anything was done to them on their way to the disk.

The one place that knows how a segment, an envelope and a consumer's state are read and written by a check; whoever
adds another form of them (encrypted, compressed) adds it here.
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING
from pyjs.store.consumer_state import ConsumerStateFile, OpenLogs
from pyjs.store.meta import COPIES, decode, encode, save_meta, write_whole

if TYPE_CHECKING:
    from typing import Any

    from pyjs.base.disk import Disk, Image


def size_of(disk: Disk, path: str) -> int:
    """Return the size of a file. Raises OSError."""
    fd = disk.open_read_only(path)
    try:
        return disk.size_of(fd)
    finally:
        disk.close_file(fd)


def segment_image(disk: Disk, path: str) -> Image:
    """Return the plain bytes of a segment, which stay on the disk until they are looked at. Raises OSError."""
    return mapped(disk, path)


def mapped(disk: Disk, path: str) -> Image:
    """Return the bytes of a file as they are. Raises OSError."""
    fd = disk.open_read_only(path)
    try:
        size = disk.size_of(fd)
        return disk.map_file(fd, size) if size else b""
    finally:
        disk.close_file(fd)


def put_segment(disk: Disk, path: str, image: bytes) -> None:
    """Put a segment in place of the one at `path`, in one step. Raises OSError."""
    write_whole(disk, f"{path}.new", path, image)
    disk.sync_dir(path.rpartition("/")[0])


def envelope(disk: Disk, path: str, kind: int) -> tuple[int, dict[str, Any]]:
    """Return (generation, values) of a metadata file.

    Raises:
        CorruptRecord, NewerFormat: as store/meta says.
        OSError: it cannot be read.
    """
    return decode(disk.read_file(path), kind, path)


def put_metadata(disk: Disk, directory: str, kind: int, generation: int, values: dict[str, Any]) -> None:
    """Write both copies of the metadata of a directory. Raises OSError."""
    save_meta(disk, directory, "meta", encode(kind, generation, values))


def metadata_paths(directory: str) -> list[str]:
    """Return where the copies of a directory's metadata are."""
    return [f"{directory}/meta.{copy}" for copy in COPIES]


def state_file(disk: Disk, directory: str, logs: OpenLogs | None = None) -> ConsumerStateFile:
    """Return what reads and writes the state of a consumer, or the positions of sources."""
    return ConsumerStateFile(disk, directory, logs)
