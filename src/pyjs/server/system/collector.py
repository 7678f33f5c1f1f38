"""Python's garbage collector, kept from holding up the loop.

Reference counts free nearly everything; the collector is there for cycles, and looks at every object for that: 100 ms
with ten thousand consumers, at any time. What survives one full look is therefore not looked at again. That is safe
as long as sessions, streams and consumers leave no cycles behind when they end (tests/unit/test_garbage.py).

A full look comes after some three thousand new objects, earlier than Python would take it: then it ends within two
milliseconds, and what it found alive is out of the next one. Each object is looked at as often as with larger
thresholds: once in each generation.

Source: https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import gc

FULL = 2  # the generation of a look at everything
THRESHOLDS = (700, 1, 1)  # by generation: new objects, then looks of the generation before, less one


def keep_survivors() -> None:
    """Tune the collector of this process. For the command only: an embedding program owns its collector."""
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)
        gc.set_threshold(*THRESHOLDS)


def collect() -> None:
    """Look at everything new now. That also empties Python's lists of free objects, a thousand of which can hold
    as many pages."""
    gc.collect()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL:
        gc.freeze()
