"""Lets direct gets of a replica wait until the entries at the end of the log are applied.

A client may send a direct get to a follower for a message that has just been acknowledged. The follower has the entry
of the message, but learns only with the next entry, or up to 20 ms later, that this entry is committed, and may apply
it 10 ms after that. So while the log has entries that are not applied, direct gets wait until the leader has reported
its commit index. Waiting direct gets are answered in the order of the requests.

Stale answers are allowed: without a leader, after WAIT_NS, or if too many direct gets wait, all waiting ones are
answered from the present state of the replica.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from pyjs.base.timers import Timer, Timers
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn

    Steps: TypeAlias = Generator[Step, None, None]

WAIT_NS = 100 * NS_PER_MS
WAITING_MAX = 10_000  # maximum number of waiting requests


class Log(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    @property
    def has_tail(self) -> bool:
        """Whether the log has entries that are not applied."""

    def ask(self, done: Callable[[], None]) -> bool:
        """Call `done` when all entries that are committed now are applied; return False if no leader is known."""


class Settling:
    """The direct gets of one replica that wait until the entries at the end of its log are applied."""

    def __init__(self, turn: Turn, timers: Timers, log: Log) -> None:
        self._turn = turn
        self._timers = timers
        self._log = log
        self._waiting: deque[Chore] = deque()
        self._continuing = 0  # number of requests that may continue, but have not run yet
        self._questions = 0
        self._asked = 0  # number of the question that has no answer yet; 0: none
        self._covered = 0  # number of requests that were waiting when the question was sent
        self._timer: Timer | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no direct get is waiting, so that a new one may be answered at once."""
        return not (self._waiting or self._continuing)

    def steps(self) -> Steps:
        """Wait until all entries that are committed now are applied, or until waiting direct gets are released."""
        yield self._wait
        self._continuing -= 1

    def _wait(self, chore: Chore) -> None:
        self._waiting.append(chore)
        if len(self._waiting) >= WAITING_MAX:
            self.release()
        elif not self._asked:
            self._ask()

    def _ask(self) -> None:
        self._questions += 1
        self._asked, self._covered = self._questions, len(self._waiting)
        if self._log.ask(partial(self._answered, self._asked)):
            self._timer = self._timers.at(self._turn.now + WAIT_NS, self.release)
        else:
            self.release()

    def _answered(self, number: int) -> None:
        if number != self._asked:
            return
        count = self._covered if self._log.has_tail else len(self._waiting)
        self._end_question()
        self._continue(count)
        if self._waiting:
            self._ask()

    def release(self) -> None:
        """Let all waiting direct gets continue at once."""
        self._end_question()
        self._continue(len(self._waiting))

    def _end_question(self) -> None:
        self._asked = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _continue(self, count: int) -> None:
        self._continuing += count
        for _ in range(count):
            self._turn.chores.append(self._waiting.popleft())
