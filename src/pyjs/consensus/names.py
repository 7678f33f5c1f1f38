"""Numbers of nodes, computed from the names of their servers, so that operators need not configure numbers.

Two servers whose names have the same number (one pair in two billion) cannot be in one cluster: they refuse
each other.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

_BITS = (1 << 31) - 1


def number_of(name: str) -> int:
    """Return the number of the server with this name: 1 to 2^31 - 1."""
    return xxh64_intdigest(name.encode()) & _BITS or 1


def same_number(name: str, other: str) -> str:
    """Return the reason why two servers cannot be in one cluster, or "" if their numbers differ."""
    number = number_of(name)
    if number != number_of(other):
        return ""
    if name == other:
        return f'two servers have the name "{name}": give each one its own server_name'
    return f'the names "{name}" and "{other}" have the same number {number}: change the server_name of one of them'
