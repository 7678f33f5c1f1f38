"""Steps of a leader's clock: by how much it advances between two entries in excess of the time that elapses.

The time of an entry is `now + skew`, where `now` is the monotonic time and `skew` is the distance from `now` to the
wall time. A follower notes this distance for each entry: the time of the entry minus the follower's monotonic time.
If the follower becomes the leader and its own skew is higher, its next entry would advance the time by more than has
elapsed. The same happens if the wall clock of a leader is set forward, which increases its skew.

The step is the increase of the skew. A follower applies an entry some time after the leader has proposed it, and a
replica that was restarted does not know when its last entry was proposed. The step is then too long, and ids count
longer.

A decrease of the skew is no step: the time of entries then stays constant until the clock has reached it.

Compiled because it is part of the application of each entry (benchmarks/replica.py).
"""
from libc.string cimport memcpy

# ns; a shorter step counts as elapsed time. Two clocks set by NTP differ by less, and entries are rarely applied that
# late; the duplicate windows in use are far longer.
cdef int64_t TOLERANCE_NS = 250000000


cdef class LeaderClock:
    cdef void entry_came(self, int64_t time_ns, int64_t now_ns) noexcept nogil:
        """Note the time of an entry that was applied while another node led."""
        self.least_skew, self.is_known = time_ns - now_ns, True

    cdef void lead(self, int64_t skew) noexcept nogil:
        """Begin to lead. If there is no entry to compare the clock with, the clock counts as right."""
        if not self.is_known:
            self.least_skew, self.is_known = skew, True

    cdef int64_t step(self, int64_t skew) noexcept nogil:
        """Return the step in ns that must be reported before the next entry, or 0 if there is none."""
        if skew - self.least_skew >= TOLERANCE_NS:
            return skew - self.least_skew
        self.least_skew = min(self.least_skew, skew)
        return 0

    cdef void proposed(self, int64_t skew) noexcept nogil:
        """Note that the step up to `skew` is proposed."""
        self.least_skew = skew
        self.in_flight += 1

    cdef void ended(self, int64_t step, bint is_lost) noexcept nogil:
        """Note that a proposed step is applied or lost. A leader reports a lost step again, with later steps."""
        if is_lost:
            self.least_skew -= step
        self.in_flight -= 1


cdef int note_step(Stream stream, int64_t previous_ns, Item* item) except -1:
    """Record a step: since the entry at `previous_ns`, the clock has advanced by more than the elapsed time."""
    cdef int64_t ns = 0
    memcpy(&ns, item.body, 8)
    if stream.dedupe.window_ns:
        stream.dedupe.forget_before(stream.store.ids_from)      # joined steps may lower the horizon again
        stream.store.steps.add(previous_ns, stream.entry_ns, ns)
    return 0
