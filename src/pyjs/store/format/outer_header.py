"""The outer header of a segment file, which states how the file is encoded: compressed, encrypted, or both.

The plain image is a segment as in store/format/record, including its header. A plain file is identical to its
image. Any other file begins with an outer header, whose flags describe the encoding of the body:

    file   = header (64)  [META record]  body
    body   = image mark zeros* | table block* table           encrypted when the flags name a cipher

The META record is not encrypted as a whole, but the stream's metadata in it is encrypted as in a metadata file, so
a stream can be opened with its segments alone. store/format/packed describes the body of a compressed file,
store/format/image that of an encrypted one. The key stream starts at the first byte of the body.

META is the only log record that this module knows.

Source: docs/storage-format.md, "Encodings of a segment".
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from pyjs.base.disk import PAGE_SIZE, Disk
from pyjs.store.crypt.keys import BLOCK_SIZES, SEGMENT_NONCE_SIZE
from pyjs.store.format.mending import mended_header
from pyjs.store.format.meta import UnknownFormat

if TYPE_CHECKING:
    from typing import Final

    Buffer = bytes | bytearray | memoryview
    Holes = list[tuple[int, int]]  # (begin, end) of unreadable places in an image

HEADER = struct.Struct("<8sHBBIQ8sIIQ8sQ")
MAGIC = b"PYJSSEG\n"
VERSION = 3
STEPS_VERSION = 4  # of plain images only, see store/format/record
NEEDS = (0, 1)  # the first pyjs-server version that reads outer headers
CIPHER_MASK: Final = 0xFF
CODEC_MASK: Final = 0xFF00
CODEC_ZSTD: Final = 0x100
CHECKSUM = struct.Struct("<Q")
RECORD_HEAD = struct.Struct("<IBBHQqII")
KIND_META = 5


class OuterHeader(NamedTuple):
    """The fields of an outer header."""

    flags: int
    base_seq: int
    number: int
    incarnation: int
    nonce: bytes  # of the key stream; zeros without a cipher
    shift: int  # offset of the body in the file

    @property
    def cipher(self) -> int:
        """The encryption algorithm of the body; 0: none."""
        return self.flags & CIPHER_MASK

    @property
    def codec(self) -> int:
        """The compression of the image; 0: none."""
        return self.flags & CODEC_MASK

    def pack(self) -> bytes:
        """Return the 64 bytes of the header."""
        return self._packed(self.flags, self.nonce, self.shift)

    def pack_plain(self) -> bytes:
        """Return the 64 bytes of the segment header at the start of the image."""
        return self._packed(0, bytes(SEGMENT_NONCE_SIZE), 0)

    def _packed(self, flags: int, nonce: bytes, shift: int) -> bytes:
        fields = (MAGIC, VERSION, *NEEDS, flags, self.base_seq, nonce[:8], self.number, shift)
        data = HEADER.pack(*fields, self.incarnation, nonce[8:], 0)[: -CHECKSUM.size]
        return data + CHECKSUM.pack(xxhash.xxh64_intdigest(data))


def read_outer_header(head: bytes, path: str) -> OuterHeader | None:
    """Return the outer header of a segment file, or None if the file is plain or the header is damaged.

    Raises:
        UnknownFormat: the version or a flag is unknown.
    """
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        return None
    _, version, _, _, flags, base_seq, first, number, shift, incarnation, second, checksum = HEADER.unpack(
        head[: HEADER.size]
    )
    if checksum != xxhash.xxh64_intdigest(head[: HEADER.size - CHECKSUM.size]):
        return None
    outer = OuterHeader(flags, base_seq, number, incarnation, first + second, shift)
    known = outer.codec in (0, CODEC_ZSTD) and (outer.cipher == 0 or outer.cipher in BLOCK_SIZES)
    is_known_version = version == VERSION or (version == STEPS_VERSION and flags == 0)
    if not is_known_version or flags & ~(CIPHER_MASK | CODEC_MASK) or not known:
        raise unknown_format(head, path)
    return outer if flags else None


def unknown_format(head: bytes, path: str) -> UnknownFormat:
    """Return the error for a segment file whose header is intact but has an unknown version or flag."""
    _, version, *needs, _, _, _, _, _, _, _, _ = HEADER.unpack(head[: HEADER.size])
    return UnknownFormat(path, version, VERSION, ".".join(map(str, needs)))


class PlainImage:
    """The image of a plain file, and the base class of all other images."""

    outer: OuterHeader | None = None
    shift = 0  # offset of the image in the file, unless it is compressed
    problem = ""  # text about damage that loses no message; "": none
    unread = False  # the end of the image could not be read from the disk
    marked = False  # the image has a mark after its last written byte

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self.fd = fd  # a later reader sets its own descriptor
        self.size = disk.size_of(fd)

    def read(self, at: int, size: int) -> bytes:
        """Return `size` bytes of the image from offset `at`, or fewer at the end of the image."""
        return self._disk.read_at(self.fd, size, at)

    def read_around(self, at: int, size: int) -> tuple[bytes, Holes]:
        """Read as `read` does, but replace unreadable places with filler bytes; also return these places."""
        try:
            return self.read(at, size), []
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        step = PAGE_SIZE - (self.shift + at) % PAGE_SIZE  # read the file page by page
        if size <= step:
            return bytes(size), [(at, at + size)]
        first, holes = self.read_around(at, step)
        pieces = [first]
        for place in range(at + step, at + size, PAGE_SIZE):
            piece, more = self.read_around(place, min(PAGE_SIZE, at + size - place))
            pieces.append(piece)
            holes += more
        return b"".join(pieces), holes

    def whole(self, around: bool = False) -> Buffer:
        """Return the whole image.

        With `around`, or if the file is mapped, unreadable places are filled with zeros.
        """
        return memoryview(self._disk.map_file(self.fd, self.size)) if self.size else b""

    def place_of(self, at: int, end: int) -> tuple[int, int]:
        """Return where the file has the part of the image from `at` to `end`, as (offset, size)."""
        return self.shift + at, end - at

    def grow(self, size: int) -> None:
        """Record that the image has grown to `size` bytes; only subclasses need this."""

    def spare_problem(self) -> str:
        """Describe damage that loses nothing because the file has another copy; return "" if there is no damage."""
        return "" if self.outer is None else clear_problem(self._disk, self.fd, self.outer)


def outer_header_at(disk: Disk, fd: int, path: str) -> tuple[OuterHeader | None, str]:
    """Return the outer header of an open file, or None, and a description of damage to the header.

    The header is None if the file is plain, or if the header cannot be corrected. The text is "" unless one damaged
    byte was corrected.

    Raises:
        UnknownFormat: the version or a flag is unknown.
        OSError: the file cannot be read.
    """
    head = readable(disk, fd, HEADER.size, 0) or b""
    whole = _whole(head)
    outer = read_outer_header(whole, path)
    same = outer is None or whole == head
    return outer, "" if same else "a byte of its header is damaged, which is known from the others"


def clear_problem(disk: Disk, fd: int, outer: OuterHeader) -> str:
    """Describe damage to the unencrypted META record of an open file; return "" if there is no damage."""
    size = outer.shift - HEADER.size
    data = readable(disk, fd, outer.shift, 0) or bytes(HEADER.size)
    head, record = _whole(data), data[HEADER.size :]
    seed = CHECKSUM.unpack(head[-CHECKSUM.size :])[0]
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(record[: -CHECKSUM.size], seed))
    whole = len(record) == size and record.endswith(checksum)
    return "" if whole or size == 0 else "the metadata in clear after its header is damaged"


def readable(disk: Disk, fd: int, size: int, offset: int) -> bytes | None:
    """Read as `disk.read_at` does, but return None if the place is unreadable. Raises OSError for other errors."""
    try:
        return disk.read_at(fd, size, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def clear_meta(head: bytes, path: str) -> bytes:
    """Return the body of the unencrypted META record of a file that begins with `head`, or b"" if there is none."""
    outer = read_outer_header(_whole(head), path)
    if outer is None or outer.shift <= HEADER.size + RECORD_HEAD.size + CHECKSUM.size:
        return b""
    return head[HEADER.size + RECORD_HEAD.size : outer.shift - CHECKSUM.size]


def is_encrypted(head: bytes, path: str) -> bool:
    """Return whether a segment file that begins with `head` is encrypted."""
    outer = read_outer_header(head, path)
    return outer is not None and outer.cipher != 0


def head_size(meta: bytes) -> int:
    """Return the offset of a file's body if the file has `meta` in its unencrypted META record."""
    return HEADER.size + (RECORD_HEAD.size + len(meta) + CHECKSUM.size if meta else 0)


def outer_head(outer: OuterHeader, meta: bytes) -> bytes:
    """Return the bytes before a body: the outer header and the unencrypted META record."""
    head = outer.pack()
    if not meta:
        return head
    body = RECORD_HEAD.pack(outer.shift - HEADER.size, KIND_META, 0, 0, outer.base_seq - 1, 0, 0, 0) + meta
    seed = CHECKSUM.unpack(head[-CHECKSUM.size :])[0]
    return head + body + CHECKSUM.pack(xxhash.xxh64_intdigest(body, seed))


def _whole(data: bytes) -> bytes:
    """Return the header at the start of `data`; if exactly one of its bytes is damaged, correct this byte."""
    head = data[: HEADER.size]
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(head[: -CHECKSUM.size]))
    return head if head.endswith(checksum) else mended_header(head) or head
