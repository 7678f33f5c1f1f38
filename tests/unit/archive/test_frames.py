"""Frames are written and read back from pieces of any size, and invalid ones are refused."""

from __future__ import annotations

import os

import pytest
from cramjam import snappy

from pyjs.archive.frames import HEAD, BadArchive, FrameReader, FrameWriter, frame


def framed(data: bytes) -> bytes:
    writer = FrameWriter()
    return writer.add(data) + writer.finish()


def read(data: bytes, piece: int = 1 << 20) -> bytes:
    reader = FrameReader()
    out = [part for at in range(0, len(data), piece) for part in reader.add(data[at : at + piece])]
    assert reader.is_between
    return b"".join(out)


@pytest.mark.parametrize("data", [b"", b"a", b"bread " * 50_000, os.urandom(200_000)])
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_what_was_written_is_read(data: bytes, piece: int) -> None:
    assert read(framed(data), piece) == data


def test_frames_of_snappy_are_read() -> None:
    data = b"one loaf of bread " * 10_000
    assert read(bytes(snappy.compress(data))) == data


def test_very_compressible_data_take_a_few_bytes_for_each_block() -> None:
    assert len(framed(bytes(1 << 20))) < 500


def test_both_identifiers_padding_and_an_index_are_accepted() -> None:
    data = b"\xff\x06\x00\x00S2sTwO" + b"\xfe\x02\x00\x00xx" + b"\x99\x01\x00\x00i" + frame(b"bread") + HEAD
    assert read(data) == b"bread"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (frame(b"a"), "does not begin"),
        (b"\xff\x06\x00\x00nonono", "does not begin"),
        (HEAD + b"\x02\x00\x00\x00", "cannot be read"),
        (HEAD + b"\x00\xff\xff\xff", "claims 16777215 bytes"),
        (HEAD + b"\x01\x03\x00\x00abc", "claims 3 bytes"),
        (HEAD + frame(b"bread")[:-1] + b"x", "checksum"),
        (HEAD + b"\x00\x05\x00\x00\x00\x00\x00\x00\xff", "S2 block"),
    ],
)
def test_an_invalid_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(BadArchive, match=text):
        list(FrameReader().add(data))
