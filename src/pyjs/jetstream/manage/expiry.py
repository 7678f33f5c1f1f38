"""The timer of one stream for messages that expire, or for schedules.

The timer fires when the first message is due, but at most once per REST_NS, so that a busy stream works in batches.
This module does not use stores: the stream does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.timers import Timer, Timers

if TYPE_CHECKING:
    from typing import Protocol

    class Expiring(Protocol):
        """The part of a stream that this module calls."""

        def expire(self) -> None:
            """Handle the messages that are due."""


REST_NS = 5_000_000  # minimum ns between two calls, so messages expire at most this late


class Expiry:
    """The expiry timer of one stream."""

    __slots__ = ("_earliest_ns", "_fired", "_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None
        self._fired = False  # whether the timer has fired since the last `arm`
        self._earliest_ns = 0  # earliest time of the next call

    def arm(self, stream: Expiring, due_ns: int, now_ns: int) -> None:
        """Schedule a call of `stream.expire` at `due_ns`, unless an earlier call is already scheduled.

        Two calls are at least REST_NS apart.
        """
        if self._fired:
            self._fired, self._earliest_ns = False, now_ns + REST_NS
        deadline_ns = max(due_ns, now_ns, self._earliest_ns)
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
        self._fired = True
        stream.expire()
