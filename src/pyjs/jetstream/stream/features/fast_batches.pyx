"""Fast batches: messages are stored at once, and acknowledged in groups whose size the server chooses.

The reply subject of a message has all parameters: `<prefix>.<id>.<flow>.<ok or fail>.<sequence>.<operation>.$FI`. A
batch with gap mode `fail` ends if a message is missing; a batch with `ok` continues. Every n-th message is
acknowledged, and the acknowledgement states the next n. The number n doubles or halves each time, towards the
client's maximum or, if that is lower, 500 divided by the number of open batches.

Invariant of an open batch: acked_seq <= done_seq <= last_seq.

This module knows nothing of streams and stores. Compiled because it finds the batch of each message and decides
whether an acknowledgement is due (benchmarks/batches.py). Source: ADR-50 "Fast-ingest Batch Publishing"; flow and
texts probed on nats-server 2.15.1 (tests/conformance/scenarios/fast).
"""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.jetstream import errcodes

cdef enum:
    # maximum number of messages per acknowledgement, divided by the number of open batches of a stream
    FLOW_MAX = 500
    FLOW_DEFAULT = 10

cdef int64_t VALUE_MAX = 10**17     # a number is parsed up to this value, before it could overflow


cdef inline const char* token_before(const char* start, const char* end) noexcept nogil:
    """Return the dot before the token that ends at `end`, or NULL if there is none."""
    while end > start:
        end -= 1
        if end[0] == c'.':
            return end
    return NULL


cdef inline int64_t number(const char* p, const char* end) noexcept nogil:
    """Return a decimal number, or -1 if it is invalid or has more than 18 significant digits."""
    cdef int64_t value = 0
    if p == end:
        return -1
    while p < end:
        if p[0] < c'0' or p[0] > c'9' or value >= VALUE_MAX:
            return -1
        value = value * 10 + (p[0] - c'0')
        p += 1
    return value


cdef bint parse_fast_reply(const char* reply, size_t n, FastReply* out) noexcept nogil:
    cdef const char* end = reply + n - 4        # the dot before $FI
    cdef const char* dot = token_before(reply, end)
    cdef int64_t value
    if dot == NULL:
        return False
    value = number(dot + 1, end)
    if value < <int64_t> START or value > <int64_t> PING:
        return False
    out.operation = <Operation> value
    end, dot = dot, token_before(reply, dot)
    if dot == NULL:
        return False
    value = number(dot + 1, end)
    if value <= 0 or (value == 1 and out.operation == END):
        return False
    if (out.operation == START and value != 1) or (out.operation == APPEND and value == 1):
        return False
    out.seq = <uint64_t> value
    end, dot = dot, token_before(reply, dot)
    if dot == NULL:
        return False
    out.gap_ok = end - dot == 3 and memcmp(dot, b".ok", 3) == 0
    if not out.gap_ok and not (end - dot == 5 and memcmp(dot, b".fail", 5) == 0):
        return False
    end, dot = dot, token_before(reply, dot)
    if dot == NULL:
        return False
    value = number(dot + 1, end)
    out.flow = FLOW_DEFAULT if value <= 0 else <uint16_t> min(value, 65535)
    end, dot = dot, token_before(reply, dot)
    if dot == NULL:
        return False
    out.id, out.id_len = dot + 1, <uint32_t> (end - dot - 1)
    return True


def parse(bytes reply not None):
    """Return (id, flow, gap mode, sequence, operation) of a reply subject, or None if it is malformed; for tests."""
    cdef FastReply r
    if not reply.endswith(b".$FI") or not parse_fast_reply(reply, len(reply), &r):
        return None
    return r.id[:r.id_len], r.flow, bool(r.gap_ok), r.seq, <int> r.operation


