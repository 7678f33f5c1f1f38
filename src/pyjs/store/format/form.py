"""The forms of segment files: plain, compressed, encrypted, or both; and what a file says of its own.

The plain image is a segment as store/format/record lays it out, header and all. A plain file is its image. Any other
begins with an outer header, whose flags say what follows:

    file   = header (64)  [META record]  body
    body   = image mark zeros* | table block* table           encrypted when the flags name a cipher

The META record stands in clear and has the stream's metadata, sealed as in its own files, so that a stream can be
opened by its segments. store/format/packed has the body of a compressed file, store/format/image that of an encrypted
one. The key stream counts from the first byte of the body.

Knows nothing of records but META.

Source: docs/storage-format.md, "Other forms of a segment".
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from pyjs.base.disk import PAGE_SIZE, Disk
from pyjs.store.crypt.vault import BLOCK_SIZES, SEGMENT_NONCE_SIZE
from pyjs.store.format.mending import mended_header
from pyjs.store.format.meta import UnknownFormat

if TYPE_CHECKING:
    from typing import Final

    Buffer = bytes | bytearray | memoryview
    Holes = list[tuple[int, int]]  # begin and end of places in an image

HEADER = struct.Struct("<8sHBBIQ8sIIQ8sQ")
MAGIC = b"PYJSSEG\n"
VERSION = 3
NEEDS = (0, 1)  # the first pyjs-server that reads the forms
CIPHER_MASK: Final = 0xFF
CODEC_MASK: Final = 0xFF00
CODEC_ZSTD: Final = 0x100
CHECKSUM = struct.Struct("<Q")
RECORD_HEAD = struct.Struct("<IBBHQqII")
KIND_META = 5


@dataclass(frozen=True, slots=True)
class Form:
    """What an outer header says."""

    flags: int
    base_seq: int
    number: int
    incarnation: int
    nonce: bytes  # of the key stream; zeros without a cipher
    shift: int  # where the body begins

    @property
    def cipher(self) -> int:
        """The algorithm that the body is encrypted with, 0: none."""
        return self.flags & CIPHER_MASK

    @property
    def codec(self) -> int:
        """How the image is compressed, 0: it is not."""
        return self.flags & CODEC_MASK

    def header(self) -> bytes:
        """Return the 64 bytes."""
        return self._packed(self.flags, self.nonce, self.shift)

    def plain_header(self) -> bytes:
        """Return the header that the image begins with."""
        return self._packed(0, bytes(SEGMENT_NONCE_SIZE), 0)

    def _packed(self, flags: int, nonce: bytes, shift: int) -> bytes:
        fields = (MAGIC, VERSION, *NEEDS, flags, self.base_seq, nonce[:8], self.number, shift)
        data = HEADER.pack(*fields, self.incarnation, nonce[8:], 0)[: -CHECKSUM.size]
        return data + CHECKSUM.pack(xxhash.xxh64_intdigest(data))


def read_form(head: bytes, path: str) -> Form | None:
    """Return what the header of a segment file says, None: the file is plain, or the header is damaged.

    Raises:
        UnknownFormat: the version, or the form, is not known here.
    """
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        return None
    _, version, _, _, flags, base_seq, first, number, shift, incarnation, second, checksum = HEADER.unpack(
        head[: HEADER.size]
    )
    if checksum != xxhash.xxh64_intdigest(head[: HEADER.size - CHECKSUM.size]):
        return None
    form = Form(flags, base_seq, number, incarnation, first + second, shift)
    known = form.codec in (0, CODEC_ZSTD) and (form.cipher == 0 or form.cipher in BLOCK_SIZES)
    if version != VERSION or flags & ~(CIPHER_MASK | CODEC_MASK) or not known:
        raise unknown_format(head, path)
    return form if flags else None


def unknown_format(head: bytes, path: str) -> UnknownFormat:
    """Return the error for a segment file whose header is whole and says what is not known here."""
    _, version, *needs, _, _, _, _, _, _, _, _ = HEADER.unpack(head[: HEADER.size])
    return UnknownFormat(path, version, VERSION, ".".join(map(str, needs)))


class PlainImage:
    """The image of a plain file; the others read as this one does."""

    form: Form | None = None
    shift = 0  # where the image begins in the file, if it is not compressed
    problem = ""  # what is damaged and does no harm
    unread = False  # the disk could not read its end
    marked = False  # the mark behind the last byte that was written is there

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self.fd = fd  # who reads later sets another
        self.size = disk.size_of(fd)

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes of the image from `at`; fewer only at its end."""
        return self._disk.read_at(self.fd, size, at)

    def read_around(self, at: int, size: int) -> tuple[bytes, Holes]:
        """Return what `read` does, and where nothing could be read: what stands there is damaged bytes."""
        try:
            return self.read(at, size), []
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        step = PAGE_SIZE - (self.shift + at) % PAGE_SIZE  # one page of the file after the other
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
        """Return all of it; with `around` what cannot be read is damaged bytes, and no error. A map is always so."""
        return memoryview(self._disk.map_file(self.fd, self.size)) if self.size else b""

    def place_of(self, at: int, end: int) -> tuple[int, int]:
        """Return place and size in the file of the bytes at..end of the image."""
        return self.shift + at, end - at

    def grow(self, size: int) -> None:
        """Take note of how much is written by now."""

    def spare_problem(self) -> str:
        """Return what is damaged that only counts when more is; "": nothing is."""
        return "" if self.form is None else clear_problem(self._disk, self.fd, self.form)


