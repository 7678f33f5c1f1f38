"""Short names of base-62 digits: random ones for ids, inboxes and consumers, and digests of longer texts."""

from __future__ import annotations

from pyjs.base.rng import Rng

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def token(rng: Rng, length: int) -> str:
    """Return `length` base-62 digits (62**length names; 22 digits are beyond collision, as a NUID is)."""
    value = int.from_bytes(rng.randbytes(length + 2), "little")
    digits = []
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits.append(DIGITS[digit])
    return "".join(digits)


def nuid(rng: Rng) -> str:
    """Return a 22-digit unique id."""
    return token(rng, 22)


def short_hash(text: str) -> str:
    """Return the eight characters by which nats-server shortens a text: bytes of its SHA-256 as digits."""
    import hashlib  # 5 ms, which a start without consumers can do without

    return "".join(DIGITS[byte % 62] for byte in hashlib.sha256(text.encode()).digest()[:8])
