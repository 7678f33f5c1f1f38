"""The body of a compressed segment file: the image in chunks, and two copies of the table of chunks.

The image is cut into chunks of 64 KiB, each of which is compressed (zstd) or stored plain. The table has their sizes
and checksums:

    body   = table block* table  place of the second table u64
    table  = image_size u64  count u32  chunk_size u32  (size u32  checksum u64)*  checksum u64

Numbers are little-endian, checksums are XXH64 with seed 0. In the image, each byte of a damaged chunk has the value
255, so that its records are recognized as damaged. `cramjam` is imported lazily, since only compression needs it.

Source: docs/storage-format.md, "Encodings of a segment".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import xxhash

from pyjs.base.errors import CorruptRecord
from pyjs.store.format.outer_header import CHECKSUM, HEADER, PlainImage, readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.disk import Disk
    from pyjs.store.crypt.keys import KeyStream
    from pyjs.store.format.outer_header import Buffer, Holes, OuterHeader

# level of zstd. JSON shrinks to 0.23 of its size, at 680 MB/s; level 3 saves no more, lz4 reaches 0.34
LEVEL = 1
DAMAGED = b"\xff"  # the value of every byte of a damaged chunk in the image
CHUNK_SIZE = 65536
IMAGE_SIZE_MAX = 1 << 30  # bytes; far above the largest record and segment
TABLE_HEAD = struct.Struct("<QII")
TABLE_ROW = struct.Struct("<IQ")
GAIN_MIN = 10  # minimum percentage that compression must save
SAMPLES = 4  # number of chunks that are compressed first, to estimate the savings


class PackedImage(PlainImage):
    """The image of a compressed file, which may also be encrypted."""

    def __init__(self, disk: Disk, path: str, fd: int, outer: OuterHeader, stream: KeyStream | None) -> None:
        """Read the table of chunks.

        Raises:
            CorruptRecord: both copies of the table are damaged.
        """
        self._disk = disk
        self.fd = fd
        self.outer = outer
        self._stream = stream
        # The end of an encrypted image was proven, by its mark or a FOOTER, before it was compressed.
        self.marked = stream is not None
        self._places: list[tuple[int, int, int]] = []  # (offset, size, checksum) of each chunk
        self.damaged: set[int] = set()  # numbers of the damaged chunks among those that were read
        body_size = disk.size_of(fd) - outer.shift
        for at, what in ((0, "first"), (None, "second")):
            table = self._table_at(body_size, at)
            if table is not None:
                self._take_table(*table)
                return
            self.problem = f"the {what} copy of its table of chunks is damaged"
        raise CorruptRecord(path, outer.shift, "its table of chunks is damaged, twice")

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes of the image from offset `at`; filler bytes replace damaged chunks."""
        end = min(at + size, self.size)
        first = at // CHUNK_SIZE
        chunks = b"".join(self._chunk(number) for number in range(first, -(-end // CHUNK_SIZE)))
        return chunks[at - first * CHUNK_SIZE : end - first * CHUNK_SIZE]

    def read_around(self, at: int, size: int) -> tuple[bytes, Holes]:
        """Read as `read` does, and also return the places of damaged chunks."""
        data = self.read(at, size)
        numbers = range(at // CHUNK_SIZE, -(-(at + len(data)) // CHUNK_SIZE))
        holes = [(each * CHUNK_SIZE, (each + 1) * CHUNK_SIZE) for each in numbers if each in self.damaged]
        return data, holes

    def whole(self, around: bool = False) -> Buffer:
        """Return the whole image; damaged and unreadable chunks are replaced with filler bytes."""
        return memoryview(b"".join(self._chunk(number) for number in range(len(self._places))))

    def spare_problem(self) -> str:
        """Describe damage to a copy of the table or to the unencrypted META record; return "" if there is none."""
        body_size = self._disk.size_of(self.fd) - (self.outer.shift if self.outer is not None else 0)
        first, second = self._table_at(body_size, 0), self._table_at(body_size, None)
        end = sum(self._places[-1][:2]) + table_size(self.size) + CHECKSUM.size
        whole = first is not None and first == second and body_size == end
        return super().spare_problem() if whole else "the second copy of its table of chunks is damaged"

    def is_whole(self) -> bool:
        """Return whether every chunk is intact."""
        return all(self._unpacked(number) is not None for number in range(len(self._places)))

    def place_of(self, at: int, end: int) -> tuple[int, int]:
        """Return where the file has the chunks of the image from `at` to `end`, as (offset, size).

        If some of these chunks are damaged, return the range of the damaged ones. Call `whole` before, since it finds
        the damaged chunks.
        """
        last = len(self._places) - 1
        first, behind = min(at // CHUNK_SIZE, last), min(max(end - 1, at) // CHUNK_SIZE, last) + 1
        numbers = [number for number in range(first, behind) if number in self.damaged] or list(
            range(first, behind)
        )
        begin = self._places[numbers[0]][0]
        assert self.outer is not None
        return self.outer.shift + begin, sum(self._places[numbers[-1]][:2]) - begin

    def _body(self, at: int, size: int) -> bytes:
        """Return `size` decrypted bytes of the body from offset `at`, or b"" if they cannot be read."""
        assert self.outer is not None
        data = readable(self._disk, self.fd, size, self.outer.shift + at) or b""
        return data if self._stream is None else self._stream.apply(data, at)

    def _table_at(self, body_size: int, at: int | None) -> tuple[int, bytes] | None:
        """Return the image size and the rows of a copy of the table, or None if this copy is damaged.

        `at` is the offset of the copy in the body. None stands for the second copy, which is at the end of the body.
        """
        if at is None:
            # The last eight bytes of the body are the offset of the second table.
            tail = self._body(body_size - CHECKSUM.size, CHECKSUM.size) if body_size > CHECKSUM.size else b""
            at = CHECKSUM.unpack(tail)[0] if len(tail) == CHECKSUM.size else body_size
        if not 0 <= at <= body_size - TABLE_HEAD.size:
            return None
        head = self._body(at, TABLE_HEAD.size)
        if len(head) < TABLE_HEAD.size:
            return None
        image_size, count, chunk_size = TABLE_HEAD.unpack(head)
        rows_size = count * TABLE_ROW.size
        if (
            chunk_size != CHUNK_SIZE
            or not HEADER.size <= image_size <= IMAGE_SIZE_MAX
            or count != -(-image_size // CHUNK_SIZE)
        ):
            return None
        if rows_size + CHECKSUM.size > body_size - at - TABLE_HEAD.size:
            return None
        rows = self._body(at + TABLE_HEAD.size, rows_size + CHECKSUM.size)
        if xxhash.xxh64_digest(head + rows[:rows_size])[::-1] != rows[rows_size:]:
            return None
        return image_size, rows[:rows_size]

    def _take_table(self, image_size: int, rows: bytes) -> None:
        self.size = image_size
        at = table_size(image_size)
        for size, checksum in TABLE_ROW.iter_unpack(rows):
            self._places.append((at, size, checksum))
            at += size

    def _chunk(self, number: int) -> bytes:
        """Return one chunk of the image; the bytes of a damaged chunk are replaced with DAMAGED.

        If the first chunk is damaged, the segment header in it is derived from the outer header.
        """
        found = self._unpacked(number)
        if found is not None:
            return found
        self.damaged.add(number)
        head = self.outer.pack_plain() if number == 0 and self.outer is not None else b""
        return head + DAMAGED * (self._size_of(number) - len(head))

    def _size_of(self, number: int) -> int:
        return min(CHUNK_SIZE, self.size - number * CHUNK_SIZE)

    def _unpacked(self, number: int) -> bytes | None:
        at, packed_size, checksum = self._places[number]
        size = self._size_of(number)
        if packed_size > size:
            return None  # the chunk is stored plain, since compression did not make it smaller
        packed = self._body(at, packed_size)
        if len(packed) != packed_size or xxhash.xxh64_intdigest(packed) != checksum:
            return None
        return packed if packed_size == size else _unzip(packed, size)


def pack(image: Buffer) -> bytes | None:
    """Return the body of a compressed file for `image`, or None if compression would not save GAIN_MIN percent."""
    chunks = list(_chunks(image))
    sample = chunks[:: max(1, len(chunks) // SAMPLES)]
    if not _saves(sum(len(_zip(each)) for each in sample), sum(len(each) for each in sample)):
        return None
    packed = [_zip(each) for each in chunks]
    rows = b"".join(TABLE_ROW.pack(len(each), xxhash.xxh64_intdigest(each)) for each in packed)
    table = TABLE_HEAD.pack(len(image), len(chunks), CHUNK_SIZE) + rows
    table += CHECKSUM.pack(xxhash.xxh64_intdigest(table))
    at = len(table) + sum(map(len, packed))
    body = b"".join((table, *packed, table, CHECKSUM.pack(at)))
    return body if _saves(len(body), len(image)) else None


def table_size(image_size: int) -> int:
    """Return the size in bytes of the table of chunks of an image with `image_size` bytes."""
    return TABLE_HEAD.size + -(-image_size // CHUNK_SIZE) * TABLE_ROW.size + CHECKSUM.size


def _chunks(image: Buffer) -> Iterator[memoryview]:
    view = memoryview(image)
    for at in range(0, len(view), CHUNK_SIZE):
        yield view[at : at + CHUNK_SIZE]


def _saves(size: int, plain_size: int) -> bool:
    return size * 100 <= plain_size * (100 - GAIN_MIN)


def _zip(chunk: memoryview) -> bytes:
    """Return the compressed chunk, or the unchanged one if compression does not make it smaller."""
    from cramjam import zstd

    packed = bytes(zstd.compress(chunk, level=LEVEL))
    return packed if len(packed) < len(chunk) else bytes(chunk)


def _unzip(packed: bytes, size: int) -> bytes | None:
    """Return the decompressed chunk, or None if it is damaged or does not have `size` bytes."""
    from cramjam import DecompressionError, zstd

    out = bytearray(size)
    try:
        found = zstd.decompress_into(packed, out)
    except (DecompressionError, OSError, ValueError):
        return None
    return bytes(out) if found == size else None