def form_at(disk: Disk, fd: int, path: str) -> tuple[Form | None, str]:
    """Return what the outer header of an open file says, None: it has none; and what is damaged in it.

    Raises:
        UnknownFormat: the form is not known here.
        OSError: it cannot be read.
    """
    head = readable(disk, fd, HEADER.size, 0) or b""
    whole = _whole(head)
    form = read_form(whole, path)
    same = form is None or whole == head
    return form, "" if same else "a byte of its header is damaged, which is known from the others"


def clear_problem(disk: Disk, fd: int, form: Form) -> str:
    """Return what is wrong with the metadata that stand in clear in an open file; "": nothing is."""
    size = form.shift - HEADER.size
    data = readable(disk, fd, form.shift, 0) or bytes(HEADER.size)
    head, record = _whole(data), data[HEADER.size :]
    seed = CHECKSUM.unpack(head[-CHECKSUM.size :])[0]
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(record[: -CHECKSUM.size], seed))
    whole = len(record) == size and record.endswith(checksum)
    return "" if whole or size == 0 else "the metadata in clear behind its header is damaged"


def readable(disk: Disk, fd: int, size: int, offset: int) -> bytes | None:
    """Return what `read_at` does, None: the disk cannot read it. Raises OSError: not because of a page."""
    try:
        return disk.read_at(fd, size, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def clear_meta(head: bytes, path: str) -> bytes:
    """Return the metadata that stands in clear in an encrypted file which begins with `head`; b"": there is none."""
    form = read_form(_whole(head), path)
    if form is None or form.shift <= HEADER.size + RECORD_HEAD.size + CHECKSUM.size:
        return b""
    return head[HEADER.size + RECORD_HEAD.size : form.shift - CHECKSUM.size]


def is_encrypted(head: bytes, path: str) -> bool:
    """Return whether a segment file that begins with `head` is encrypted."""
    form = read_form(head, path)
    return form is not None and form.cipher != 0


def head_size(meta: bytes) -> int:
    """Return where the body of a file begins that has `meta` in clear."""
    return HEADER.size + (RECORD_HEAD.size + len(meta) + CHECKSUM.size if meta else 0)


def outer_head(form: Form, meta: bytes) -> bytes:
    """Return what stands in front of a body: the header, and the metadata in clear."""
    header = form.header()
    if not meta:
        return header
    body = RECORD_HEAD.pack(form.shift - HEADER.size, KIND_META, 0, 0, form.base_seq - 1, 0, 0, 0) + meta
    seed = CHECKSUM.unpack(header[-CHECKSUM.size :])[0]
    return header + body + CHECKSUM.pack(xxhash.xxh64_intdigest(body, seed))


def _whole(data: bytes) -> bytes:
    """Return the header that `data` begins with, put right if one byte of it is damaged."""
    head = data[: HEADER.size]
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(head[: -CHECKSUM.size]))
    return head if head.endswith(checksum) else mended_header(head) or head
