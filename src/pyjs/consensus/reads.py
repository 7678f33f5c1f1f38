"""Linearizable reads of all groups; each read waits until the engine reports the index that the read needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.consensus.engine import Quarantined, Refused, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.consensus.engine import Groups

READ_NS = 10 * NS_PER_S  # after this time without an answer, a read is forgotten


class Reads:
    """The reads that the engine has not answered."""

    def __init__(self, engine: Groups) -> None:
        self._engine = engine
        # (group, number) -> time at which the read is forgotten, and the function to call
        self._waiting: dict[tuple[int, int], tuple[int, Callable[[], None]]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no read is waiting."""
        return not self._waiting

    def ask(self, group: int, done: Callable[[], None], now_ns: int) -> bool:
        """Request the index for a read from the engine; return False if the engine refuses the request.

        `done` is the function that `take` returns for this read.
        """
        try:
            number = self._engine.read_index(group)
        except (Refused, UnknownGroup, Quarantined):
            return False
        self._waiting[group, number] = now_ns + READ_NS, done
        return True

    def take(self, group: int, number: int) -> Callable[[], None] | None:
        """Remove a read whose index is now known, and return its function; None if the read was forgotten."""
        _, done = self._waiting.pop((group, number), (0, None))
        return done

    def forget(self, group: int) -> None:
        """Forget the reads of a closed group."""
        self._waiting = {key: read for key, read in self._waiting.items() if key[0] != group}

    def expire(self, now_ns: int) -> None:
        """Forget reads that got no answer in time."""
        if self._waiting:
            self._waiting = {key: read for key, read in self._waiting.items() if read[0] > now_ns}

    def clear(self) -> None:
        """Forget all reads."""
        self._waiting.clear()
