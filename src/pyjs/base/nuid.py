"""Short names of base-62 digits: random ones for ids, inboxes and consumers, and digests of longer strings."""

from __future__ import annotations

from pyjs.base.rng import Rng

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def token(rng: Rng, length: int) -> str:
    """Return `length` random base-62 digits."""
    value = int.from_bytes(rng.randbytes(length + 2), "little")
    digits = []
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits.append(DIGITS[digit])
    return "".join(digits)


def nuid(rng: Rng) -> str:
    """Return a random id of 22 base-62 digits, which is unique in practice."""
    return token(rng, 22)


def short_hash(text: str) -> str:
    """Return nats-server's digest of a string: eight base-62 digits made from bytes of its SHA-256."""
    import hashlib  # imported lazily, since it takes 5 ms and a server without consumers does not need it

    return "".join(DIGITS[byte % 62] for byte in hashlib.sha256(text.encode()).digest()[:8])
