"""Ascending sequences as `Skips` takes them: the first, then the distance to each next one, as LEB128."""

from __future__ import annotations

from collections.abc import Iterable


def pack(seqs: Iterable[int]) -> bytes:
    """Return ascending sequences, packed."""
    before, out = 0, b""
    for seq in seqs:
        out += leb128(seq - before)
        before = seq
    return out


def leb128(number: int) -> bytes:
    """Return a number of seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
