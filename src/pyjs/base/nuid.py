"""Short unique names: base-62 tokens of random bytes, as NATS uses for ids, inboxes and consumer names."""

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
