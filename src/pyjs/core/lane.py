"""One kind of work of a turn: a little is done in order of arrival, much in fair order up to a share of the turn.

A share is a number of items and a time by the clock of the node; only the number limits the work if that clock stands
still, as in tests. An item is never interrupted, so each must be small. At least one item runs per turn.

Knows nothing of the work itself. A failed item is reported, and the next one runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pyjs.core.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.clock import Clock
    from pyjs.core.fair_queue import Owner

T = TypeVar("T")

NS_PER_US = 1000


class Share(NamedTuple):
    """The part of a turn that one kind of work may use."""

    items: int
    ns: int
    stride: int = 1  # items between two reads of the clock: more than one if an item takes microseconds
    few: int = (
        0  # up to so many new items do not queue after the waiting ones, of which one runs all the same
    )


class Shares(NamedTuple):
    """The share of each kind of work: together 9.5 ms under full load.

    Under load a quiet client's PING waits for the rest of one turn and for the next one, so the shares determine the
    response time.

    One item takes, in microseconds: a timer 2-20, a commit 10-50, a pull or direct get 3-10, any other request
    50-1000, a pump or an inbox up to 1000, a step up to 1000, a flush 5-50, with compression up to 1000.
    """

    timers: Share = Share(1000, 500 * NS_PER_US, 8)
    jobs: Share = Share(256, 500 * NS_PER_US)
    commits: Share = Share(1000, 1500 * NS_PER_US, 4)
    requests: Share = Share(256, 1000 * NS_PER_US)
    pumps: Share = Share(256, 2000 * NS_PER_US)
    inboxes: Share = Share(256, 1000 * NS_PER_US)
    chores: Share = Share(16, 1000 * NS_PER_US)
    flushes: Share = Share(2000, 2000 * NS_PER_US, 2, few=64)


class Lane(Generic[T]):
    """The work of one kind: new items, and items left from earlier turns."""

    __slots__ = ("_clock", "_do", "_failed", "_left", "_left_ns", "_owner_of", "_share", "_turn", "waiting")

    def __init__(
        self,
        clock: Clock,
        share: Share,
        do: Callable[[T], object],
        owner_of: Callable[[T], Owner],
        failed: Callable[[T, Exception], None],
    ) -> None:
        self._clock = clock
        self._share = share
        self._do = do  # a true result means: run the item again, in fair order
        self._owner_of = owner_of
        self._failed = failed
        self.waiting: FairQueue[T] = FairQueue()  # items left from earlier turns; only the lane changes it
        self._turn = 0  # the turn of `_left` and `_left_ns`
        self._left = self._left_ns = 0  # of the share

    def run(self, fresh: list[T], turn: int) -> None:
        """Run waiting and new items within the share of this turn; queue the rest."""
        if turn != self._turn:
            self._turn, self._left, self._left_ns = turn, self._share.items, self._share.ns
        if not self.waiting.count and self._left == self._share.items and len(fresh) <= 1:
            for item in fresh:  # most turns: no clock, no queue
                self._left -= 1
                self._attempt(item)
            return
        if self.waiting.count and len(fresh) > self._share.few:
            self._queue(fresh, 0)
            fresh = []
        deadline_ns = self._clock.now_ns() + self._left_ns
        # Waiting items get a turn in any case, since new items come with each turn.
        has_old = self.waiting.count > 0
        self._run_fresh(fresh, deadline_ns)
        if self.waiting.count:
            self._run_waiting(deadline_ns, has_turn=has_old and bool(fresh))
        self._left_ns = deadline_ns - self._clock.now_ns()

    def _run_fresh(self, fresh: list[T], deadline_ns: int) -> None:
        stride, do = self._share.stride, self._do
        again: list[T] = []
        at, looks = 0, False
        for at, item in enumerate(fresh):
            if (looks or at % stride == 0) and not self._has_room(at, deadline_ns):
                self._queue(fresh, at)
                break
            try:
                looks = bool(do(item))  # an item that does not finish at once takes long
                if looks:
                    again.append(item)
            except Exception as error:
                self._failed(item, error)
        else:
            at = len(fresh)
        self._left -= at
        for item in reversed(again):  # after those that had no turn, and before later ones of its connection
            self.waiting.put_back(self._owner_of(item), item)

    def _run_waiting(self, deadline_ns: int, *, has_turn: bool) -> None:
        stride, at, looks = self._share.stride, 0, not has_turn
        while self.waiting.count:
            if (looks or (at and at % stride == 0)) and not self._has_room(at, deadline_ns):
                break
            owner, item = self.waiting.take()
            at, looks = at + 1, False
            try:
                looks = bool(self._do(item))
                if looks:
                    self.waiting.put_back(owner, item)
            except Exception as error:
                self._failed(item, error)
        self._left -= at

    def _attempt(self, item: T) -> None:
        try:
            if self._do(item):
                self.waiting.put_back(self._owner_of(item), item)
        except Exception as error:
            self._failed(item, error)

    def _has_room(self, done: int, deadline_ns: int) -> bool:
        """Return whether another item may run after `done` in this run; the first one of a turn always may."""
        left = self._left - done
        return left > 0 and (left == self._share.items or self._clock.now_ns() < deadline_ns)

    def _queue(self, items: list[T], begin: int) -> None:
        for at in range(begin, len(items)):
            self.waiting.add(self._owner_of(items[at]), items[at])
