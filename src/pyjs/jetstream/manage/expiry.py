"""The timer for expiring messages of one stream.

It fires a little after the oldest message is due, so that a busy stream expires messages in batches. Knows nothing of
stores: the stream removes the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.timers import Timer, Timers

if TYPE_CHECKING:
    from typing import Protocol

    class Expiring(Protocol):
        """The part of a stream that this module calls."""

        def expire(self) -> None:
            """Remove the messages that are due."""


BATCH_NS = 50_000_000  # ns; how late a message may expire


class Expiry:
    """The expiry timer of one stream."""

    __slots__ = ("_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None

    def arm(self, stream: Expiring, due_ns: int, now_ns: int) -> None:
        """Call `stream.expire` at most BATCH_NS after `due_ns`, unless an earlier call is scheduled."""
        deadline_ns = max(due_ns, now_ns) + BATCH_NS
        if self._timer is not None:
            if self._timer.deadline_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer = self._timers.at(deadline_ns, lambda: self._fire(stream), stream)

    def cancel(self) -> None:
        """Cancel the scheduled call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, stream: Expiring) -> None:
        self._timer = None
        stream.expire()
