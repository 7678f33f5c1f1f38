"""The turns of the node on the event loop: one per iteration.

Code that needs a turn calls `wake`; all reads of one iteration share the turn at its end. While the loop spins, one
client waits for its answer: the first read of an iteration then runs its turn at once, which saves a pass through the
loop (see spin.py). The node's next deadline arms one timer. Knows nothing of sockets and of the work of a turn.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.server.endings import Endings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.base.timers import Timer
    from pyjs.node import Node

NS_PER_MS = 1_000_000


class Driver:
    """Runs the turns of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node: Node) -> None:
        self.loop = loop
        self.node = node
        self.endings = Endings(node.clock, node.log, self.wake)
        # Called after each turn, to hand work to threads.
        self.after_turn: list[Callable[[], None]] = [self.endings.after_turn]
        self.waked_ns = 0  # time of the first `wake` before the last turn
        self._waked = False  # a turn is scheduled
        self.prompt = False  # the next read of this iteration runs its turn at once
        self.prompted = False  # a read of this iteration has done so
        self.crowded = False  # another read came after that one
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = 0  # deadline of `_timer`
        self._stopped = False

    def wake(self) -> None:
        """Run a turn at the end of this iteration of the loop."""
        if not self._waked:
            self._waked = True
            self.waked_ns = monotonic_ns()
            self.loop.call_soon(self._turn)

    def wake_for_input(self) -> None:
        """Run a turn for a read: at once if no other read is expected in this iteration, otherwise at its end."""
        if not self.prompt or self._waked:
            self.crowded = self.crowded or self.prompted
            self.wake()
            return
        self.prompt, self.prompted = False, True
        self.waked_ns = monotonic_ns()
        try:
            self._turn()
        except Exception as error:  # not the fault of the connection that was read
            self.loop.call_exception_handler({"message": "Exception in a turn", "exception": error})

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in a turn after `seconds`: where many of them are due at once, over several turns."""
        deadline_ns = self.node.clock.now_ns() + round(seconds * NS_PER_S)
        timer = self.node.timers.at(deadline_ns, callback)
        self._arm()
        return timer

    def turn_now(self) -> None:
        """Run a turn at once, for the last output of a stopping server."""
        self.node.turn(self.node.clock.now_ns())
        for hand_over in self.after_turn:
            hand_over()

    def stop(self) -> None:
        """Run no more turns."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._waked = False
        if self._stopped:
            return
        self.turn_now()
        if self.node.has_work:
            self.wake()
        self._arm()

    def _arm(self) -> None:
        deadline_ns = self.node.next_deadline_ns()
        if deadline_ns is None:
            return
        if self._timer is not None:
            if self._armed_ns <= deadline_ns:
                return  # a turn too early costs less than setting timers in every turn
            self._timer.cancel()
        # Loop timers count in milliseconds: rounded up, so that the deadline has passed when the timer fires.
        wait_ms = max(0, -(-(deadline_ns - self.node.clock.now_ns()) // NS_PER_MS))
        self._timer = self.loop.call_later(wait_ms / 1000, self._timer_fired)
        self._armed_ns = deadline_ns

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()
