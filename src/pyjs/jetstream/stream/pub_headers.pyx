"""The headers of a publish that a stream handles, found in one pass.

Only lines that start with `Nats-` are examined. Names must match exactly, as in nats-server; if a name repeats, the
first header counts. Leading blanks of values are removed. This module knows nothing of the effects of the headers
(stream.pyx).

Compiled, because it runs for every publish with headers (measured in benchmarks/: JetStream async publish, headers).
Source: nats.docs "Headers for publish", probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr, memcmp, memset

cdef enum:
    PLAIN_DIGITS = 9            # digits of seconds: 31 years, below every limit
    NS_PER_S = 1000000000


cdef inline bint named(const char* name, size_t n, const char* text, size_t m) noexcept nogil:
    return n == m and memcmp(name, text, m) == 0


cdef Value* slot_of(const char* name, size_t n, PubHeaders* out) noexcept nogil:
    """Return the field of `out` for the header `name` (without "Nats-"), or NULL; set the flags for the header."""
    if named(name, n, b"Msg-Id", 6):
        return &out.msg_id
    if named(name, n, b"Expected-Stream", 15):
        return &out.expected_stream
    if named(name, n, b"Expected-Last-Sequence", 22):
        return &out.expected_last_seq
    if named(name, n, b"Expected-Last-Subject-Sequence", 30):
        return &out.expected_last_subject_seq
    if named(name, n, b"Expected-Last-Subject-Sequence-Subject", 38):
        return &out.expected_last_subject
    if named(name, n, b"Expected-Last-Msg-Id", 20):
        return &out.expected_last_msg_id
    if named(name, n, b"Rollup", 6):
        return &out.rollup
    if named(name, n, b"TTL", 3):
        return &out.ttl
    if named(name, n, b"Batch-Id", 8):
        return &out.batch_id
    if named(name, n, b"Incr", 4):
        out.later = out.conditional = True
        out.increments += 1
        return &out.increment
    if is_later(name, n):
        out.later = out.conditional = out.rare = True
    if named(name, n, b"Schedule", 8):
        return &out.schedule
    if named(name, n, b"Schedule-Next", 13):
        return &out.schedule_next
    return NULL


cdef bint is_later(const char* name, size_t n) noexcept nogil:
    return named(name, n, b"Schedule", 8) or named(name, n, b"Schedule-Next", 13) or named(name, n, b"Scheduler", 9) \
            or named(name, n, b"Schedule-Time-Zone", 18) or named(name, n, b"Stream-Source", 13)


cdef int64_t plain_ttl_ns(Value v) noexcept nogil:
    """Return a Nats-TTL of up to nine digits, with or without "s" after them, in ns; 0 for any other form."""
    cdef int64_t seconds = 0
    cdef uint32_t i, n = v.n
    if n > 1 and v.p[n - 1] == c's':
        n -= 1
    if n == 0 or n > PLAIN_DIGITS:
        return 0
    for i in range(n):
        if v.p[i] < c'0' or v.p[i] > c'9':
            return 0
        seconds = seconds * 10 + (v.p[i] - c'0')
    return seconds * NS_PER_S


cdef bint scan_pub_headers(const char* h, size_t n, PubHeaders* out) noexcept nogil:
    cdef const char* end = h + n
    cdef const char* line = <const char*> memchr(h, c'\n', n)
    cdef const char* next_line
    cdef const char* colon
    cdef const char* value
    cdef Value* slot
    memset(out, 0, sizeof(PubHeaders))
    out.has_status = line != NULL and line - h > 9
    while line != NULL and line + 1 < end:
        line += 1
        next_line = <const char*> memchr(line, c'\n', end - line)
        if end - line > 5 and memcmp(line, b"Nats-", 5) == 0:
            value = end if next_line == NULL else next_line - 1
            colon = <const char*> memchr(line, c':', value - line)
            slot = NULL if colon == NULL else slot_of(line + 5, colon - line - 5, out)
            if slot != NULL and slot.p == NULL:
                colon += 1
                while colon < value and colon[0] == c' ':
                    colon += 1
                if value > colon:
                    slot.p = colon
                    slot.n = <uint32_t> (value - slot.p)
                    out.conditional |= slot != &out.msg_id
        line = next_line
    if out.ttl.n:
        out.ttl_ns = plain_ttl_ns(out.ttl)
        out.later |= out.ttl_ns == 0
    return out.conditional or out.msg_id.p != NULL or out.has_status


cdef int64_t parse_seq(Value v) noexcept nogil:
    cdef int64_t out = 0
    cdef uint32_t i
    if v.n == 0 or v.n > 18:
        return -1
    for i in range(v.n):
        if v.p[i] < c'0' or v.p[i] > c'9':
            return -1
        out = out * 10 + (v.p[i] - c'0')
    return out


cdef bint value_is(Value v, const char* text, size_t n) noexcept nogil:
    return v.n == n and memcmp(v.p, text, n) == 0


def scan(bytes headers) -> dict:
    """Return the result of scan_pub_headers by name, for tests and rarely used code."""
    cdef PubHeaders found
    scan_pub_headers(headers, len(headers), &found)
    views = {
        "msg_id": found.msg_id.p[:found.msg_id.n] if found.msg_id.p else None,
        "expected_stream": found.expected_stream.p[:found.expected_stream.n] if found.expected_stream.p else None,
        "expected_last_seq":
            found.expected_last_seq.p[:found.expected_last_seq.n] if found.expected_last_seq.p else None,
        "expected_last_subject_seq":
            found.expected_last_subject_seq.p[:found.expected_last_subject_seq.n]
            if found.expected_last_subject_seq.p else None,
        "expected_last_subject":
            found.expected_last_subject.p[:found.expected_last_subject.n] if found.expected_last_subject.p else None,
        "expected_last_msg_id":
            found.expected_last_msg_id.p[:found.expected_last_msg_id.n] if found.expected_last_msg_id.p else None,
        "rollup": found.rollup.p[:found.rollup.n] if found.rollup.p else None,
        "batch_id": found.batch_id.p[:found.batch_id.n] if found.batch_id.p else None,
        "schedule": found.schedule.p[:found.schedule.n] if found.schedule.p else None,
        "schedule_next": found.schedule_next.p[:found.schedule_next.n] if found.schedule_next.p else None,
        "ttl": found.ttl.p[:found.ttl.n] if found.ttl.p else None,
        "ttl_ns": found.ttl_ns or None,
        "increment": found.increment.p[:found.increment.n] if found.increment.p else None,
        "later": b"" if found.later else None,
    }
    return {name: value for name, value in views.items() if value is not None}
