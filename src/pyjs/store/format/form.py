"""The forms of segment files: plain, compressed, encrypted, or both; and the plain image that each of them holds.

The plain image is a segment as store/format/record lays it out, header and all. A plain file is its image. Any other
begins with an outer header, whose flags say what follows:

    file   = header (64)  [META record]  body
    body   = image mark zeros* | table block* table           encrypted when the flags name a cipher

The META record stands in clear and has the stream's metadata, sealed as in its own files, so that a stream can be
opened by its segments. `mark` is one byte that is not zero, behind the last byte written: a byte of an encrypted
image may be zero, so nothing else tells it from the zeros of reserved space. A compressed image is cut into chunks
of 64 KiB, each compressed for itself (zstd) or kept as it is; the table says their sizes and checksums:

    table  = image_size u64  count u32  chunk_size u32  (size u32  checksum u64)*  checksum u64

little-endian, checksums are XXH64 with seed 0. A chunk that does not check out is bytes of 255 in the image, where
the records in it are found damaged. The key stream counts from the first byte of the body.

Knows nothing of records but META. `cramjam` is imported when something is compressed.
Long because what reads a form and what writes it have to agree, and stand beside each other.

Source: docs/storage-format.md, "Other forms of a segment".
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from pyjs.base.disk import PAGE_SIZE, Disk
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.vault import BLOCK_SIZES, SEGMENT_NONCE_SIZE, KeyStream, Locked, StreamKey
from pyjs.store.format.mending import mended_header
from pyjs.store.format.meta import UnknownFormat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    Buffer = bytes | bytearray | memoryview
    Holes = list[tuple[int, int]]  # begin and end of places in an image

# What keeps a segment from being read as a whole.
UNREADABLE = (OSError, ValueError, MemoryError, CorruptRecord, UnknownFormat, Locked)
HEADER = struct.Struct("<8sHBBIQ8sIIQ8sQ")
MAGIC = b"PYJSSEG\n"
VERSION = 3
NEEDS = (0, 1)  # the first pyjs-server that reads the forms
CIPHER_MASK: Final = 0xFF
CODEC_MASK: Final = 0xFF00
CODEC_ZSTD: Final = 0x100
LEVEL = 1  # of zstd: on JSON 0.23 of the size at 680 MB/s; level 3 gains nothing there, lz4 has 0.34
MARK = b"\xff"
DAMAGED = b"\xff"  # every byte of a chunk that does not check out
CHUNK_SIZE = 65536
IMAGE_SIZE_MAX = 1 << 30  # far beyond the largest record and segment
TABLE_HEAD = struct.Struct("<QII")
TABLE_ROW = struct.Struct("<IQ")
CHECKSUM = struct.Struct("<Q")
RECORD_HEAD = struct.Struct("<IBBHQqII")
KIND_META = 5
GAIN_MIN = 10  # per cent that compression must save
SAMPLES = 4  # chunks that tell whether it will
STEP = 1 << 18  # bytes encrypted at once, so that other threads have their turn
SECTOR_SIZE = 512
ZEROS_KEPT = 16  # so many zeros behind the last byte may belong to the image when there is no mark


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


# -- reading ---------------------------------------------------------------------------------------------------


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


class VeiledImage(PlainImage):
    """The image of an encrypted file."""

    def __init__(self, disk: Disk, fd: int, form: Form, stream: KeyStream) -> None:
        self._disk = disk
        self.fd = fd
        self.form = form
        self.shift = form.shift
        self.stream = stream
        self.size = self._find_end() - form.shift

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes of the image from `at`, decrypted."""
        size = max(0, min(size, self.size - at))
        return self.stream.apply(self._disk.read_at(self.fd, size, self.shift + at), at)

    def grow(self, size: int) -> None:
        """Take note of how much is written by now."""
        self.size = max(self.size, size)

    def whole(self, around: bool = False) -> Buffer:
        """Return all of it, decrypted piece by piece: another thread may wait for its turn."""
        out = bytearray(self.size)
        for at in range(0, self.size, STEP):
            size = min(STEP, self.size - at)
            piece = self.read_around(at, size)[0] if around else self.read(at, size)
            out[at : at + len(piece)] = piece
        return memoryview(out)

    def _find_end(self) -> int:
        """Return where the mark is; without one what was written last is cut off or damaged."""
        size = end = max(self._disk.size_of(self.fd), self.shift)
        while end > self.shift:
            begin = max(end - CHUNK_SIZE, self.shift)
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
        sector = min(-(-end // SECTOR_SIZE) * SECTOR_SIZE, size)  # a write that is cut short ends with one
        return sector if sector - end < ZEROS_KEPT else end


class PackedImage(PlainImage):
    """The image of a compressed file, which may be encrypted as well."""

    def __init__(self, disk: Disk, path: str, fd: int, form: Form, stream: KeyStream | None) -> None:
        """Read the table.

        Raises:
            CorruptRecord: both of its copies are damaged.
        """
        self._disk = disk
        self.fd = fd
        self.form = form
        self._stream = stream
        self.marked = (
            stream is not None
        )  # what is encrypted had its mark, or a footer, when it was compressed
        self._places: list[tuple[int, int, int]] = []  # of each chunk: where, size, checksum
        self.damaged: set[int] = set()  # chunks that were read and did not check out
        body_size = disk.size_of(fd) - form.shift
        for at, what in ((0, "first"), (None, "second")):
            table = self._table_at(body_size, at)
            if table is not None:
                self._take_table(*table)
                return
            self.problem = f"the {what} copy of its table of chunks is damaged"
        raise CorruptRecord(path, form.shift, "its table of chunks is damaged, twice")

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes of the image from `at`."""
        end = min(at + size, self.size)
        first = at // CHUNK_SIZE
        chunks = b"".join(self._chunk(number) for number in range(first, -(-end // CHUNK_SIZE)))
        return chunks[at - first * CHUNK_SIZE : end - first * CHUNK_SIZE]

    def read_around(self, at: int, size: int) -> tuple[bytes, Holes]:
        """Return what `read` does, and the chunks of it that do not check out."""
        data = self.read(at, size)
        numbers = range(at // CHUNK_SIZE, -(-(at + len(data)) // CHUNK_SIZE))
        holes = [(each * CHUNK_SIZE, (each + 1) * CHUNK_SIZE) for each in numbers if each in self.damaged]
        return data, holes

    def whole(self, around: bool = False) -> Buffer:
        """Return all of it; damaged chunks are damaged bytes, and those are as well that cannot be read."""
        return memoryview(b"".join(self._chunk(number) for number in range(len(self._places))))

    def spare_problem(self) -> str:
        """Return what is damaged that only counts when more is; "": nothing is."""
        body_size = self._disk.size_of(self.fd) - (self.form.shift if self.form is not None else 0)
        first, second = self._table_at(body_size, 0), self._table_at(body_size, None)
        end = sum(self._places[-1][:2]) + table_size(self.size) + CHECKSUM.size
        whole = first is not None and first == second and body_size == end
        return super().spare_problem() if whole else "the second copy of its table of chunks is damaged"

    def is_whole(self) -> bool:
        """Return whether every chunk checks out."""
        return all(self._unpacked(number) is not None for number in range(len(self._places)))

    def place_of(self, at: int, end: int) -> tuple[int, int]:
        """Return place and size in the file of the damaged chunks, as `whole` found them, with the bytes at..end."""
        last = len(self._places) - 1
        first, behind = min(at // CHUNK_SIZE, last), min(max(end - 1, at) // CHUNK_SIZE, last) + 1
        numbers = [number for number in range(first, behind) if number in self.damaged] or list(
            range(first, behind)
        )
        begin = self._places[numbers[0]][0]
        assert self.form is not None
        return self.form.shift + begin, sum(self._places[numbers[-1]][:2]) - begin

    def _body(self, at: int, size: int) -> bytes:
        """Return bytes of the body; none if they cannot be read."""
        assert self.form is not None
        data = readable(self._disk, self.fd, size, self.form.shift + at) or b""
        return data if self._stream is None else self._stream.apply(data, at)

    def _table_at(self, body_size: int, at: int | None) -> tuple[int, bytes] | None:
        """Return image size and rows of a copy of the table, the one at the end for None; None: it is damaged."""
        if at is None:
            # Its count stands in front, at a place that the count tells: its last eight bytes say where.
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
        """Return one chunk of the image; a damaged one is no zeros, which would be no loss at the end of a segment.

        The header is in the outer one as well.
        """
        found = self._unpacked(number)
        if found is not None:
            return found
        self.damaged.add(number)
        head = self.form.plain_header() if number == 0 and self.form is not None else b""
        return head + DAMAGED * (self._size_of(number) - len(head))

    def _size_of(self, number: int) -> int:
        return min(CHUNK_SIZE, self.size - number * CHUNK_SIZE)

    def _unpacked(self, number: int) -> bytes | None:
        at, packed_size, checksum = self._places[number]
        size = self._size_of(number)
        if packed_size > size:
            return None  # what does not get smaller is kept as it is
        packed = self._body(at, packed_size)
        if len(packed) != packed_size or xxhash.xxh64_intdigest(packed) != checksum:
            return None
        return packed if packed_size == size else _unzip(packed, size)


def open_image(disk: Disk, path: str, fd: int, key: StreamKey | None) -> PlainImage:
    """Return the plain image of the segment file `path`, of which `fd` is open.

    Raises:
        UnknownFormat: its form is not known here.
        Locked: it is encrypted, and not with `key`.
        CorruptRecord: what tells its form is damaged.
        OSError: it cannot be read.
    """
    form, problem = form_at(disk, fd, path)
    if form is None:
        return PlainImage(disk, fd)
    stream = _stream_of(form, key, path)
    if form.codec:
        image: PlainImage = PackedImage(disk, path, fd, form, stream)
    else:
        assert stream is not None
        image = VeiledImage(disk, fd, form, stream)
    image.problem = image.problem or problem
    return image


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


def read_image(disk: Disk, path: str, key: StreamKey | None, around: bool = False) -> Buffer:
    """Return the plain image of a segment file, damaged bytes or, with `around`, zeros where it cannot be read.

    Raises as open_image does.
    """
    fd = disk.open_read_only(path)
    try:
        return open_image(disk, path, fd, key).whole(around)
    finally:
        disk.close_file(fd)


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


def _whole(data: bytes) -> bytes:
    """Return the header that `data` begins with, put right if one byte of it is damaged."""
    head = data[: HEADER.size]
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(head[: -CHECKSUM.size]))
    return head if head.endswith(checksum) else mended_header(head) or head


def _stream_of(form: Form, key: StreamKey | None, path: str) -> KeyStream | None:
    if not form.cipher:
        return None
    if key is None:
        raise Locked(path, "is encrypted, and the stream has no key: set `key` of jetstream")
    if not key.fits(form.nonce):
        raise Locked(path, "is encrypted with a key of another stream")
    return key.stream(form.cipher, form.nonce)


# -- writing ---------------------------------------------------------------------------------------------------


class TailVeil:
    """What the open segment of an encrypted stream is written through."""

    mark = MARK

    def __init__(self, key: StreamKey, base_seq: int, number: int, incarnation: int, meta: bytes) -> None:
        shift = HEADER.size + (RECORD_HEAD.size + len(meta) + CHECKSUM.size if meta else 0)
        self.form = Form(key.algorithm, base_seq, number, incarnation, key.new_nonce(), shift)
        self.shift = shift
        self.flags = key.algorithm
        self._head = _head(self.form, meta)
        self.stream = key.stream(key.algorithm, self.form.nonce)

    def written(self, data: Buffer, at: int) -> tuple[bytes, int]:
        """Return what is written for the bytes of the image from `at` on, and where."""
        veiled = self.stream.apply(data, at) + MARK
        return (veiled, self.shift + at) if at else (self._head + veiled, 0)

    def file_size(self, size: int) -> int:
        """Return the size of a file with so many bytes of the image."""
        return self.shift + size + len(MARK)


def encode_file(
    image: Buffer, codec: int, key: StreamKey | None, meta: bytes, packed: bytes | None = None
) -> tuple[int, list[Buffer]]:
    """Return flags and bytes of the file that holds `image`: compressed if that pays, encrypted with a key."""
    packed = pack(image) if codec and packed is None else packed
    flags = (CODEC_ZSTD if packed is not None else 0) | (key.algorithm if key is not None else 0)
    if not flags:
        return 0, [image]
    body: Buffer = image if packed is None else packed
    _, _, _, _, _, base_seq, _, number, _, incarnation, _, _ = HEADER.unpack(image[: HEADER.size])
    shift = HEADER.size
    nonce = bytes(SEGMENT_NONCE_SIZE)
    if key is None:
        return flags, [Form(flags, base_seq, number, incarnation, nonce, shift).header(), body]
    if meta:
        shift += RECORD_HEAD.size + len(meta) + CHECKSUM.size
    form = Form(flags, base_seq, number, incarnation, key.new_nonce(), shift)
    stream = key.stream(key.algorithm, form.nonce)
    parts: list[Buffer] = [_head(form, meta)]
    view = memoryview(body)
    parts += [stream.apply(view[at : at + STEP], at) for at in range(0, len(view), STEP)]
    return flags, parts if packed is not None else [*parts, MARK]


def pack(image: Buffer) -> bytes | None:
    """Return the body of a compressed file, None: it would not save GAIN_MIN per cent."""
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
    """Return the size of the table of an image."""
    return TABLE_HEAD.size + -(-image_size // CHUNK_SIZE) * TABLE_ROW.size + CHECKSUM.size


def write_file(disk: Disk, path: str, parts: list[Buffer]) -> None:
    """Write a new file and bring it to the medium. Raises OSError."""
    fd = disk.open_file(path, create=True)
    try:
        disk.truncate(fd, 0)
        at = 0
        for part in parts:
            disk.write_at(fd, memoryview(part), at)
            at += len(part)
        disk.sync_file(fd)
    finally:
        disk.close_file(fd)


def _head(form: Form, meta: bytes) -> bytes:
    header = form.header()
    if not meta:
        return header
    length = RECORD_HEAD.size + len(meta) + CHECKSUM.size
    body = RECORD_HEAD.pack(length, KIND_META, 0, 0, form.base_seq - 1, 0, 0, 0) + meta
    seed = CHECKSUM.unpack(header[-CHECKSUM.size :])[0]
    return header + body + CHECKSUM.pack(xxhash.xxh64_intdigest(body, seed))


def _chunks(image: Buffer) -> Iterator[memoryview]:
    view = memoryview(image)
    for at in range(0, len(view), CHUNK_SIZE):
        yield view[at : at + CHUNK_SIZE]


def _saves(size: int, plain_size: int) -> bool:
    return size * 100 <= plain_size * (100 - GAIN_MIN)


def _zip(chunk: memoryview) -> bytes:
    """Return a chunk compressed, or as it is when that is not larger."""
    from cramjam import zstd

    packed = bytes(zstd.compress(chunk, level=LEVEL))
    return packed if len(packed) < len(chunk) else bytes(chunk)


def _unzip(packed: bytes, size: int) -> bytes | None:
    """Return a chunk, None: it is damaged. Never more than `size` bytes are made of it."""
    from cramjam import DecompressionError, zstd

    out = bytearray(size)
    try:
        found = zstd.decompress_into(packed, out)
    except (DecompressionError, OSError, ValueError):
        return None
    return bytes(out) if found == size else None
