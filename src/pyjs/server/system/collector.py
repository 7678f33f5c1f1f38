"""Settings of Python's garbage collector, so that it does not block the loop.

Reference counts free nearly all objects. The collector finds cycles, for which it examines every object: with ten
thousand consumers that takes 100 ms, at an unpredictable time. Therefore, objects that survive one full collection
are frozen and not examined again. This is safe as long as sessions, streams and consumers leave no cycles when they
end (tests/unit/test_garbage.py).

A full collection runs after about three thousand new objects, earlier than by default. It then takes at most two
milliseconds, since it skips the frozen objects. Each object is still examined once in each generation.

Nearly all objects created during the start are long-lived. Until the start ends, the collector runs at most once per
START_COUNT new objects. Then the objects are frozen without a collection, which would take a tenth of the start.

Source: https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import gc

FULL = 2  # the generation of a full collection
THRESHOLDS = (700, 1, 1)  # by generation: new objects, then collections of the younger generation, minus one
START_COUNT = 200_000  # new objects; starting a server without streams creates 70,000


def collect_seldom() -> None:
    """Make the garbage collector run rarely while this process starts."""
    gc.set_threshold(START_COUNT)


def keep_survivors() -> None:
    """Freeze all objects, and configure the collector for a server that has started."""
    gc.freeze()
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)
        gc.set_threshold(*THRESHOLDS)


def collect() -> None:
    """Run a full collection now, which also empties Python's free lists."""
    gc.collect()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL:
        gc.freeze()