cdef class FastBatch:
    """One open fast batch."""

    def __init__(self, bytes batch_id not None, uint16_t flow_max, bint gap_ok) -> None:
        self.id = batch_id
        self.id_text, self.id_len = self.id, <uint32_t> len(batch_id)
        self.flow_max = flow_max
        self.gap_ok = gap_ok

    cdef bint has_id(self, FastReply* r) noexcept nogil:
        return r.id_len == self.id_len and memcmp(r.id, self.id_text, self.id_len) == 0

    cdef bint owes_ack(self, size_t n_open) noexcept nogil:
        """Return whether an acknowledgement is due; if so, advance `acked_seq` and adjust `flow`."""
        cdef uint16_t most
        if self.done_seq < self.acked_seq + self.flow:
            return False
        self.acked_seq += (self.done_seq - self.acked_seq) // self.flow * self.flow
        most = <uint16_t> min(max(FLOW_MAX // max(n_open, 1), 1), self.flow_max)
        if self.flow < most:
            self.flow = <uint16_t> min(2 * <uint32_t> self.flow, most)
        elif self.flow > most:
            self.flow = max(self.flow // 2, most)
        return True


cdef class FastBatches:
    """The open fast batches of one stream."""

    def __init__(self, limits, usage, timers) -> None:
        self.limits = limits                    # options.BatchLimits
        self.usage = usage                      # batches.BatchUsage, of the server
        self.timers = timers
        self.timeout_ns = limits.timeout_ns
        self.open = {}
        self.last = FastBatch(b"", 1, False)

    cdef FastBatch find(self, FastReply* r):
        """Return the open batch that a message belongs to, or None if there is none."""
        cdef FastBatch batch = self.open.get(r.id[:r.id_len])
        if batch is not None:
            self.last = batch
        return batch

    cdef FastBatch begin(self, FastReply* r, int64_t now_ns):
        """Open a batch.

        Raises:
            ApiError: too many batches are open.
        """
        cdef FastBatch batch
        if self.n_open >= self.limits.max_fast_per_stream or self.usage.fast_count >= self.limits.max_fast_total:
            raise errcodes.BATCH_PUBLISH_TOO_MANY_INFLIGHT.error()
        batch = FastBatch(r.id[:r.id_len], r.flow, r.gap_ok)
        self.open[batch.id] = self.last = batch
        self.n_open += 1
        self.usage.fast_count += 1
        batch.flow = <uint16_t> min(FLOW_MAX, batch.flow_max) if self.n_open == 1 else 1
        self.keep_alive(batch, now_ns)
        self.arm(batch)
        return batch

    cdef void keep_alive(self, FastBatch batch, int64_t now_ns) noexcept nogil:
        """Restart the idle time of the batch."""
        batch.deadline_ns = now_ns + self.timeout_ns

    def arm(self, FastBatch batch not None) -> None:
        """Set the timer for the end of the idle time; later messages do not move it."""
        batch.timer = self.timers.at(batch.deadline_ns, lambda: self.check_idle(batch), self)

    def check_idle(self, FastBatch batch not None) -> None:
        """Close the batch, or set the timer again if a message has arrived since; the client is not notified."""
        if batch.deadline_ns > batch.timer.deadline_ns:
            self.arm(batch)
        else:
            self.close(batch)

    def close(self, FastBatch batch not None) -> None:
        """Close an open batch. Later messages of the batch are refused."""
        del self.open[batch.id]
        self.n_open -= 1
        self.usage.fast_count -= 1
        batch.timer.cancel()
        batch.timer = None
        if self.last is batch:
            self.last = FastBatch(b"", 1, False)

    def close_lost(self, uint64_t kept_seq) -> None:
        """Close the batches that allow no gaps and whose last stored message is after `kept_seq`.

        Messages after `kept_seq` were not written.
        """
        cdef FastBatch batch
        for batch in list(self.open.values()):
            if batch.stream_seq > kept_seq and not batch.gap_ok:
                self.close(batch)

    def close_all(self) -> None:
        """Close every batch."""
        for batch in list(self.open.values()):
            self.close(batch)
