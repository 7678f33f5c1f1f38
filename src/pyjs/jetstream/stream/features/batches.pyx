"""Atomic batches: messages are staged in memory until the last one commits them; all are stored, or none.

A batch is open from its message 1 to its commit, an error, or the end of its idle time. Its messages are checked
(batch_checks.py) and stored only when it is committed. Until then, they are staged in one buffer per batch, without
Python objects. The staged bytes of all batches of the server are bounded, so a batch may be refused for its size
before its number of messages reaches the limit.

A message that continues the batch used last is staged by compiled code alone (`goes_on`, `stage`); the first and the
last message, and messages of other batches, take the slow path (`take`).

Invariant of an open batch with n messages: their sequences in the batch are 1 to n.

This module knows nothing of streams and stores. Compiled: runs for every message of a batch (benchmarks/batches.py).
Source: ADR-50; order of checks and error messages probed on nats-server 2.15.1 (tests/conformance/scenarios/atomic).
"""
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from pyjs.base.grow cimport grow
from pyjs.jetstream.stream.pub_headers cimport value_is
from pyjs.wire.compose cimport compose

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.stream.features.headers import added, without

ID_SIZE_MAX = 64
STAGED_BYTES_MAX = 64 << 20  # maximum bytes staged in all open batches of the server
AT_ONCE_MAX = 1 << 20  # bytes that are committed in one turn: about a millisecond
PART_SIZE = 512 << 10  # bytes of a larger batch that one step stores
COMMIT, LEVEL = b"Nats-Batch-Commit", b"Nats-Required-Api-Level"
# reasons why a batch was abandoned
TIMEOUT, LARGE, INCOMPLETE, UNSUPPORTED = "timeout", "large", "incomplete", "unsupported"

cdef enum:
    SEQUENCE_DIGITS_MAX = 20
cdef int64_t SEQUENCE_MAX = 10**17      # a sequence is parsed up to this value, which no batch reaches


# -- headers ---------------------------------------------------------------------------------------------------------

cdef int64_t sequence_of(Value v) noexcept nogil:
    """Return the number in `v`, or -1 if it is invalid or has more than 20 digits.

    For a number above SEQUENCE_MAX, the result may be a different number that is also at least SEQUENCE_MAX.
    """
    cdef int64_t seq = 0
    cdef uint32_t i
    if v.n == 0 or v.n > SEQUENCE_DIGITS_MAX:
        return -1
    for i in range(v.n):
        if v.p[i] < c'0' or v.p[i] > c'9':
            return -1
        if seq < SEQUENCE_MAX:
            seq = seq * 10 + (v.p[i] - c'0')
    return seq


cdef inline bint starts(const char* line, size_t n, const char* name, size_t size) noexcept nogil:
    return n > size and line[size] == c':' and memcmp(line, name, size) == 0


cdef inline Value value_in(const char* line, const char* end, size_t name_size) noexcept nogil:
    """Return the value of a header line, without leading blanks."""
    cdef Value v
    v.p = line + name_size + 1
    while v.p < end and v.p[0] == c' ':
        v.p += 1
    v.n = <uint32_t> (end - v.p)
    return v


cdef void scan_batch_headers(const char* headers, size_t n, BatchHeaders* out) noexcept nogil:
    """Fill `out` from a whole header block; if a name occurs several times, its first value counts."""
    cdef const char* end = headers + n
    cdef const char* line = <const char*> memchr(headers, c'\n', n)
    cdef const char* next_line
    cdef Value seq
    cdef size_t size
    memset(out, 0, sizeof(BatchHeaders))
    seq.p, seq.n = NULL, 0
    while line != NULL and line + 1 < end:
        line += 1
        next_line = <const char*> memchr(line, c'\n', end - line)
        if next_line == NULL:
            break
        size = next_line - line - (next_line > line and next_line[-1] == c'\r')
        if starts(line, size, b"Nats-Batch-Id", 13):
            if out.id.p == NULL:
                out.id = value_in(line, line + size, 13)
        elif starts(line, size, b"Nats-Batch-Sequence", 19):
            if seq.p == NULL:
                seq = value_in(line, line + size, 19)
        elif starts(line, size, b"Nats-Batch-Commit", 17):
            if not out.has_commit:
                out.has_commit, out.commit = True, value_in(line, line + size, 17)
        elif starts(line, size, b"Nats-Required-Api-Level", 23):
            out.has_level = True
        line = next_line
    out.seq = sequence_of(seq)


