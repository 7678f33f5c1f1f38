"""Inflation of compressed messages, piece by piece, up to a limit: a few bytes may inflate to gigabytes.

Source: RFC 7692, section 7.2.2; limits of nats-server 2.15, tests/conformance/test_websocket_compression.py.
"""

from __future__ import annotations

import zlib

PIECE_SIZE = 64 * 1024  # bytes inflated at once: some 0.2 ms
TAIL = b"\x00\x00\xff\xff\x01\x00\x00\xff\xff"  # ends a flush and the stream
PACKED_FACTOR = 8  # a compressed message may have so many times max_payload
PACKED_MAX = 64 * 1024 * 1024


class InflateFailed(ValueError):
    """The message is damaged, or too large."""


class Inflater:
    """The inflation of one message at a time."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None
        self._rest = b""
        self._room = 0  # bytes that the message may still have

    @property
    def busy(self) -> bool:
        """Whether a message is not complete."""
        return self._stream is not None

    def begin(self, packed: bytes, size_max: int) -> None:
        """Take a compressed message, which may have `size_max` bytes."""
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._rest = packed + TAIL
        self._room = size_max

    def next(self) -> bytes:
        """Return the next piece; not `busy` after the last one.

        Raises:
            InflateFailed: the message is damaged; or too large, and `size_max` bytes of it were returned.
        """
        stream = self._stream
        assert stream is not None
        if not self._room:
            self._stream = None
            if stream.decompress(self._rest, 1):
                raise InflateFailed("maximum payload exceeded")
            return b""
        try:
            piece = stream.decompress(self._rest, min(PIECE_SIZE, self._room))
        except zlib.error:
            self._stream = None
            raise InflateFailed("flate: corrupt input") from None
        self._rest = stream.unconsumed_tail
        self._room -= len(piece)
        if stream.eof or (not piece and not self._rest):
            self._stream = None
            self._rest = b""
        return piece


def packed_max(max_payload: int) -> int:
    """Return the maximum size of a compressed message in bytes."""
    return min(max_payload * PACKED_FACTOR, PACKED_MAX)
