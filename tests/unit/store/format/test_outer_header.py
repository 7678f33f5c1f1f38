"""The encodings of segment files, compared with the plain image: complete, damaged, cut and forged files."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import xxhash
from tests.unit.store.encodings import ENCODINGS, Chance, a_key, image_of
from tests.unit.store.segment_files import message_record, segment_of

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import CHACHA, Locked, StreamKey
from pyjs.store.format.image import TailEncryption, encode_file, open_image
from pyjs.store.format.mending import mended_header
from pyjs.store.format.meta import UnknownFormat
from pyjs.store.format.outer_header import CODEC_ZSTD, OuterHeader, clear_meta, read_outer_header
from pyjs.store.format.packed import CHUNK_SIZE, pack, table_size

KEY = a_key(CHACHA)
META = b"the metadata, sealed"


def image(count: int = 3000) -> bytes:
    """Return a plain segment of messages that compress well."""
    bodies = (
        message_record(seq, 1000 + seq, b"orders.a", b"", b'{"number":%d}' % seq * 5)
        for seq in range(1, count)
    )
    return segment_of(1, *bodies)


IMAGE = image()
CHUNKS = -(-len(IMAGE) // CHUNK_SIZE)


def written(path: Path, codec: int, key: StreamKey | None, data: bytes = IMAGE, meta: bytes = META) -> Path:
    _, parts = encode_file(data, codec, key, meta)
    path.write_bytes(b"".join(parts))
    return path


def read(path: Path, key: StreamKey | None) -> bytes:
    return image_of(OsDisk(), path, key)


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_form_holds_the_image(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    path = written(tmp_path / "a.seg", codec, key)
    assert read(path, key) == IMAGE
    fd = OsDisk().open_read_only(str(path))
    found = open_image(OsDisk(), str(path), fd, key)
    assert found.size == len(IMAGE)
    for at, size in ((0, 64), (1, 1), (63, 200), (65_530, 20), (65_536, 65_536), (len(IMAGE) - 5, 99)):
        assert found.read(at, size) == IMAGE[at : at + size]
    OsDisk().close_file(fd)


@pytest.mark.parametrize("name", ["zstd", "chacha and zstd"])
def test_compressed_files_are_smaller(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    assert written(tmp_path / "a.seg", codec, key).stat().st_size < len(IMAGE) / 2


def test_what_does_not_get_smaller_stays_plain() -> None:
    assert pack(Chance()(200_000)) is None
    mixed = b"".join(bytes(8000) + Chance()(123_072) for _ in range(6))
    assert pack(mixed) is None  # the sample compresses well, the whole segment does not
    flags, parts = encode_file(
        segment_of(1, message_record(1, 1, b"s", b"", Chance()(90_000))), CODEC_ZSTD, None, b""
    )
    assert flags == 0
    assert len(parts) == 1


@pytest.mark.parametrize("name", ["chacha", "aes", "chacha and zstd"])
def test_nothing_of_an_encrypted_image_is_in_the_file(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    data = written(tmp_path / "a.seg", codec, key).read_bytes()
    for word in (b"number", b"orders.a", IMAGE[64:96]):
        assert word not in data
    assert clear_meta(data, "a.seg") == META


def places_that_differ(one: bytes, other: bytes) -> list[int]:
    """Return the offsets at which the shorter one differs from the other."""
    size = min(len(one), len(other))
    bits = int.from_bytes(one[:size]) ^ int.from_bytes(other[:size])
    return [found.start() for found in re.finditer(rb"[^\0]", bits.to_bytes(size))]


@pytest.mark.parametrize("name", ENCODINGS)
def test_one_damaged_byte_is_one_damaged_byte_or_chunk(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    path = written(tmp_path / "a.seg", codec, key)
    data = path.read_bytes()
    for at in [*range(0, 300, 7), *range(300, len(data), len(data) // 50), len(data) - 1]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        found = read(path, key)
        differing = places_that_differ(found, IMAGE)
        assert abs(len(found) - len(IMAGE)) <= 1, at
        if codec:
            assert len({i // CHUNK_SIZE for i in differing}) <= 1, at
        else:
            assert len(differing) <= 1, at


def test_a_damaged_chunk_is_bytes_of_255(tmp_path: Path) -> None:
    path = written(tmp_path / "a.seg", CODEC_ZSTD, None)
    data = bytearray(path.read_bytes())
    sizes = [struct.unpack_from("<I", data, 64 + 16 + 12 * number)[0] for number in range(CHUNKS)]
    second = 64 + table_size(len(IMAGE)) + sizes[0]
    data[second + 20] ^= 1
    path.write_bytes(data)
    expected = IMAGE[:65_536] + b"\xff" * 65_536 + IMAGE[131_072:]
    assert read(path, None) == expected


def test_both_copies_of_the_table_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.seg", CODEC_ZSTD, None)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    assert read(path, None) == IMAGE
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord, match="its table of chunks is damaged, twice"):
        read(path, None)


@pytest.mark.parametrize(
    ("image_size", "count", "chunk_size"),
    [
        (1 << 60, 1 << 31, 65_536),
        (len(IMAGE), 1 << 31, 65_536),
        (65_536 * 900_000, 900_000, 65_536),
        (len(IMAGE), CHUNKS, 1 << 30),
        (1 << 29, (1 << 29) // 65_536, 65_536),
    ],
)
def test_a_forged_table_makes_nothing_of_its_sizes(
    tmp_path: Path, image_size: int, count: int, chunk_size: int
) -> None:
    path = written(tmp_path / "a.seg", CODEC_ZSTD, None)
    data = path.read_bytes()
    table = struct.pack("<QII", image_size, count, chunk_size) + data[80 : 80 + CHUNKS * 12]
    table += struct.pack("<Q", xxhash.xxh64_intdigest(table))
    path.write_bytes(data[:64] + table + struct.pack("<Q", 0))
    with pytest.raises(CorruptRecord):
        read(path, None)


def test_a_chunk_that_unpacks_to_more_than_its_size_is_damaged(tmp_path: Path) -> None:
    from cramjam import zstd

    packed = bytes(zstd.compress(b"a" * (1 << 24), level=1))
    head = OuterHeader(CODEC_ZSTD, 1, 1, 7, bytes(16), 64).pack()
    table = struct.pack("<QII", 65_536, 1, 65_536)
    table += struct.pack("<IQ", len(packed), xxhash.xxh64_intdigest(packed))
    table += struct.pack("<Q", xxhash.xxh64_intdigest(table))
    path = tmp_path / "a.seg"
    path.write_bytes(head + table + packed + table + struct.pack("<Q", len(table) + len(packed)))
    assert read(path, None)[64:] == b"\xff" * (65_536 - 64)


def test_a_key_of_another_stream_opens_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.seg", 0, KEY)
    with pytest.raises(Locked, match="is encrypted with a key of another stream"):
        read(path, a_key(CHACHA, "another"))
    with pytest.raises(Locked, match="is encrypted, and the stream has no key"):
        read(path, None)


def test_an_unknown_form_is_a_newer_format() -> None:
    for flags in (3, 0x200, 0x10000, 1 | 0x400):
        with pytest.raises(UnknownFormat, match=r"it needs pyjs-server >= 0\.1"):
            read_outer_header(OuterHeader(flags, 1, 1, 7, bytes(16), 64).pack(), "a.seg")
    assert read_outer_header(IMAGE[:64], "a.seg") is None
    assert read_outer_header(b"short", "a.seg") is None


def test_any_one_damaged_byte_of_an_outer_header_is_put_right() -> None:
    head = OuterHeader(CHACHA, 1, 1, 7, KEY.new_nonce(), 64).pack()
    for at in range(64):
        assert mended_header(head[:at] + bytes([head[at] ^ 0x5A]) + head[at + 1 :]) == head
    assert mended_header(b"xx" + head[2:]) is None
    assert mended_header(head[:63]) is None


# -- the open segment ------------------------------------------------------------------------------------------
def tail(path: Path, *pieces: bytes) -> TailEncryption:
    """Write the parts of an image in sequence."""
    encryption = TailEncryption(KEY, 1, 1, 7, META)
    fd = OsDisk().open_file(str(path), create=True)
    at = 0
    for piece in pieces:
        data, place = encryption.written(piece, at)
        OsDisk().write_at(fd, data, place)
        at += len(piece)
    OsDisk().close_file(fd)
    return encryption


@pytest.mark.parametrize("zeros", [0, 1, 100, 70_000, 300_000])
def test_reserved_space_is_no_part_of_the_image(tmp_path: Path, zeros: int) -> None:
    path = tmp_path / "a.seg"
    encryption = tail(path, IMAGE[:1000], IMAGE[1000:1001], IMAGE[1001:])
    assert path.stat().st_size == encryption.file_size(len(IMAGE))
    path.write_bytes(path.read_bytes() + bytes(zeros))
    assert read(path, KEY) == IMAGE


def test_an_image_may_end_with_any_byte(tmp_path: Path) -> None:
    for size in range(64, 800):  # some of these sizes end with bytes that are zero after encryption
        path = tmp_path / f"{size}.seg"
        tail(path, IMAGE[:size])
        path.write_bytes(path.read_bytes() + bytes(5000))
        assert read(path, KEY) == IMAGE[:size]


def test_a_write_that_was_cut_short_leaves_what_was_before(tmp_path: Path) -> None:
    path = tmp_path / "a.seg"
    encryption = tail(path, IMAGE[:1000], IMAGE[1000:2000])
    data = path.read_bytes()
    for cut in range(1, 1001, 13):
        end = encryption.shift + 1000 + cut
        path.write_bytes(data[:end] + bytes(4096))
        assert read(path, KEY)[:1000] == IMAGE[:1000]
    path.write_bytes(data[: encryption.shift + 10])
    assert read(path, KEY) == IMAGE[:10]
    path.write_bytes(data[: encryption.shift - 10])
    assert read(path, KEY) == b""