def scan(bytes headers not None) -> tuple:
    """Return (id, sequence, commit or None, whether an API level is required) of a header block, for tests."""
    cdef BatchHeaders h
    scan_batch_headers(headers, len(headers), &h)
    return (h.id.p[:h.id.n] if h.id.n else b"", h.seq,
            (h.commit.p[:h.commit.n] if h.commit.n else b"") if h.has_commit else None, bool(h.has_level))


# -- batches ---------------------------------------------------------------------------------------------------------

cdef class BatchUsage:
    """The number and the bytes of the open batches of all streams of the server, with their limits."""

    def __cinit__(self) -> None:
        self.bytes_max = STAGED_BYTES_MAX
        self.at_once_max, self.part_size = AT_ONCE_MAX, PART_SIZE


cdef class AtomicBatch:
    """The messages of one batch, in the order of their sequences."""

    def __init__(self, bytes batch_id not None) -> None:
        self.id = batch_id
        self.id_text, self.id_len = self.id, len(batch_id)

    def __dealloc__(self):
        free(self.messages)
        free(self.arena)

    def __len__(self) -> int:
        return self.n

    cdef int stage(self, Msg* m, bint special) noexcept nogil:
        """Append a message; return -1 if out of memory."""
        if grow(<void**> &self.messages, &self.room, self.n + 1, sizeof(StagedMessage)) != 0:
            return -1
        if self.put(&self.messages[self.n], m) != 0:
            return -1
        self.messages[self.n].special = special
        self.n += 1
        return 0

    cdef int put(self, StagedMessage* to, Msg* m) noexcept nogil:
        """Copy a message to the end of the arena, and describe it in `to`; return -1 if out of memory."""
        cdef char* p
        if grow(<void**> &self.arena, &self.arena_room, self.used + m.subject_len + m.size, 1) != 0:
            return -1
        p = self.arena + self.used
        memcpy(p, m.subject, m.subject_len)
        memcpy(p + m.subject_len, m.body, m.size)
        to.at, to.subject_len, to.header_len, to.size = self.used, m.subject_len, m.header_len, m.size
        self.used += m.subject_len + m.size
        return 0

    cdef void view(self, size_t i, Msg* m) noexcept nogil:
        """Set `m` to message `i`, without copying it. `m` is valid until the next `stage` or `replace`."""
        cdef StagedMessage* s = &self.messages[i]
        cdef const char* p = self.arena + s.at
        compose(m, p, s.subject_len, p + s.subject_len, s.header_len, s.size)

    cdef int replace(self, size_t i, bytes subject, bytes headers, bytes payload) except -1:
        """Replace message `i`. Its old bytes stay in the arena, unused. Raises MemoryError."""
        cdef bytes body = headers + payload
        cdef Msg m
        compose(&m, subject, len(subject), body, len(headers), len(body))
        if self.put(&self.messages[i], &m) != 0:
            raise MemoryError
        return 0


