"""Decompression in pieces, with a limit for the size."""

from __future__ import annotations

import pytest
from tests.support.websocket import packed

from pyjs.server.websocket.inflate import INPUT_SIZE, PIECE_SIZE, InflateFailed, Inflater, packed_max


def inflated(data: bytes, most: int) -> tuple[bytes, int]:
    """Return the message and the number of pieces."""
    inflater = Inflater()
    inflater.begin(data, most)
    text, pieces = b"", 0
    while inflater.busy:
        piece = inflater.next()
        assert len(piece) <= PIECE_SIZE
        text += piece
        pieces += 1
    return text, pieces


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE_SIZE, 300_000])
def test_a_message_comes_in_pieces(size: int) -> None:
    text, pieces = inflated(packed(b"x" * size), 1_000_000)
    assert text == b"x" * size
    assert pieces >= size // PIECE_SIZE


def test_a_message_may_have_just_the_limit() -> None:
    assert inflated(packed(b"x" * 1000), 1000)[0] == b"x" * 1000


def test_more_than_the_limit_is_refused_after_the_limit() -> None:
    inflater = Inflater()
    inflater.begin(packed(b"x" * 1001), 1000)
    assert inflater.next() == b"x" * 1000
    with pytest.raises(InflateFailed, match="maximum payload exceeded"):
        inflater.next()
    assert not inflater.busy


def test_damaged_data_is_refused() -> None:
    with pytest.raises(InflateFailed, match="corrupt"):
        inflated(b"\xff\xff\xff", 1000)


def test_the_compressed_size_has_a_limit() -> None:
    assert packed_max(1000) == 8000
    assert packed_max(1 << 30) == 64 << 20


def test_blocks_without_content_come_in_steps() -> None:
    inflater = Inflater()
    inflater.begin(b"\x00\x00\x00\xff\xff" * 20_000 + b"\x00", 1000)
    steps = 0
    while inflater.busy:
        assert inflater.next() == b""
        steps += 1
    assert steps >= 100_000 // INPUT_SIZE


def test_blocks_without_content_may_follow_a_message_of_the_largest_size() -> None:
    message = packed(b"x" * 1000) + b"\x00\x00\xff\xff" + b"\x00\x00\x00\xff\xff" * 9 + b"\x00"
    assert inflated(message, 1000)[0] == b"x" * 1000
