"""Segment files in all encodings, and their plain images, which all other modules read.

    file = header (64)  [META record]  body        with flags in the header; otherwise the file is the image
    body = image mark zeros*  |  table chunk* table table_at        encrypted if the flags name a cipher

This module knows nothing of records.

Source: docs/storage-format.md, "Encodings of a segment".
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from itertools import accumulate

from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.errors import BadStore, StoreKeyNeeded
from pyjs_spark.store.keys import BLOCK_SIZES, StreamKey
from pyjs_spark.store.packages import needed

HEADER = struct.Struct("<8sHBBIQ8sIIQ8sQ")
HEADER_SIZE = HEADER.size
CHECKED = HEADER_SIZE - 8  # number of bytes of a header that its checksum covers
MAGIC = b"PYJSSEG\n"
VERSION = 3
STEPS_VERSION = 4  # the same for this reader: only marks, which it ignores, have another form
CIPHERS = 0xFF  # bits of the flags that name a cipher
CODECS = 0xFF00
ZSTD = 0x100
MARK = b"\xff"
CHUNK_SIZE = 65536
IMAGE_SIZE_MAX = 1 << 30
TABLE = struct.Struct("<QII")
ROW = struct.Struct("<IQ")
PAGE_SIZE = 4096
SECTOR_SIZE = 512
ZEROS_KEPT = 16  # without the mark, up to this many zeros after the last nonzero byte may belong to the image


class Unusable(Exception):
    """Raised when a file is damaged, or changed during the read; the error message states the place and the fault."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment file."""

    version: int
    needs: str  # the oldest version of the server that can read the file
    flags: int
    base_seq: int
    number: int
    body_at: int
    incarnation: int
    nonce: bytes
    checksum: int

    @property
    def cipher(self) -> int:
        """The algorithm that encrypts the body, or 0 if the body is not encrypted."""
        return self.flags & CIPHERS

    @property
    def codec(self) -> int:
        """The codec that compresses the body, or 0 if the body is not compressed."""
        return self.flags & CODECS


