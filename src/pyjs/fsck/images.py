"""Plain bytes of stored files: the check reads and writes segments, envelopes and consumer states with this module.

No other module of the check knows compression and encryption.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.disk import closing, write_file
from pyjs.store.format.image import MARK, encode_file, open_image
from pyjs.store.format.outer_header import PlainImage
from pyjs.store.format.packed import PackedImage
from pyjs.store.segment.index_file import decrypted, encrypted, store_index
from pyjs.store.state.consumer_state import ConsumerStateFile, OpenLogs

if TYPE_CHECKING:
    from pyjs.base.disk import Disk, Image
    from pyjs.store.crypt.keys import StreamKey
    from pyjs.store.format.outer_header import Buffer


@dataclass(eq=False, slots=True)
class Files:
    """The parameters for reading and writing the files of one stream, such as its disk and its key."""

    disk: Disk
    key: StreamKey | None = None  # None: not encrypted, or the key is unknown
    codec: int = 0  # the compression of sealed segments
    # the stream's metadata, for the META record of an encrypted segment, which is not encrypted
    meta: bytes = b""
    # by path: index files that are stored in the account's common file
    indexes: dict[str, bytes] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class SegmentFile:
    """The plain image of a segment, and the size of its file."""

    data: Buffer
    size: int  # size of the file
    image: PlainImage

    def place_of(self, at: int, size: int) -> tuple[int, int]:
        """Return where the file has the `size` bytes of the image from offset `at`, as (offset, size)."""
        return self.image.place_of(at, at + size)

    def is_blank(self, files: Files, path: str, at: int, size: int) -> bool:
        """Return whether the `size` bytes at offset `at` of the image are zeros in the file, as after an erasure.

        Raises:
            OSError: the file cannot be read.
        """
        with closing(files.disk, files.disk.open_read_only(path)) as fd:
            return files.disk.read_at(fd, size, at + self.image.shift) == bytes(size)

    def damaged_chunks(self) -> int:
        """Return the number of damaged chunks of a compressed file; 0 for any other file."""
        return len(self.image.damaged) if isinstance(self.image, PackedImage) else 0


def size_of(disk: Disk, path: str) -> int:
    """Return the size of a file in bytes. Raises OSError."""
    with closing(disk, disk.open_read_only(path)) as fd:
        return disk.size_of(fd)


def segment_file(files: Files, path: str) -> SegmentFile:
    """Return a segment with its plain image; the image of a plain file is mapped.

    Raises:
        CorruptRecord, UnknownFormat, Locked: as from `open_image`.
        OSError: the file cannot be read.
    """
    with closing(files.disk, files.disk.open_read_only(path)) as fd:
        image = open_image(files.disk, path, fd, files.key)
        found = SegmentFile(image.whole(True), files.disk.size_of(fd), image)
        image.problem = image.problem or image.spare_problem()
        return found


def mapped(disk: Disk, path: str) -> Image:
    """Return a map of the stored bytes of a file, or b"" if the file is empty. Raises OSError."""
    with closing(disk, disk.open_read_only(path)) as fd:
        size = disk.size_of(fd)
        return disk.map_file(fd, size) if size else b""


def put_segment(files: Files, path: str, image: bytes, sealed: bool) -> None:
    """Replace the segment at `path` atomically with a file for `image`. Raises OSError.

    The file is encrypted if the stream has a key. If `sealed` is set, it is compressed as the stream requires. An
    encrypted file gets a new nonce, so that no part of a key stream encrypts two different texts.
    """
    _, parts = encode_file(image, files.codec if sealed else 0, files.key, files.meta)
    write_file(files.disk, f"{path}.new", parts)
    files.disk.rename(f"{path}.new", path)
    files.disk.sync_dir(path.rpartition("/")[0])


def cut_segment(files: Files, path: str, end: int) -> None:
    """Truncate the image of an uncompressed segment at offset `end`, and sync the file. Raises OSError."""
    disk = files.disk
    with closing(disk, disk.open_file(path)) as fd:
        image = open_image(disk, path, fd, files.key)
        disk.truncate(fd, image.shift + end)
        if image.outer is not None:
            disk.write_at(fd, MARK, image.shift + end)
        disk.sync_file(fd)


def index_data(files: Files, path: str) -> Buffer:
    """Return the decrypted index file at `path`. Raises OSError, or IndexUnusable if another key encrypted it."""
    file = files.indexes[path] if path in files.indexes else mapped(files.disk, path)
    data: Buffer = decrypted(memoryview(file), files.key)
    return data


def put_index(files: Files, path: str, data: bytes) -> None:
    """Write the index file `data` to `path`, encrypted if the stream has a key. Raises OSError."""
    store_index(files.disk, path, data if files.key is None else encrypted(data, files.key))


def state_file(
    files: Files, directory: str, logs: OpenLogs | None = None, first: bytes | None = None
) -> ConsumerStateFile:
    """Return the files of a consumer's state, or of the positions of a stream's sources."""
    return ConsumerStateFile(files.disk, directory, logs, files.key, first)
