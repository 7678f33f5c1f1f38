"""The seam for randomness: random bytes.

All random values of a node are derived from these bytes, so that a test with a seed can be repeated exactly.
"""

from __future__ import annotations


class Rng:
    """A source of random bytes; subclasses implement `randbytes`."""

    def randbytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        raise NotImplementedError("an Rng subclass supplies the bytes")

    def below(self, limit: int) -> int:
        """Return a random integer in [0, limit)."""
        assert limit > 0
        return int.from_bytes(self.randbytes(8), "little") % limit


class SeededRng(Rng):
    """A source that returns the same bytes for the same seed on every machine, for tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = 0
        self._rest = b""

    def randbytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the seed's sequence."""
        import hashlib  # imported lazily: only tests need it

        while len(self._rest) < count:
            text = f"{self._seed}:{self._block}".encode()
            self._rest += hashlib.sha256(text).digest()
            self._block += 1
        out, self._rest = self._rest[:count], self._rest[count:]
        return out
