"""The timer of one stream's expiring messages.

Fires a little after the oldest message is due, so that a busy stream expires in batches and not message by
message. Knows nothing of stores; the stream drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.timers import Timer, Timers

if TYPE_CHECKING:
    from typing import Protocol

    class Expiring(Protocol):
        """A stream, as seen from here."""

        def expire(self) -> None:
            """Drop what is due."""


BATCH_NS = 50_000_000  # how late a message may expire


class Expiry:
    """When a stream has something to expire."""

    __slots__ = ("_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None

    def arm(self, stream: Expiring, due_ns: int, now_ns: int) -> None:
        """Have `stream.expire` called soon after `due_ns`, unless a call is pending by then."""
        deadline_ns = max(due_ns, now_ns) + BATCH_NS
        if self._timer is not None:
            if self._timer.deadline_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer = self._timers.at(deadline_ns, lambda: self._fire(stream), stream)

    def cancel(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, stream: Expiring) -> None:
        self._timer = None
        stream.expire()
