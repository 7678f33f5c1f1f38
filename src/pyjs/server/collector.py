"""Python's garbage collector, kept from holding up the loop.

Reference counts free nearly everything; the collector is there for cycles, and looks at every object for that: 100 ms
with ten thousand consumers, at any time. What survives one full look is therefore not looked at again. That is safe
as long as sessions, streams and consumers leave no cycles behind when they end (tests/unit/test_garbage.py).

Source: https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import gc

FULL = 2  # the generation of a look at everything


def keep_survivors() -> None:
    """Tune the collector of this process. For the command only: an embedding program owns its collector."""
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL:
        gc.freeze()
