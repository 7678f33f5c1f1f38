"""The last file descriptors, kept from new connections so that files can still be opened.

The loop accepts connections by itself, and drops them without a word when no descriptor is left. So connections are
refused a little earlier, and the log says so, at most once a second.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from pyjs.base.log import Log

RESERVED_MAX = 32
RESERVED_SHARE = 8  # of a small limit: one in so many
TELL_S = 1.0


class DescriptorReserve:
    """Decides whether a new connection may keep its descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log) -> None:
        self._loop = loop
        self._log = log
        self._told_at = -TELL_S

    def admits(self, fd: int, name: str) -> bool:
        """Return whether a connection with the descriptor `fd` leaves enough of them; `name` is that of its port.

        The kernel gives out the lowest free number, so `fd` tells how many are in use.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY or fd < limit - min(RESERVED_MAX, limit // RESERVED_SHARE):
            return True
        now = self._loop.time()
        if now - self._told_at >= TELL_S:
            self._told_at = now
            self._log.error(
                f"Temporary {name} Accept Error(too many open files), connections are refused;"
                f" the limit is {limit} descriptors (ulimit -n)"
            )
        return False
