"""Pieces of a segment that are read at once: groups of wanted records that are close to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyjs_spark.decode.entries import CHECKSUM_SIZE, EXTENDED, RECORD_SIZE_MIN

PIECE_SIZE = 1 << 20  # bytes
HOLE_SIZE = 1 << 16  # unwanted bytes from which on they are skipped


class Piece(NamedTuple):
    """Entries [first, end), whose records are in `size` bytes from `base` on."""

    first: int
    end: int
    base: int
    size: int


def pieces(rows: Any) -> Iterator[Piece]:
    """Yield the pieces with the records of these entries, in order."""
    begins = rows["offset"].astype(np.int64)
    ends = begins + rows["subject_len"] + rows["size"] + RECORD_SIZE_MIN
    ends += np.where(rows["flags"] & EXTENDED, 16, 0)
    at = 0
    while at < len(rows):
        end = max(at + 1, int(np.searchsorted(ends, begins[at] + PIECE_SIZE, side="right")))
        holes = np.flatnonzero(begins[at + 1 : end] - ends[at : end - 1] > HOLE_SIZE)
        end = at + 1 + int(holes[0]) if len(holes) else end
        base = int(begins[at]) - CHECKSUM_SIZE
        yield Piece(at, end, base, int(ends[end - 1]) - base)
        at = end
