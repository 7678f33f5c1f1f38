"""The bytes of a message block as they are stored: plain, or compressed.

    file       = block | compressed
    compressed = "cmp" | algorithm u8, 1: S2 | size of the block uvarint | frames of S2 | check u64 of the last record

The frames decode to the block without its last eight bytes, which follow the frames uncompressed.
Source: nats-server's source, server/filestore.go since 2.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.archive.blocks import BadBlock
from pyjs.archive.entries import VARINT_MAX
from pyjs.archive.frames import FrameReader

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK, S2 = b"cmp", 1
CHECK_SIZE = 8


class BlockBytes:
    """A decoder of a stored block whose bytes arrive in pieces of any size."""

    def __init__(self) -> None:
        # The first bytes, until the kind is known; of a compressed block, also the last eight bytes.
        self._held = b""
        self._frames: FrameReader | None = None
        self._is_plain = False

    def add(self, data: bytes) -> Iterator[bytes]:
        """Add bytes of the stored block; yield the bytes of the block that can be decoded now.

        Raises:
            BadArchive: the bytes are damaged, or compressed with an unknown algorithm.
        """
        if self._is_plain:
            yield data
            return
        self._held += data
        if self._frames is None and not self._begin():
            if self._is_plain:
                yield self._rest()
            return
        size = len(self._held) - CHECK_SIZE
        if self._frames is not None and size > 0:
            ready, self._held = self._held[:size], self._held[size:]
            yield from self._frames.add(ready)

    def finish(self) -> bytes:
        """Return the last bytes of the block. Raises BadBlock if the block is compressed and incomplete."""
        if self._frames is not None and (not self._frames.is_between or len(self._held) < CHECK_SIZE):
            raise BadBlock("the compressed block ends early", 0)
        return self._rest()

    def _rest(self) -> bytes:
        rest, self._held = self._held, b""
        return rest

    def _begin(self) -> bool:
        """Determine the kind of the block; return True when the header of a compressed block has been read.

        Raises:
            BadBlock: the algorithm is unknown, or the size is invalid.
        """
        held = self._held
        self._is_plain = not (held[:3] == MARK[: len(held)] and (len(held) < 4 or held[3] != 0))
        if self._is_plain or len(held) < 5:
            return False
        if held[3] != S2:
            raise BadBlock(f"the block is compressed with the unknown algorithm {held[3]}", 0)
        end = next((at for at in range(4, min(len(held), 4 + VARINT_MAX)) if held[at] < 0x80), 0)
        if not end and len(held) >= 4 + VARINT_MAX:
            raise BadBlock("the compressed block has no valid size", 0)
        if end:
            self._frames, self._held = FrameReader(), held[end + 1 :]
        return end > 0
