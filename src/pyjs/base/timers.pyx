"""Deadlines: one heap of (time, callback), which also has cancelled deadlines until they are the majority.

This module knows nothing of the callbacks. A node has one heap, whose `next_deadline_ns` sets one timer of the event
loop. Compiled, because each turn asks twice for the next deadline (measured in benchmarks/: reqrep, and reqrep over a
route).
"""

from heapq import heapify, heappop, heappush

cdef enum:
    SWEEP_MIN = 64      # a heap with fewer deadlines is not swept


cdef class Timer:
    """A callback with a deadline; the callback is called one time, or never if the timer is cancelled before."""

    def __cinit__(self, Timers timers not None, deadline_ns, callback, owner):
        self.timers = timers
        self.deadline_ns = deadline_ns
        self.callback = callback
        self.owner = owner

    def cancel(self) -> None:
        """Cancel the timer, and drop its references to the callback and the owner."""
        if self.callback is not None:
            self.callback = self.owner = None
            self.timers.note_cancelled()


cdef class Timers:
    """A heap of deadlines."""

    def __cinit__(self):
        self.heap = []

    def __len__(self) -> int:
        """Return the number of deadlines in the heap, cancelled ones included."""
        return len(self.heap)

    def at(self, deadline_ns, callback, owner=None) -> Timer:
        """Return a timer that calls `callback` in the first turn at or after `deadline_ns`.

        An exception in the callback causes a repair of `owner`.
        """
        cdef Timer timer = Timer(self, deadline_ns, callback, owner)
        heappush(self.heap, (deadline_ns, self.order, timer))
        self.order += 1
        return timer

    cdef int note_cancelled(self) except -1:
        """Count a cancelled timer; remove all cancelled timers from a large heap if they are the majority there."""
        self.cancelled += 1
        if self.cancelled >= SWEEP_MIN and 2 * self.cancelled > len(self.heap):
            self.heap = [item for item in self.heap if (<Timer> item[2]).callback is not None]
            heapify(self.heap)
            self.cancelled = 0
        return 0

    cpdef next_deadline_ns(self):
        """Return the earliest deadline that is not cancelled, or None."""
        while self.heap and (<Timer> (<tuple> self.heap[0])[2]).callback is None:
            heappop(self.heap)
            self.cancelled -= 1
        return (<tuple> self.heap[0])[0] if self.heap else None

    cdef bint is_due(self, now_ns) except -1:
        """Return whether a deadline, possibly a cancelled one, has passed at `now_ns`."""
        return len(self.heap) > 0 and (<tuple> self.heap[0])[0] <= now_ns

    cpdef due(self, now_ns):
        """Return the earliest timer if its deadline has passed at `now_ns`, otherwise None; `pop` removes it."""
        deadline_ns = self.next_deadline_ns()
        return (<tuple> self.heap[0])[2] if deadline_ns is not None and deadline_ns <= now_ns else None

    cpdef pop(self):
        """Remove the timer that `due` returned, and return its callback, which the caller must call."""
        cdef Timer timer = heappop(self.heap)[2]
        callback, timer.callback = timer.callback, None
        timer.owner = None
        assert callback is not None
        return callback
