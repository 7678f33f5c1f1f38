"""Steps of the clock that gives the entries of a replicated stream their times.

The time of an entry is the wall time of the leader. If that clock is set forward, or if the clock of the next leader
is ahead, the time of entries advances by more than has elapsed. The duplicate window measures elapsed time, so the
leader reports such a step in an entry (stream/replicated/leader_clock.pyx), and each replica remembers it here. Steps
are a part of the state of a replica: they are stored in the mark of an entry, and copied with the messages.

A step (at, by) states that `by` ns of the time before `at` did not elapse. No message was stored in these `by` ns,
since they lie between two entries: at - by is not before the previous entry. Therefore

    0 < steps[0].at - steps[0].by,  steps[i].at <= steps[i+1].at - steps[i+1].by,  0 < steps[i].by.

If there are too many steps, the two oldest are joined. Ids of messages between them then count longer, never shorter.

This module knows nothing of streams. Compiled because the duplicate window asks it for each message id
(benchmarks/replica.py).
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy, memmove


cdef class ClockSteps:
    cdef int64_t before(self, int64_t now, int64_t window) noexcept nogil:
        cdef int64_t horizon = now - window
        cdef int i
        for i in range(self.count - 1, -1, -1):
            if self.steps[i].at > now:      # a step after the time in question
                continue
            if horizon >= self.steps[i].at:
                break
            horizon -= self.steps[i].by
        return horizon

    def add(self, int64_t previous_ns, int64_t at_ns, int64_t by_ns) -> None:
        """Remember a step of `by_ns` between two entries, whose times are `previous_ns` and `at_ns`.

        A step is at most as long as the time between the entries.
        """
        assert 0 < previous_ns <= at_ns
        assert self.count == 0 or self.steps[self.count - 1].at <= at_ns
        by_ns = min(by_ns, at_ns - previous_ns)
        if by_ns <= 0:
            return
        if self.count == CLOCK_STEPS_MAX:
            self.steps[1].by += self.steps[0].by
            self.drop_first(1)
        self.steps[self.count].at, self.steps[self.count].by = at_ns, by_ns
        self.count += 1

    def drop_until(self, int64_t ns) -> None:
        """Drop the steps up to the time `ns`. Call this when no earlier message id counts any more."""
        cdef int n = 0
        while n < self.count and self.steps[n].at <= ns:
            n += 1
        if n:
            self.drop_first(n)

    cdef void drop_first(self, int n) noexcept:
        self.count -= n
        memmove(&self.steps[0], &self.steps[n], self.count * sizeof(ClockStep))

    def clear(self) -> None:
        """Drop all steps."""
        self.count = 0

    def horizon(self, int64_t now_ns, int64_t window_ns) -> int:
        """Return the time from which `window_ns` have elapsed until `now_ns`; steps of the clock do not count."""
        return self.before(now_ns, window_ns)

    def encode(self) -> bytes:
        """Return the steps as (at i64, by i64), little-endian, oldest first; b"" if there are none."""
        if self.count == 0:
            return b""
        return (<char*> &self.steps[0])[:self.count * CLOCK_STEP_SIZE]

    def load(self, bytes data not None, int64_t last_ns) -> None:
        """Replace the steps by encoded ones; `last_ns` is the time of the last applied entry.

        Raises:
            ValueError: the encoded steps are invalid; the present steps are kept.
        """
        cdef ClockStep[CLOCK_STEPS_MAX] found
        cdef int i, n = 0
        cdef int64_t least = 0
        if len(data) % CLOCK_STEP_SIZE or len(data) > CLOCK_STEPS_MAX * CLOCK_STEP_SIZE:
            raise ValueError(f"{len(data)} bytes of clock steps")
        n = <int> (len(data) // CLOCK_STEP_SIZE)
        memcpy(&found[0], PyBytes_AS_STRING(data), len(data))
        for i in range(n):
            if not 0 < found[i].by < found[i].at or found[i].at - found[i].by < least or found[i].at > last_ns:
                raise ValueError(f"a clock step of {found[i].by} ns at {found[i].at}")
            least = found[i].at
        memcpy(&self.steps[0], &found[0], len(data))
        self.count = n
