"""One kind of work of a turn: some new items run in order of arrival, all others in fair order, within a share.

A share is a number of items and a time on the clock of the node. In tests, where that clock does not advance,
only the number limits the work. An item is never interrupted, so each must be small. At least one item runs
per turn.

This module knows nothing of the work itself. A failed item is reported, and the next one runs.
Compiled, because a client that waits for each answer pays for a whole turn (measured in benchmarks/: reqrep,
jssync-1).
"""
from libc.stdint cimport int64_t, uint64_t

from typing import NamedTuple

from pyjs.core.fair_queue import FairQueue


class Share(NamedTuple):
    """The part of a turn that one kind of work may use."""

    items: int
    ns: int
    stride: int = 1     # items between two reads of the clock: more than one if an item takes microseconds
    few: int = 0        # up to this many new items run before the waiting ones, of which at least one always runs


cdef class Lane:
    """The work of one kind: new items, and items left from earlier turns."""

    def __init__(self, clock, share, do, owner_of, failed) -> None:
        self.clock = clock
        self.items, self.ns, self.stride, self.few = share
        self.do = do
        self.owner_of = owner_of
        self.failed = failed
        self.waiting = FairQueue()

    cpdef run(self, list fresh, uint64_t turn):
        """Run waiting and new items within the share of this turn; queue the others."""
        cdef int64_t deadline_ns
        cdef bint has_old
        if turn != self.turn:
            self.turn, self.left, self.left_ns = turn, self.items, self.ns
        if not self.behind and self.left == self.items and len(fresh) <= 1:
            for item in fresh:              # most turns need neither the clock nor the queue
                self.left -= 1
                self.attempt(item)
            return
        if self.behind and len(fresh) > self.few:
            self.queue(fresh, 0)
            fresh = []
        deadline_ns = self.clock.now_ns() + self.left_ns
        # Waiting items always get a part of the turn: otherwise new items could delay them forever.
        has_old = self.behind > 0
        self.run_fresh(fresh, deadline_ns)
        if self.behind:
            self.run_waiting(deadline_ns, has_old and len(fresh) > 0)
        self.left_ns = deadline_ns - self.clock.now_ns()

    cdef run_fresh(self, list fresh, int64_t deadline_ns):
        cdef list again = []
        cdef Py_ssize_t at = 0, n = len(fresh)
        cdef bint looks = False
        while at < n:
            if (looks or at % self.stride == 0) and not self.has_room(at, deadline_ns):
                self.queue(fresh, at)
                break
            item = fresh[at]
            at += 1
            try:
                looks = bool(self.do(item))     # an unfinished item has taken long: read the clock
                if looks:
                    again.append(item)
            except Exception as error:
                self.failed(item, error)
        self.left -= at
        # put them back after the items that did not run, but before later items of the same connection
        for item in reversed(again):
            self.waiting.put_back(self.owner_of(item), item)
        self.behind = self.waiting.count

    cdef run_waiting(self, int64_t deadline_ns, bint has_turn):
        cdef Py_ssize_t at = 0
        cdef bint looks = not has_turn
        while self.behind:
            if (looks or (at and at % self.stride == 0)) and not self.has_room(at, deadline_ns):
                break
            owner, item = self.waiting.take()
            at, looks = at + 1, False
            try:
                looks = bool(self.do(item))
                if looks:
                    self.waiting.put_back(owner, item)
            except Exception as error:
                self.failed(item, error)
            self.behind = self.waiting.count
        self.left -= at

    cdef attempt(self, item):
        try:
            if self.do(item):
                self.waiting.put_back(self.owner_of(item), item)
                self.behind = self.waiting.count
        except Exception as error:
            self.failed(item, error)

    cdef bint has_room(self, Py_ssize_t done, int64_t deadline_ns) except -1:
        """Return whether another item may run after `done` items in this run; the first item always may."""
        cdef Py_ssize_t left = self.left - done
        return left > 0 and (left == self.items or self.clock.now_ns() < deadline_ns)

    cdef queue(self, list items, Py_ssize_t begin):
        cdef Py_ssize_t at
        for at in range(begin, len(items)):
            self.waiting.add(self.owner_of(items[at]), items[at])
        self.behind = self.waiting.count
