"""Timers without a node."""

from __future__ import annotations

from pyjs.base.timers import Timers


def fire(timers: Timers, now_ns: int) -> int:
    """Call everything due at `now_ns`, earliest first; return how many fired."""
    fired = 0
    while timers.due(now_ns) is not None:
        timers.pop()()
        fired += 1
    return fired
