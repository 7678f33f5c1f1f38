"""Deadlines: one heap of (time, callback), cancelled lazily and swept when most are cancelled.

Knows nothing of the callbacks. A node has one heap, whose `next_deadline_ns` arms one timer of the event loop.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_MIN = 64  # a heap with fewer deadlines is not swept


class Timer:
    """One pending deadline, which fires once unless it is cancelled."""

    __slots__ = ("_timers", "callback", "deadline_ns", "owner")

    def __init__(self, timers: Timers, deadline_ns: int, callback: Callable[[], None], owner: object) -> None:
        self._timers = timers
        self.deadline_ns = deadline_ns
        self.callback: Callable[[], None] | None = callback
        self.owner = owner  # the object whose state the callback changes

    def cancel(self) -> None:
        """Cancel the deadline; the reference to the owner is dropped at once."""
        if self.callback is not None:
            self.callback = self.owner = None
            self._timers.note_cancelled()


class Timers:
    """A heap of deadlines."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._cancelled = 0  # deadlines in the heap that will never fire

    def at(self, deadline_ns: int, callback: Callable[[], None], owner: object = None) -> Timer:
        """Call `callback` in the first turn at or after `deadline_ns`; if it fails, `owner` is repaired."""
        timer = Timer(self, deadline_ns, callback, owner)
        heapq.heappush(self._heap, (deadline_ns, next(self._order), timer))
        return timer

    def note_cancelled(self) -> None:
        """Remove cancelled deadlines if they are more than half of the heap, so that its memory shrinks."""
        self._cancelled += 1
        if self._cancelled >= SWEEP_MIN and 2 * self._cancelled > len(self._heap):
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_deadline_ns(self) -> int | None:
        """Return the earliest live deadline, or None if there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def is_due(self, now_ns: int) -> bool:
        """Return whether a deadline, perhaps a cancelled one, has passed at `now_ns`."""
        return bool(self._heap) and self._heap[0][0] <= now_ns

    def due(self, now_ns: int) -> Timer | None:
        """Return the earliest deadline if it has passed at `now_ns`; `pop` removes it."""
        deadline_ns = self.next_deadline_ns()
        return self._heap[0][2] if deadline_ns is not None and deadline_ns <= now_ns else None

    def pop(self) -> Callable[[], None]:
        """Remove the deadline that `due` returned, and drop its owner; return its callback for the caller to call."""
        timer = heapq.heappop(self._heap)[2]
        callback, timer.callback = timer.callback, None
        timer.owner = None
        assert callback is not None
        return callback
