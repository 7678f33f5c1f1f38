"""Output of one WebSocket connection as frames: one message for each write of the session.

Browsers get frames of at most 4 KiB, as from nats-server, so an uncompressed write of more bytes becomes several
messages; a compressed write is always one message. Each message is compressed without the window
of the previous one (`server_no_context_takeover`), so that an idle connection needs no compressor. ISA-L
compresses, or zlib if ISA-L is missing; both write the same format. zlib always inflates the input from clients
(inflate.py).

A turn writes at most a portion to each connection (`Link.portion`), within its share of time, so that
compression does not delay other work. Large pieces of a message are compressed separately: if many connections get
the same body, each after a different line, the body is compressed only once. Each compressed part ends at a byte
boundary, so that all parts together form one deflate stream.

Source: RFC 6455, section 5; RFC 7692, section 7.2; RFC 1951, section 3.2.4.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

try:
    from isal import isal_zlib as packer  # 4 times as fast as zlib, and better compression
except ImportError:  # not available for every processor
    packer = zlib  # type: ignore[misc]

FIN = 0x80
COMPRESSED = 0x40  # RSV1
CONTINUATION, BINARY, PONG = 0, 2, 10
FRAME_MAX_BROWSER = 4096  # bytes of a frame's payload
COMPRESSED_MIN = 65  # bytes of a message; compression is not worthwhile for less
# Maximum size of a compressed message, and of one write to a client that requested compression: about 1 ms.
COMPRESSED_MAX = 512 * 1024
APART_MIN = 16 * 1024  # bytes of a piece that is compressed separately
KEPT_MIN = 1024  # compressed parts of at least this many bytes are cached
KEPT = 4  # cached parts
KEPT_S = 0.1  # seconds for which compressed parts are cached
LEVEL = 1
SYNC = b"\x00\x00\xff\xff"  # the end of a flush; the one after the last part is not sent
Deflate = Callable[[bytes, int], bytes]  # arguments: a part, bits of the window


@dataclass(frozen=True, slots=True)
class Terms:
    """The negotiated parameters of an upgrade."""

    masked: bool = True  # the client masks its frames
    window_bits: int = 0  # window of compressed output, as an exponent of two; 0: no compression
    frame_max: int = 0  # bytes of a frame's payload; 0: no limit
    whole_compressed: bool = False  # a compressed message is always one frame, regardless of `frame_max`


def deflated(part: bytes, bits: int) -> bytes:
    """Return `part` compressed with a window of 2 ** `bits` bytes; the result ends with SYNC."""
    compressor = packer.compressobj(LEVEL, zlib.DEFLATED, -bits)
    packed: bytes = compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return packed


def stored(part: bytes) -> bytes:
    """Return a short `part` as an uncompressed deflate block; the result ends with SYNC."""
    return struct.pack("<BHH", 0, len(part), len(part) ^ 0xFFFF) + part + b"\x00" + SYNC


class Packer:
    """The frame encoder of all connections of one port; it compresses a body for many connections only once."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        self._kept: deque[tuple[int, bytes, bytes]] = deque(maxlen=KEPT)  # bits, part, compressed part

    def frames_of(self, pieces: list[bytes], terms: Terms) -> list[bytes]:
        """Return the heads and payloads of the frames for `pieces`, in order."""
        return frames_of(pieces, terms, self._deflated)

    def _deflated(self, part: bytes, bits: int) -> bytes:
        if len(part) < KEPT_MIN:
            return deflated(part, bits)
        for entry in self._kept:
            kept_bits, kept, packed = entry
            if kept_bits == bits and kept == part:  # the comparison is fast: it ends at the first difference
                self._kept.remove(entry)
                self._kept.append(entry)  # the most recently used entry is dropped last
                return packed
        packed = deflated(part, bits)
        if not self._kept:
            self._call_later(KEPT_S, self._kept.clear)
        self._kept.append((bits, part, packed))
        return packed


def frame_head(first: int, size: int) -> bytes:
    """Return the head of an unmasked frame with first byte `first` and a payload of `size` bytes."""
    if size <= 125:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack(">BBH", first, 126, size)
    return struct.pack(">BBQ", first, 127, size)


def frames_of(pieces: list[bytes], terms: Terms, deflate: Deflate = deflated) -> list[bytes]:
    """Return the heads and payloads of the frames for `pieces`, in order."""
    size = sum(map(len, pieces))
    if terms.window_bits and COMPRESSED_MIN <= size <= COMPRESSED_MAX:
        return _compressed(_packed(pieces, terms.window_bits, deflate), terms)
    if terms.frame_max and size > terms.frame_max:
        return _messages(b"".join(pieces), terms.frame_max)
    return [frame_head(FIN | BINARY, size), *pieces]


def _messages(data: bytes, most: int) -> list[bytes]:
    frames: list[bytes] = []
    for at in range(0, len(data), most):
        part = data[at : at + most]
        frames += (frame_head(FIN | BINARY, len(part)), part)
    return frames


def _packed(pieces: list[bytes], bits: int, deflate: Deflate) -> list[bytes]:
    """Return `pieces` as parts of one deflate stream, without the SYNC at its end."""
    parts: list[bytes] = []
    for apart, some in groupby(pieces, lambda piece: len(piece) >= APART_MIN):
        if apart:
            parts += [deflate(piece, bits) for piece in some]
            continue
        joined = b"".join(some)
        lone = len(joined) == sum(map(len, pieces))
        parts.append(deflate(joined, bits) if lone or len(joined) >= COMPRESSED_MIN else stored(joined))
    parts[-1] = parts[-1][: -len(SYNC)]
    return parts


def _compressed(parts: list[bytes], terms: Terms) -> list[bytes]:
    size = sum(map(len, parts))
    most = 0 if terms.whole_compressed else terms.frame_max
    if not most or size <= most:
        return [frame_head(FIN | COMPRESSED | BINARY, size), *parts]
    packed = b"".join(parts)
    frames: list[bytes] = []
    for at in range(0, size, most):
        part = packed[at : at + most]
        first = (0 if at else COMPRESSED | BINARY) | (FIN if at + most >= size else 0)
        frames += (frame_head(first, len(part)), part)
    return frames
