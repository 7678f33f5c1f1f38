"""Inflation of compressed messages, piece by piece and up to a limit, since few bytes may inflate to gigabytes.

Source: RFC 7692, section 7.2.2; limits of nats-server 2.15, tests/conformance/test_websocket_compression.py.
"""

from __future__ import annotations

import zlib

PIECE_SIZE = 64 * 1024  # bytes inflated at once: some 0.2 ms
INPUT_SIZE = 16 * 1024  # bytes of input at once: this many bytes of empty blocks take up to 2 ms
TAIL = b"\x00\x00\xff\xff\x01\x00\x00\xff\xff"  # the end of a flush, followed by the end of the stream
PACKED_FACTOR = 8  # maximum size of a compressed message, in multiples of max_payload
PACKED_MAX = 64 * 1024 * 1024


class InflateFailed(ValueError):
    """Raised when a compressed message is damaged, or inflates to too many bytes."""


class Inflater:
    """A decompressor of WebSocket messages, which inflates one message at a time, in pieces."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None
        self._packed = memoryview(b"")
        self._at = 0  # offset in `_packed` up to which `_stream` has read
        self._rest = b""  # input that `_stream` returned without using it
        self._room = 0  # bytes that the message may still inflate to

    @property
    def busy(self) -> bool:
        """Whether a message is not completely inflated yet."""
        return self._stream is not None

    def begin(self, packed: bytes, size_max: int) -> None:
        """Start to inflate a compressed message, to at most `size_max` bytes."""
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._packed = memoryview(packed + TAIL)
        self._at = 0
        self._rest = b""
        self._room = size_max

    def next(self) -> bytes:
        """Return the next piece, which may be empty. After the last piece, `busy` is false.

        Raises:
            InflateFailed: the message is damaged, or inflates to more than `size_max` bytes.
        """
        stream = self._stream
        assert stream is not None
        given = self._rest or self._input()
        try:
            piece = stream.decompress(given, min(PIECE_SIZE, self._room) or 1)
        except zlib.error:
            self._end()
            raise InflateFailed("flate: corrupt input") from None
        if piece and not self._room:
            self._end()
            raise InflateFailed("maximum payload exceeded")
        self._rest = stream.unconsumed_tail
        self._room -= len(piece)
        if stream.eof or not (piece or self._rest or self._at < len(self._packed)):
            self._end()
        return piece

    def _input(self) -> memoryview:
        """Return the next part of the compressed message."""
        part = self._packed[self._at : self._at + INPUT_SIZE]
        self._at += len(part)
        return part

    def _end(self) -> None:
        """Release the message."""
        self._stream = None
        self._packed = memoryview(b"")
        self._rest = b""


def packed_max(max_payload: int) -> int:
    """Return the maximum size of a compressed message, in bytes, for a limit of `max_payload` bytes."""
    return min(max_payload * PACKED_FACTOR, PACKED_MAX)
