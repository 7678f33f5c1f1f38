"""The rate of deliveries: original intervals (replay_policy original), and the token bucket of rate_limit_bps.

Both set the time of the next delivery (`hold_until`). This module knows nothing of consumers: it sees sizes in bytes
and times in nanoseconds.

Compiled, because it runs for each message of a consumer with a rate (measured in benchmarks/: push).
Source: nats.docs "ReplayPolicy", "RateLimit".
"""
from libc.stdint cimport int64_t

cdef enum:
    EARLY_NS = 1000000          # ns by which a replayed message may be early
    HOLD_MIN_NS = 1000000       # ns: minimum wait for the rate limit, so that several messages are sent together
    LATE_NS = 50000000          # ns: if a delivery is later than this, the next interval begins at its actual time


cdef class Pacing:
    """The limits on the rate of one consumer's deliveries."""

    def __cinit__(self, int64_t burst_size):
        self.burst_size = burst_size

    def set_rate(self, int64_t rate_bps) -> None:
        """Set the limit in bits per second (0: none); a new limit begins with a full bucket."""
        if self.rate_bps != rate_bps:
            self.rate_bps, self.burst_at = rate_bps, 0

    cdef int64_t replay_due(self, int64_t ts, int64_t now) noexcept nogil:
        """Return the time at which to deliver a message that was stored at `ts`.

        It is the time of the previous delivery plus the original interval between the two messages.
        """
        if self.replay_ts == 0:
            return now
        return self.replay_at + (ts - self.replay_ts if ts > self.replay_ts else 0)

    cpdef bint is_early(self, int64_t ts, int64_t now) noexcept nogil:
        """Return whether a message stored at `ts` must wait; if so, set `hold_until`."""
        cdef int64_t due = self.replay_due(ts, now)
        if due <= now + EARLY_NS:
            return False
        self.hold_until = due
        return True

    cpdef void note_replayed(self, int64_t ts, int64_t now) noexcept nogil:
        """Record the delivery of a message that was stored at `ts`.

        The next interval begins at the time when the delivery was due, so that small delays do not accumulate.
        """
        cdef int64_t due = self.replay_due(ts, now)
        self.replay_at = due if now - due < LATE_NS else now
        self.replay_ts = ts

    cpdef bint take_rate(self, int64_t size, int64_t now) noexcept nogil:
        """Take `size` bytes from the bucket; return False if the message must wait until `hold_until`."""
        cdef double ns_per_byte = 8e9 / <double> self.rate_bps
        cdef int64_t spare = 0
        if size < self.burst_size:
            spare = <int64_t> (<double> (self.burst_size - size) * ns_per_byte)
        if self.burst_at - now > spare:
            self.hold_until = max(self.burst_at - spare, now + HOLD_MIN_NS)
            return False
        self.burst_at = (self.burst_at if self.burst_at > now else now) + <int64_t> (<double> size * ns_per_byte)
        return True
