"""Waits after temporary failures: one policy for reads, writes and requests.

The pauses grow fast: most failures are either over at once (a connection) or last seconds (a restart, the choice
of a new leader). errors.is_passing() tells which failures are temporary.
"""

from __future__ import annotations

import time

FIRST_PAUSE_S = 0.1
GROWTH = 4
PAUSE_MAX_S = 5.0


def pause_s(failures: int) -> float:
    """Return the pause after `failures` + 1 failures, in seconds: about 12 s in the first five."""
    return min(PAUSE_MAX_S, FIRST_PAUSE_S * float(GROWTH**failures))


def pause(failures: int) -> None:
    """Wait after `failures` + 1 failures."""
    time.sleep(pause_s(failures))