def header_in(data: bytes) -> Header | None:
    """Return the header at the start of `data`, or None if it is missing or damaged."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        return None
    _, version, major, minor, flags, base, first, number, at, incarnation, second, checksum = HEADER.unpack(
        data[:HEADER_SIZE]
    )
    if xxh64(data[:CHECKED], 0) != checksum:
        return None
    return Header(version, f"{major}.{minor}", flags, base, number, at, incarnation, first + second, checksum)


def is_known_version(header: Header) -> bool:
    """Return whether this reader knows the format of a segment."""
    return header.version == VERSION or (header.version == STEPS_VERSION and header.flags == 0)


def unknown_format(header: Header, what: str) -> BadStore:
    """Return the error for a file with an unknown version or flag."""
    if header.version < VERSION:
        return BadStore(
            f"{what} was written by an older server: it has format {header.version}, and only {VERSION} is read;"
            " start the server that wrote it, and let a mirror copy the stream"
        )
    return BadStore(f"{what} was written by a newer server: it needs version {header.needs} to read")


class Image:
    """The image of a plain file; it owns the file descriptor.

    The classes of other images override `read`.
    """

    unit = "byte"  # the unit of offsets in error texts

    header: Header | None = None  # the outer header, if the file is not plain
    shift = 0  # offset of the image's first byte in the file, if the file is not compressed
    marked = False  # whether the mark after the last written byte was found

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self.size = os.fstat(fd).st_size

    def damage(self, at: int, what: str) -> Unusable:
        """Return the error for damage at an offset of the image."""
        return Unusable(f"{self.path} is damaged at {self.unit} {self.shift + at}: {what}")

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes of the image from offset `at`; fewer only at the image's end."""
        return read_around(self._fd, self.path, at, max(0, min(size, self.size - at)))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class EncryptedImage(Image):
    """The image of an encrypted file."""

    def __init__(self, fd: int, path: str, header: Header, key: StreamKey) -> None:
        self._fd = fd
        self.path = path
        self._key = key
        self.header = header
        self.shift = header.body_at
        self.size = self._find_end() - self.shift

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` decrypted bytes of the image from offset `at`."""
        assert self.header is not None
        data = read_around(self._fd, self.path, self.shift + at, max(0, min(size, self.size - at)))
        return self._key.decrypted(self.header.cipher, self.header.nonce, data, at)

    def _find_end(self) -> int:
        """Return the offset of the mark, or the offset at which the last write ends if the mark is missing.

        If the mark is missing, the last write is incomplete or damaged.
        """
        size = end = max(os.fstat(self._fd).st_size, self.shift)
        while end > self.shift:
            begin = max(end - CHUNK_SIZE, self.shift)
            piece = read_around(self._fd, self.path, begin, end - begin).rstrip(b"\0")
            end = begin + len(piece)
            if piece:
                break
        self.marked = end > self.shift and read_around(self._fd, self.path, end - 1, 1) == MARK
        if self.marked:
            return end - 1
        sector = min(-(-end // SECTOR_SIZE) * SECTOR_SIZE, size)  # an interrupted write ends at a sector
        return sector if sector - end < ZEROS_KEPT else end


class PackedImage(Image):
    """The image of a compressed file, which may be encrypted as well."""

    marked = True
    unit = "unpacked byte"

    def __init__(self, fd: int, path: str, header: Header, key: StreamKey | None) -> None:
        """Read the table. Raises Unusable if both of its copies are damaged."""
        self._fd = fd
        self.path = path
        self._key = key
        self.header = header
        # the chunk that was read last, since the next read often begins in the same chunk
        self._last = (-1, b"")
        body_size = os.fstat(fd).st_size - header.body_at
        found = self._table_at(body_size, 0) or self._table_at(body_size, None)
        if found is None:
            raise self.damage(0, "both copies of its table of chunks")
        self.size, rows = found
        # The chunks follow the table.
        begins = accumulate((size for size, _ in rows), initial=TABLE.size + len(rows) * ROW.size + 8)
        self._places = [(at, size, checksum) for at, (size, checksum) in zip(begins, rows, strict=False)]

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` decompressed bytes of the image from offset `at`."""
        end = max(at, min(at + size, self.size))
        first = at // CHUNK_SIZE
        chunks = b"".join(self._chunk(number) for number in range(first, -(-end // CHUNK_SIZE)))
        return chunks[at - first * CHUNK_SIZE : end - first * CHUNK_SIZE]

    def _body(self, at: int, size: int) -> bytes:
        header = self.header
        assert header is not None
        data = read_around(self._fd, self.path, header.body_at + at, size)
        return self._key.decrypted(header.cipher, header.nonce, data, at) if self._key else data

    def _table_at(self, body_size: int, at: int | None) -> tuple[int, list[tuple[int, int]]] | None:
        """Return image size and table rows from the copy of the table at `at`, or None if this copy is damaged.

        If `at` is None, use the copy at the end.
        """
        if at is None:
            at = int.from_bytes(self._body(body_size - 8, 8), "little") if body_size > 8 else body_size
        if not 0 <= at <= body_size - TABLE.size:
            return None
        head = self._body(at, TABLE.size)
        image_size, count, chunk_size = TABLE.unpack(head)
        rows_size = count * ROW.size
        is_possible = chunk_size == CHUNK_SIZE and HEADER_SIZE <= image_size <= IMAGE_SIZE_MAX
        if (
            not is_possible
            or count != -(-image_size // CHUNK_SIZE)
            or at + rows_size + TABLE.size + 8 > body_size
        ):
            return None
        rows = self._body(at + TABLE.size, rows_size + 8)
        if xxh64(head + rows[:rows_size], 0).to_bytes(8, "little") != rows[rows_size:]:
            return None
        return image_size, list(ROW.iter_unpack(rows[:rows_size]))

    def _chunk(self, number: int) -> bytes:
        if self._last[0] != number:
            self._last = (number, self._unpacked(number))
        return self._last[1]

    def _unpacked(self, number: int) -> bytes:
        """Return one chunk of the image. Raises Unusable if it is damaged."""
        size = min(CHUNK_SIZE, self.size - number * CHUNK_SIZE)
        at, packed_size, checksum = self._places[number]
        packed = self._body(at, packed_size) if packed_size <= size else b""
        if packed_size <= size and xxh64(packed, 0) == checksum:
            plain = packed if packed_size == size else unzipped(packed, size)
            if plain is not None:
                return plain
        raise self.damage(number * CHUNK_SIZE, "a compressed chunk")


def unzipped(packed: bytes, size: int) -> bytes | None:
    """Return the `size` bytes of a decompressed chunk, or None if the chunk is damaged."""
    cramjam = needed("cramjam", "compressed segments")
    out = bytearray(size)
    try:
        found = cramjam.zstd.decompress_into(packed, out)
    except (cramjam.DecompressionError, OSError, ValueError):
        return None
    return bytes(out) if found == size else None


def open_image(path: str, key: StreamKey | None) -> Image:
    """Open a segment file and return its image; the caller closes it.

    Raises:
        BadStore: another version wrote the file.
        StoreKeyNeeded: the file is encrypted with another key than `key`.
        Unusable: the header or table of the file is damaged.
        OSError: the file cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _image(fd, path, key)
    except BaseException:
        os.close(fd)
        raise


def _image(fd: int, path: str, key: StreamKey | None) -> Image:
    head = read_around(fd, path, 0, min(HEADER_SIZE, os.fstat(fd).st_size))
    header = header_in(head)
    if header is not None and (not is_known_version(header) or not _is_known(header)):
        raise unknown_format(header, path)
    if header is None or not header.flags:
        return Image(fd, path)
    stream_key = _key_for(header, path, key)
    if header.codec:
        return PackedImage(fd, path, header, stream_key)
    assert stream_key is not None
    return EncryptedImage(fd, path, header, stream_key)


def _is_known(header: Header) -> bool:
    is_known = header.codec in (0, ZSTD) and (header.cipher == 0 or header.cipher in BLOCK_SIZES)
    return is_known and not header.flags & ~(CIPHERS | CODECS)


def _key_for(header: Header, path: str, key: StreamKey | None) -> StreamKey | None:
    if not header.cipher:
        return None
    if key is None or not key.fits(header.nonce):
        raise StoreKeyNeeded(f"{path} is encrypted with a key that is not the one of its stream")
    return key


def read_around(fd: int, path: str, at: int, size: int) -> bytes:
    """Return `size` bytes of a file, with zeros after the file's end.

    Raises Unusable if the disk cannot read them.
    """
    try:
        data = os.pread(fd, size, at)
        while 0 < len(data) < size:  # a signal interrupted the call, or the call returned fewer bytes
            more = os.pread(fd, size - len(data), at + len(data))
            if not more:
                break
            data += more
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise Unusable(f"{path} is damaged: the disk cannot read bytes {at} to {at + size - 1}") from None
    return data + bytes(size - len(data))
