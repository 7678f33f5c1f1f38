"""Blocks of S2: literals, copies and repeats, and invalid blocks."""

from __future__ import annotations

import random

import pytest
from cramjam import snappy

from pyjs.archive.s2 import decode_block, masked_crc, with_repeats


def test_a_snappy_block_is_decoded() -> None:
    data = b"one loaf of bread, one loaf of cake, " * 100
    assert decode_block(bytes(snappy.compress_raw(data)), 1 << 20) == data


@pytest.mark.parametrize("size", [*range(80), 255, 256, 263, 264, 268, 300, 2047, 2048, 5000, 65535, 65536])
@pytest.mark.parametrize("offset", [1, 4, 100, 2047, 2048, 3000])
def test_a_series_of_copies_becomes_one_repeat(offset: int, size: int) -> None:
    data = (random.Random(5).randbytes(offset) * (size // offset + 2))[: min(offset + size, 1 << 16)]
    block = bytes(snappy.compress_raw(data))
    packed = with_repeats(block)
    assert decode_block(packed, 1 << 20) == data
    assert len(packed) <= len(block)
    # after many bytes without a match, Snappy skips the beginning of a match
    if size > 200 and offset <= 100:
        assert len(packed) < offset + 30


def test_records_of_any_kind_are_the_same_after_it() -> None:
    rng = random.Random(5)
    for _ in range(500):
        words = [rng.randbytes(rng.randrange(1, 3000)) for _ in range(rng.randrange(1, 8))]
        data = b"".join(rng.choice(words) * rng.randrange(1, 40) for _ in range(rng.randrange(60)))[: 1 << 16]
        block = bytes(snappy.compress_raw(data))
        packed = with_repeats(block)
        assert decode_block(packed, 1 << 20) == data
        assert len(packed) <= len(block)


def test_copies_shorter_than_a_repeat_stay() -> None:
    block = b"\x0a\x0cabcd\x0a\x04\x00\x0a\x04\x00"  # three bytes, starting 4 bytes back, twice
    assert decode_block(with_repeats(block), 100) == decode_block(block, 100) == b"abcdabcdab"


def test_the_checksum_is_that_of_the_framing_format() -> None:
    # CRC-32C of the digits is 0xE3069283; the mask rotates it by 15 and adds a constant.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_the_checksum_is_the_same_without_the_instruction() -> None:
    rng = random.Random(5)
    for size in range(40):
        data = rng.randbytes(size)
        assert masked_crc(data) == masked_crc(data, by_table=True)


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"\x00", b""),
        (b"\x04\x0cabcd", b"abcd"),
        (b"\x08\x0cabcd\x01\x04", b"abcdabcd"),  # 4 bytes, starting 4 bytes back
        (b"\x05\x00a\x01\x01", b"aaaaa"),  # a copy that overlaps with itself
        (b"\x08\x0cabcd\x0e\x04\x00", b"abcdabcd"),
        (b"\x08\x0cabcd\x0f\x04\x00\x00\x00", b"abcdabcd"),
        (b"\x0c\x0cabcd\x01\x04\x01\x00", b"abcdabcdabcd"),  # a repeat of the previous offset
        (b"\x10\x0cabcd\x01\x04\x15\x00\x00", b"abcdabcdabcdabcd"),  # with its length in one byte: 0 + 8
        (b"\x8c\x02\x0cabcd\x01\x04\x19\x00\x00\x00", b"abcd" * 67),  # in two bytes: 0 + 260
        (b"\x8c\x80\x04\x0cabcd\x01\x04\x1d\x00\x00\x00\x00", b"abcd" * 16387),  # in three: 0 + 65540
    ],
)
def test_an_element_is_decoded(block: bytes, data: bytes) -> None:
    assert decode_block(block, 1 << 20) == data


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x05\x0cabcd",  # shorter than the header states
        b"\x03\x0cabcd",  # longer than the header states
        b"\x04\x0cabc",
        b"\x08\x0cabcd\x01\x05",  # an offset before the beginning
        b"\x08\x0cabcd\x01\x00",  # a repeat before any copy
        b"\x08\x0cabcd\x01",
        b"\x08\x0cabcd\x0e\x00\x00",
        b"\x04\xfc\xff\xff\xff\xffabcd",
        b"\xff\xff\xff\x0f\x00a",  # the header states a huge size
    ],
)
def test_an_invalid_block_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="S2 block"):
        decode_block(block, 1 << 20)


def test_random_blocks_are_refused_or_fill_what_they_claim() -> None:
    rng = random.Random(5)
    for _ in range(20_000):
        block = bytes((rng.randrange(64),)) + rng.randbytes(rng.randrange(40))
        try:
            data = decode_block(block, 64)
        except ValueError:
            continue
        assert len(data) == block[0]