cdef class AtomicBatches:
    """The open batches of one stream."""

    def __init__(self, limits, BatchUsage usage not None, timers, tell) -> None:
        self.limits = limits                    # options.BatchLimits
        self.usage = usage                      # of the server
        self.timers = timers
        self.tell = tell                        # called with id and reason for each abandoned batch
        self.timeout_ns = limits.timeout_ns
        self.msgs_max = limits.max_msgs
        self.open = {}
        self.last = AtomicBatch(b"")

    cdef bint goes_on(self, Msg* m, BatchHeaders* h) noexcept nogil:
        """Return whether a message that is not the last one continues the batch used last, within the limits."""
        return (h.seq == <int64_t> self.last.n + 1 and h.seq > 1 and not h.has_commit and not h.has_level
                and h.id.n == self.last.id_len and memcmp(h.id.p, self.last.id_text, h.id.n) == 0
                and self.last.n < self.msgs_max and self.has_room(m))

    cdef int stage(self, AtomicBatch batch, Msg* m, bint special, int64_t now_ns) noexcept nogil:
        """Append a message to an open batch, and restart the idle time; return -1 if out of memory."""
        cdef int64_t size = m.subject_len + m.size + sizeof(StagedMessage)
        if batch.stage(m, special) != 0:
            return -1
        batch.deadline_ns = now_ns + self.timeout_ns
        batch.bytes += size
        self.usage.bytes += size
        return 0

    cdef AtomicBatch take(self, Msg* m, BatchHeaders* h, bint special, int64_t now_ns):
        """Stage a message. If it commits its batch, close and return the batch; otherwise return None.

        Raises:
            ApiError: the message is refused. Its batch is closed, unless the batch id or the sequence is invalid.
        """
        cdef bytes batch_id = h.id.p[:h.id.n] if h.id.n else b"", headers, body
        cdef bint is_end = h.has_commit and value_is(h.commit, b"eob", 3)
        cdef AtomicBatch batch
        cdef Msg other
        errcodes.ATOMIC_PUBLISH_INVALID_BATCH_ID.raise_if(len(batch_id) > ID_SIZE_MAX)
        errcodes.ATOMIC_PUBLISH_MISSING_SEQ.raise_if(h.seq < 0)
        batch = self.open.get(batch_id)
        if batch is None:
            batch = self.begin(batch_id, h.seq, h.seq - is_end, now_ns)
        self.last = batch
        if h.has_commit and not (is_end or value_is(h.commit, b"1", 1)):
            self.close(batch)
            raise errcodes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT.error()
        if h.has_level:
            headers = m.body[:m.header_len]
            if needs_higher_level(headers):
                raise self.abandoned(batch, UNSUPPORTED, errcodes.REQUIRED_API_LEVEL.error())
            headers = without(headers, LEVEL)
            body = headers + m.body[m.header_len:m.size]
            compose(&other, m.subject, m.subject_len, body, len(headers), len(body))
            m = &other
        batch.deadline_ns = now_ns + self.timeout_ns
        if h.seq != <int64_t> batch.n + 1 or (h.seq == 1 and is_end):
            raise self.abandoned(batch, INCOMPLETE, errcodes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error())
        if h.seq - is_end > <int64_t> self.msgs_max or not self.has_room(m):
            raise self.abandoned(batch, LARGE, self.too_large())
        if is_end:  # the message itself is not stored: the one before it gets the commit header
            self.end(batch)
        elif self.stage(batch, m, special, now_ns) != 0:
            raise self.abandoned(batch, LARGE, self.too_large())
        if not h.has_commit:
            return None
        self.close(batch)
        return batch

    cdef bint has_room(self, Msg* m) noexcept nogil:
        """Return whether the message fits into the server's limit on staged bytes."""
        cdef int64_t size = m.subject_len + m.size + sizeof(StagedMessage)
        return self.usage.bytes + size <= self.usage.bytes_max

    cdef AtomicBatch begin(self, bytes batch_id, int64_t seq, int64_t size, int64_t now_ns):
        """Open a batch for a message with the batch sequence `seq`, with which the batch would have `size` messages.

        Raises:
            ApiError: `seq` is not 1, or too many batches are open.
        """
        cdef AtomicBatch batch
        if seq != 1:
            raise (self.too_large() if size > <int64_t> self.msgs_max
                   else errcodes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error())
        if len(self.open) >= self.limits.max_inflight_per_stream \
                or self.usage.count >= self.limits.max_inflight_total:
            raise errcodes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
        batch = AtomicBatch(batch_id)
        batch.deadline_ns = now_ns + self.timeout_ns
        self.open[batch_id] = batch
        self.usage.count += 1
        self.arm(batch)
        return batch

    def end(self, AtomicBatch batch not None) -> None:
        """Add the commit header to the message that was staged last."""
        cdef Msg m
        batch.view(batch.n - 1, &m)
        batch.replace(batch.n - 1, m.subject[:m.subject_len], added(m.body[:m.header_len], COMMIT, b"1"),
                      m.body[m.header_len:m.size])

    def arm(self, AtomicBatch batch not None) -> None:
        """Set the timer for the end of the idle time; later messages do not move it."""
        batch.timer = self.timers.at(batch.deadline_ns, lambda: self.check_idle(batch), self)

    def check_idle(self, AtomicBatch batch not None) -> None:
        """Abandon the batch, or set the timer again if a message has arrived since."""
        if batch.deadline_ns > batch.timer.deadline_ns:
            self.arm(batch)
        else:
            self.abandoned(batch, TIMEOUT, None)

    def abandoned(self, AtomicBatch batch not None, str reason, error):
        """Close the batch, report its id and the reason, and return `error`."""
        self.close(batch)
        self.tell(batch.id, reason)
        return error

    def too_large(self):
        """Return the error for a batch that has too many messages or bytes."""
        return errcodes.ATOMIC_PUBLISH_TOO_LARGE_BATCH.error(size=self.msgs_max)

    def close(self, AtomicBatch batch not None) -> None:
        """Close an open batch, and subtract its messages from the usage."""
        del self.open[batch.id]
        self.usage.count -= 1
        self.usage.bytes -= batch.bytes
        batch.timer.cancel()
        batch.timer = None
        if self.last is batch:
            self.last = AtomicBatch(b"")

    def drop_all(self) -> None:
        """Close all open batches, without advisories."""
        for batch in list(self.open.values()):
            self.close(batch)
