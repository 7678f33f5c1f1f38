"""Bytes of stored files as they were before anything was done to them on their way to the disk.

The one place that knows how a segment, an envelope and a consumer's state are read and written by a check: plain,
compressed, encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.disk import closing, write_file
from pyjs.store.format.form import PlainImage
from pyjs.store.format.image import MARK, encode_file, open_image
from pyjs.store.format.packed import PackedImage
from pyjs.store.segment.index_file import decrypted, encrypted, store_index
from pyjs.store.state.consumer_state import ConsumerStateFile, OpenLogs

if TYPE_CHECKING:
    from pyjs.base.disk import Disk, Image
    from pyjs.store.crypt.vault import StreamKey
    from pyjs.store.format.form import Buffer


@dataclass(eq=False, slots=True)
class Files:
    """How the files of one stream are read and written."""

    disk: Disk
    key: StreamKey | None = None  # None: they are plain, or cannot be opened
    codec: int = 0  # of sealed segments
    meta: bytes = b""  # the stream's metadata, as an encrypted segment has it in clear
    indexes: dict[str, bytes] = field(default_factory=dict)  # index files kept elsewhere, by their paths


@dataclass(eq=False, slots=True)
class SegmentFile:
    """The plain image of a segment, and what its file is like."""

    data: Buffer
    size: int  # of the file
    image: PlainImage

    def place_of(self, at: int, size: int) -> tuple[int, int]:
        """Return place and size in the file of what is damaged in the image."""
        return self.image.place_of(at, at + size)

    def damaged_chunks(self) -> int:
        """Return how many chunks of a compressed file do not check out."""
        return len(self.image.damaged) if isinstance(self.image, PackedImage) else 0


def size_of(disk: Disk, path: str) -> int:
    """Return the size of a file. Raises OSError."""
    with closing(disk, disk.open_read_only(path)) as fd:
        return disk.size_of(fd)


def segment_file(files: Files, path: str) -> SegmentFile:
    """Return a segment with its plain bytes; of a plain one they stay on the disk until they are looked at.

    Raises:
        CorruptRecord, UnknownFormat, Locked: as store/format/form says.
        OSError: it cannot be read.
    """
    with closing(files.disk, files.disk.open_read_only(path)) as fd:
        image = open_image(files.disk, path, fd, files.key)
        found = SegmentFile(image.whole(True), files.disk.size_of(fd), image)
        image.problem = image.problem or image.spare_problem()
        return found


def mapped(disk: Disk, path: str) -> Image:
    """Return the bytes of a file as they are. Raises OSError."""
    with closing(disk, disk.open_read_only(path)) as fd:
        size = disk.size_of(fd)
        return disk.map_file(fd, size) if size else b""


def put_segment(files: Files, path: str, image: bytes, sealed: bool) -> None:
    """Put a segment in place of the one at `path`, in one step, in the form that its stream wants. Raises OSError.

    What is encrypted gets a nonce of its own, so that no place of a key stream is used twice.
    """
    _, parts = encode_file(image, files.codec if sealed else 0, files.key, files.meta)
    write_file(files.disk, f"{path}.new", parts)
    files.disk.rename(f"{path}.new", path)
    files.disk.sync_dir(path.rpartition("/")[0])


def cut_segment(files: Files, path: str, end: int) -> None:
    """Cut what is behind the byte `end` of the image of a segment that is not compressed. Raises OSError."""
    disk = files.disk
    with closing(disk, disk.open_file(path)) as fd:
        image = open_image(disk, path, fd, files.key)
        disk.truncate(fd, image.shift + end)
        if image.form is not None:
            disk.write_at(fd, MARK, image.shift + end)
        disk.sync_file(fd)


def index_data(files: Files, path: str) -> Buffer:
    """Return the index in a file. Raises OSError; IndexUnusable: it is encrypted with another key."""
    file = files.indexes[path] if path in files.indexes else mapped(files.disk, path)
    data: Buffer = decrypted(memoryview(file), files.key)
    return data


def put_index(files: Files, path: str, data: bytes) -> None:
    """Write an index file. Raises OSError."""
    store_index(files.disk, path, data if files.key is None else encrypted(data, files.key))


def state_file(
    files: Files, directory: str, logs: OpenLogs | None = None, first: bytes | None = None
) -> ConsumerStateFile:
    """Return what reads and writes the state of a consumer, or the positions of sources."""
    return ConsumerStateFile(files.disk, directory, logs, files.key, first)
