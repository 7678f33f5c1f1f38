"""Framed S2, which nats-server uses to compress archives and `.blk` files. Snappy frames can be read too.

    stream = { kind u8 | size u24 | body of size bytes }, numbers little-endian
    0xff   identifier "S2sTwO" or "sNaPpY"; the first frame
    0x00   masked CRC-32C of the decoded bytes u32 | a block (s2.pyx)
    0x01   masked CRC-32C u32 | the bytes themselves
    0x80 .. 0xfe   padding, an index and other skippable frames; 0x02 .. 0x7f are unknown and refused

One frame is decoded at a time, into at most 4 MiB, whatever size its header claims.
Source: google/snappy framing_format.txt; klauspost/compress/s2 (larger blocks, and its own identifier).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cramjam import snappy

from pyjs.archive.s2 import decode_block, masked_crc, with_repeats

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTIFIERS = (b"S2sTwO", b"sNaPpY")
HEAD = b"\xff\x06\x00\x00S2sTwO"
BLOCK_SIZE = 64 * 1024  # bytes of data in a frame: compressed in less than a millisecond
DECODED_MAX = 4 << 20
FRAME_MAX = DECODED_MAX + (64 << 10)  # bytes of a frame; incompressible data grow slightly
COMPRESSED, PLAIN, IDENTIFIER = 0x00, 0x01, 0xFF
SKIPPABLE = 0x80


class BadArchive(ValueError):
    """Raised for bytes that are not a valid archive."""


def frame(data: bytes | memoryview) -> bytes:
    """Return the frame for `data`, which has at most BLOCK_SIZE bytes."""
    assert len(data) <= BLOCK_SIZE
    crc = masked_crc(data).to_bytes(4, "little")
    packed = with_repeats(bytes(snappy.compress_raw(data)))
    kind, body = (COMPRESSED, packed) if len(packed) < len(data) else (PLAIN, bytes(data))
    return bytes((kind,)) + (len(body) + 4).to_bytes(3, "little") + crc + body


class FrameWriter:
    """An encoder that divides a sequence of bytes into frames."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._began = False

    def add(self, data: bytes | bytearray) -> bytes:
        """Add `data`; return the bytes of the frames that are now full, or b"" if there are none."""
        self._held += data
        return self._frames(len(self._held) // BLOCK_SIZE * BLOCK_SIZE)

    def finish(self) -> bytes:
        """Return the bytes of the last frame, or b"" if no data are left."""
        return self._frames(len(self._held))

    def _frames(self, size: int) -> bytes:
        out = [] if self._began or not size else [HEAD]
        self._began = self._began or size > 0
        with memoryview(self._held) as held:
            out += [frame(held[at : min(at + BLOCK_SIZE, size)]) for at in range(0, size, BLOCK_SIZE)]
        del self._held[:size]
        return b"".join(out)


class FrameReader:
    """A decoder of frames whose bytes arrive in pieces of any size."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._began = False

    @property
    def is_between(self) -> bool:
        """Whether the reader holds no bytes of an incomplete frame."""
        return not self._held

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes of each frame that `data` completes, or b"" for a frame without data.

        Raises:
            BadArchive: a frame is damaged, too large or of an unknown kind, or the identifier is missing.
        """
        self._held += data
        while len(self._held) >= 4:
            kind, size = self._held[0], int.from_bytes(self._held[1:4], "little")
            self._check_head(kind, size)
            if len(self._held) < 4 + size:
                return
            body = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            yield self._decoded(kind, body)

    def _check_head(self, kind: int, size: int) -> None:
        if not self._began and kind != IDENTIFIER:
            raise BadArchive("the archive does not begin with an S2 identifier")
        if IDENTIFIER > kind > PLAIN and kind < SKIPPABLE:
            raise BadArchive(f"a frame of kind {kind:#x} cannot be read")
        if size > FRAME_MAX or (kind <= PLAIN and size < 4) or (kind == IDENTIFIER and size != 6):
            raise BadArchive(f"a frame of kind {kind:#x} claims {size} bytes")

    def _decoded(self, kind: int, body: bytes) -> bytes:
        if kind == IDENTIFIER:
            if body not in IDENTIFIERS:
                raise BadArchive("the archive does not begin with an S2 identifier")
            self._began = True
            return b""
        if kind > PLAIN:
            return b""
        try:
            data = decode_block(memoryview(body)[4:], DECODED_MAX) if kind == COMPRESSED else body[4:]
        except ValueError as error:
            raise BadArchive(str(error)) from None
        if len(data) > DECODED_MAX or masked_crc(data) != int.from_bytes(body[:4], "little"):
            raise BadArchive("a frame does not fit its checksum")
        return data
