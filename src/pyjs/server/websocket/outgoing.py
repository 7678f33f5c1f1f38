"""Output of one WebSocket connection as frames: one message for each write of the session.

Browsers get frames of at most 4 KiB, as from nats-server. Messages are compressed one by one, without the window of
the one before (`server_no_context_takeover`), so that an idle connection holds no compressor. ISA-L compresses, zlib
where it is not; both write the same format. What clients send is inflated by zlib only (inflate.py).

Source: RFC 6455, section 5; RFC 7692, section 7.2.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

try:
    from isal import isal_zlib as packer  # 4 times as fast as zlib, and packs more
except ImportError:  # not on every processor
    packer = zlib  # type: ignore[misc]

FIN = 0x80
COMPRESSED = 0x40  # RSV1
CONTINUATION, BINARY, PONG = 0, 2, 10
FRAME_MAX_BROWSER = 4096  # bytes of a frame's payload
COMPRESSED_MIN = 65  # bytes of a message from which compression pays
# Bytes of a message up to which it does not delay other connections: some 2 ms with zlib.
COMPRESSED_MAX = 512 * 1024
# Bytes that all connections of a port compress in one iteration of the loop, some 20 ms; later messages of the
# iteration are not compressed: one message to a thousand subscribers must not stop everybody for a second.
COMPRESSED_ITERATION_MAX = 2 * 1024 * 1024
COMPRESSOR_COST = 2048  # of a compressor, in bytes
LEVEL = 1
SYNC_SIZE = 4  # the end of a flush, which is not sent


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of an upgrade."""

    masked: bool = True  # the client masks its frames
    window_bits: int = 0  # of compressed output; 0: nothing is compressed
    frame_max: int = 0  # bytes of a frame's payload; 0: no limit
    whole_compressed: bool = False  # a compressed message is one frame nevertheless


class Packer:
    """Frames of all connections of one port, with the limit of compression."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._left = COMPRESSED_ITERATION_MAX
        self._renewing = False

    def frames_of(self, pieces: list[bytes], terms: Terms) -> list[bytes]:
        """Return `pieces` as heads and payloads of frames, compressed if this iteration of the loop allows it."""
        if terms.window_bits and not self._allows(sum(map(len, pieces))):
            terms = replace(terms, window_bits=0)
        return frames_of(pieces, terms)

    def _allows(self, size: int) -> bool:
        if not COMPRESSED_MIN <= size <= COMPRESSED_MAX:
            return True  # it is not compressed in any case
        if self._left <= 0:
            return False
        self._left -= size + COMPRESSOR_COST
        if not self._renewing:
            self._renewing = True
            self._call_soon(self._renew)
        return True

    def _renew(self) -> None:
        self._renewing = False
        self._left = COMPRESSED_ITERATION_MAX


def frame_head(first: int, size: int) -> bytes:
    """Return the head of an unmasked frame; `first` is its first byte."""
    if size <= 125:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack(">BBH", first, 126, size)
    return struct.pack(">BBQ", first, 127, size)


def frames_of(pieces: list[bytes], terms: Terms) -> list[bytes]:
    """Return `pieces` as heads and payloads of frames, in their order."""
    size = sum(map(len, pieces))
    if terms.window_bits and COMPRESSED_MIN <= size <= COMPRESSED_MAX:
        return _compressed(pieces, terms)
    if terms.frame_max and size > terms.frame_max:
        return _messages(b"".join(pieces), terms.frame_max)
    return [frame_head(FIN | BINARY, size), *pieces]


def _messages(data: bytes, most: int) -> list[bytes]:
    frames: list[bytes] = []
    for at in range(0, len(data), most):
        part = data[at : at + most]
        frames += (frame_head(FIN | BINARY, len(part)), part)
    return frames


def _compressed(pieces: list[bytes], terms: Terms) -> list[bytes]:
    compressor = packer.compressobj(LEVEL, zlib.DEFLATED, -terms.window_bits)
    packed = b"".join((*map(compressor.compress, pieces), compressor.flush(zlib.Z_SYNC_FLUSH)))
    packed = packed[:-SYNC_SIZE]
    most = 0 if terms.whole_compressed else terms.frame_max
    if not most or len(packed) <= most:
        return [frame_head(FIN | COMPRESSED | BINARY, len(packed)), packed]
    frames: list[bytes] = []
    for at in range(0, len(packed), most):
        part = packed[at : at + most]
        first = (0 if at else COMPRESSED | BINARY) | (FIN if at + most >= len(packed) else 0)
        frames += (frame_head(first, len(part)), part)
    return frames
