"""Plain images of segment files, which may be plain, compressed or encrypted; this module reads and writes them.

An encrypted image ends with a mark: one nonzero byte after the last written byte. The image itself may end with
zeros, and only the mark separates these from the zeros of reserved space. store/format/outer_header
describes the rest of the layout.

This module knows nothing of records.

Source: docs/storage-format.md, "Encodings of a segment".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import closing
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import SEGMENT_NONCE_SIZE, KeyStream, Locked, StreamKey
from pyjs.store.format.meta import UnknownFormat
from pyjs.store.format.outer_header import (
    CODEC_ZSTD,
    HEADER,
    OuterHeader,
    PlainImage,
    head_size,
    outer_head,
    outer_header_at,
    readable,
)
from pyjs.store.format.packed import PackedImage, pack

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.store.format.outer_header import Buffer

# Errors that make a whole segment unreadable.
UNREADABLE = (OSError, ValueError, MemoryError, CorruptRecord, UnknownFormat, Locked)
MARK = b"\xff"
END_STEP = 65536  # bytes read at once to search for the mark
STEP = 1 << 18  # bytes encrypted at once; between two steps, other threads can run
SECTOR_SIZE = 512
ZEROS_KEPT = 16  # without a mark, fewer zeros than this before the end of a sector belong to the image


class EncryptedImage(PlainImage):
    """The image of a file that is encrypted and not compressed."""

    def __init__(self, disk: Disk, fd: int, outer: OuterHeader, stream: KeyStream) -> None:
        self._disk = disk
        self.fd = fd
        self.outer = outer
        self.shift = outer.shift
        self.stream = stream
        self.size = self._find_end() - outer.shift

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` decrypted bytes of the image from offset `at`."""
        size = max(0, min(size, self.size - at))
        return self.stream.apply(self._disk.read_at(self.fd, size, self.shift + at), at)

    def grow(self, size: int) -> None:
        """Record that the image has grown to `size` bytes."""
        self.size = max(self.size, size)

    def whole(self, around: bool = False) -> Buffer:
        """Return the whole image; it is decrypted piece by piece, so that other threads can run in between.

        With `around`, unreadable places are filled with zeros.
        """
        out = bytearray(self.size)
        for at in range(0, self.size, STEP):
            size = min(STEP, self.size - at)
            piece = self.read_around(at, size)[0] if around else self.read(at, size)
            out[at : at + len(piece)] = piece
        return memoryview(out)

    def _find_end(self) -> int:
        """Return the offset of the mark in the file; if there is no mark, return the probable end of the image.

        Set `marked`. If the end of the file cannot be read, set `unread`, and return the size of the file.
        """
        size = end = max(self._disk.size_of(self.fd), self.shift)
        while end > self.shift:
            begin = max(end - END_STEP, self.shift)
            found = readable(self._disk, self.fd, end - begin, begin)
            if found is None:
                self.unread = True
                return size
            piece = found.rstrip(b"\0")
            end = begin + len(piece)
            if piece:
                break
        self.marked = end > self.shift and self._disk.read_at(self.fd, 1, end - 1) == MARK
        if self.marked:
            return end - 1
        sector = min(-(-end // SECTOR_SIZE) * SECTOR_SIZE, size)  # a torn write ends at a sector
        return sector if sector - end < ZEROS_KEPT else end


class TailEncryption:
    """The encryption of the writes to the open segment of an encrypted stream."""

    mark = MARK

    def __init__(self, key: StreamKey, base_seq: int, number: int, incarnation: int, meta: bytes) -> None:
        self.shift = head_size(meta)
        self.flags = key.algorithm
        outer = OuterHeader(key.algorithm, base_seq, number, incarnation, key.new_nonce(), self.shift)
        self._head = outer_head(outer, meta)
        self.stream = key.stream(key.algorithm, outer.nonce)

    def written(self, data: Buffer, at: int) -> tuple[bytes, int]:
        """Return the bytes to write, and their offset in the file; `data` begins at offset `at` of the image."""
        data = self.stream.apply(data, at) + MARK
        return (data, self.shift + at) if at else (self._head + data, 0)

    def file_size(self, size: int) -> int:
        """Return the size of a file whose image has `size` bytes."""
        return self.shift + size + len(MARK)


def open_image(disk: Disk, path: str, fd: int, key: StreamKey | None) -> PlainImage:
    """Return the plain image of the segment file `path`, which is open as `fd`.

    Raises:
        UnknownFormat: the version or a flag of the file is unknown.
        Locked: the file is encrypted, and `key` is None or another key.
        CorruptRecord: both tables of a compressed file are damaged.
        OSError: the file cannot be read.
    """
    outer, problem = outer_header_at(disk, fd, path)
    if outer is None:
        return PlainImage(disk, fd)
    stream = _stream_of(outer, key, path)
    if outer.codec:
        image: PlainImage = PackedImage(disk, path, fd, outer, stream)
    else:
        assert stream is not None
        image = EncryptedImage(disk, fd, outer, stream)
    image.problem = image.problem or problem
    return image


def _stream_of(outer: OuterHeader, key: StreamKey | None, path: str) -> KeyStream | None:
    if not outer.cipher:
        return None
    if key is None:
        raise Locked(path, "is encrypted, and the stream has no key: set `key` of jetstream")
    if not key.fits(outer.nonce):
        raise Locked(path, "is encrypted with a key of another stream")
    return key.stream(outer.cipher, outer.nonce)


def read_image(disk: Disk, path: str, key: StreamKey | None, around: bool = False) -> Buffer:
    """Return the plain image of a segment file; with `around`, unreadable places are replaced with filler bytes.

    Raises the same errors as open_image.
    """
    with closing(disk, disk.open_read_only(path)) as fd:
        return open_image(disk, path, fd, key).whole(around)


def encode_file(image: Buffer, codec: int, key: StreamKey | None, meta: bytes) -> tuple[int, list[Buffer]]:
    """Encode `image` as a file; return the flags of the file's outer header, and the file's bytes in parts.

    The file is compressed if `codec` is set and this saves space. It is encrypted if there is a key.
    """
    packed = pack(image) if codec else None
    flags = (CODEC_ZSTD if packed is not None else 0) | (key.algorithm if key is not None else 0)
    if not flags:
        return 0, [image]
    body: Buffer = image if packed is None else packed
    _, _, _, _, _, base_seq, _, number, _, incarnation, _, _ = HEADER.unpack(image[: HEADER.size])
    nonce, shift = bytes(SEGMENT_NONCE_SIZE), HEADER.size
    if key is not None:
        nonce, shift = key.new_nonce(), head_size(meta)
    outer = OuterHeader(flags, base_seq, number, incarnation, nonce, shift)
    if key is None:
        return flags, [outer.pack(), body]
    stream, view = key.stream(key.algorithm, outer.nonce), memoryview(body)
    parts: list[Buffer] = [outer_head(outer, meta)]
    parts += [stream.apply(view[at : at + STEP], at) for at in range(0, len(view), STEP)]
    return flags, parts if packed is not None else [*parts, MARK]
