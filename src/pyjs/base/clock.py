"""The seam for time: nanoseconds since the epoch, never going backwards.

A server has one Clock (server/driver.py makes the real one); tests move a virtual one. Nothing else reads time.
"""

from __future__ import annotations

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock:
    """Source of time; subclasses say where it comes from."""

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch; never less than an earlier answer."""
        raise NotImplementedError("a Clock subclass supplies the time")


class VirtualClock(Clock):
    """A clock that stands still until told to move. For tests and simulations."""

    def __init__(self, now_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Move `ns` nanoseconds forward."""
        assert ns >= 0
        self._now_ns += ns
