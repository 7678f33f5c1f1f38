"""Ascending sequences in the form that `Skips` reads: the first one, then the distances, as LEB128 numbers."""

from __future__ import annotations

from collections.abc import Iterable


def pack(seqs: Iterable[int]) -> bytes:
    """Return ascending sequences in packed form."""
    before, out = 0, b""
    for seq in seqs:
        out += leb128(seq - before)
        before = seq
    return out


def leb128(number: int) -> bytes:
    """Encode a number with seven bits in each byte, the lowest bits first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
