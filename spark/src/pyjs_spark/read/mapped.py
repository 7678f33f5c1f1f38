"""Records read from the server's own segment files, by entries that the server has sent; for workers on its host.

A file is used if its header has the expected number and the stream's incarnation, and a record of it only if its
checksum fits. Compressed or encrypted files are left to the server, which sends them decoded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from pyjs_spark.decode.entries import CHAINED, DAMAGED, ENTRY, ENTRY_SIZE, TAKEN, Decoding
from pyjs_spark.errors import BadStore, SparkError, StoreKeyNeeded
from pyjs_spark.store.image import HEADER_SIZE, Image, Unusable, header_in, open_image
from pyjs_spark.store.pieces import pieces

if TYPE_CHECKING:
    from pyjs_spark.nats.client import Client
    from pyjs_spark.read.bulk import Chunk


class Files:
    """The segment files of a stream on this machine."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._number = 0
        self._image: Image | None = None  # of that number

    @classmethod
    def of(cls, client: Client, stream: str) -> Files | None:
        """Return the files of a stream, or None if they are not here, or not ours to read."""
        try:
            listed = client.api(
                f"PYJS.BULK.LIST.{stream}", {"offset": 1 << 31}
            )  # no segments, but where they are
        except SparkError:
            return None
        directory = listed.get("directory", "")
        is_here = bool(directory) and os.access(directory, os.R_OK | os.X_OK)
        return cls(directory) if is_here else None

    def decode(self, decoder: Decoding, chunk: Chunk, at: int) -> tuple[int, int]:
        """Make rows of a chunk's entries from number `at` on; return the first that is none, and why."""
        if at >= chunk.messages:
            return at, TAKEN
        image = self._image_of(chunk.segment, chunk.incarnation)
        if image is None:
            return at, DAMAGED
        rows: Any = np.frombuffer(chunk.table, ENTRY)[at:]
        for piece in pieces(rows):
            data = image.read(piece.base, piece.size)
            table = chunk.table[: (at + piece.end) * ENTRY_SIZE]
            found = decoder.add(table, at + piece.first, data, piece.base, CHAINED)
            if decoder.state != TAKEN:
                return found, decoder.state
        return chunk.messages, TAKEN

    def _image_of(self, number: int, incarnation: int) -> Image | None:
        """Return the image of a plain segment of the stream, or None if there is none, or it is another one."""
        if self._image is not None and self._number == number:
            self._image.refresh()
            return self._image
        self.close()
        try:
            image = open_image(f"{self._directory}/{number:08d}.seg", None)
        except (OSError, BadStore, StoreKeyNeeded, Unusable):
            return None
        header = header_in(image.read(0, HEADER_SIZE))
        is_same = header is not None and (header.number, header.incarnation) == (number, incarnation)
        if not is_same or image.header is not None:
            image.close()
            return None
        self._number, self._image = number, image
        return image

    def close(self) -> None:
        """Close the open maps."""
        if self._image is not None:
            self._image.close()
            self._image = None
