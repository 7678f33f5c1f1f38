"""Counters with small numbers: the sum of an increment and a stored value, without Python objects.

This module handles numbers of up to 18 digits, whose sum fits into 64 bits, in messages in which no other header has
an effect. All other cases are left to counting.py, with the same results.

This module knows nothing of streams. Compiled: runs for every message of a counter (benchmarks/batches.py: counter).
Source: ADR-49.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport write_digits

cdef extern from "string.h" nogil:
    const void* memmem(const void* text, size_t n, const void* part, size_t part_n)

cdef enum:
    DIGITS_MAX = 18
    HEAD_SIZE = 8               # {"val":"
    TAIL_SIZE = 2               # "}


cdef bint is_only_increment(PubHeaders* h) noexcept nogil:
    """Return whether a single Nats-Incr is the only header with an effect."""
    return (h.increments == 1 and h.increment.n and not h.rare
            and not (h.msg_id.n or h.ttl.n or h.rollup.n or h.expected_stream.n or h.expected_last_seq.n
                     or h.expected_last_subject_seq.n or h.expected_last_subject.n or h.expected_last_msg_id.n
                     or h.batch_id.n or h.schedule.n or h.schedule_next.n or h.has_status))


cdef bint small_number(Value v, int64_t* out) noexcept nogil:
    """Set `out` to the decimal number `v`; return False unless `v` has 1 to 18 digits, perhaps after a sign."""
    cdef int64_t total = 0
    cdef uint32_t i = 1 if v.n and (v.p[0] == c'-' or v.p[0] == c'+') else 0
    if v.n == i or v.n - i > DIGITS_MAX:
        return False
    while i < v.n:
        if v.p[i] < c'0' or v.p[i] > c'9':
            return False
        total = total * 10 + (v.p[i] - c'0')
        i += 1
    out[0] = -total if v.p[0] == c'-' else total
    return True


cdef bint small_value(Record* r, int64_t* out) noexcept nogil:
    """Set `out` to the number in a stored payload; return False if it is not small or the counter has origins."""
    cdef const char* p = r.body + r.header_len
    cdef size_t n = r.size - r.header_len
    cdef Value v
    if n <= HEAD_SIZE + TAIL_SIZE or memcmp(p, b"{\"val\":\"", HEAD_SIZE) != 0 \
            or memcmp(p + n - TAIL_SIZE, b"\"}", TAIL_SIZE) != 0:
        return False
    if memmem(r.body, r.header_len, b"Nats-Counter-Sources", 20) != NULL:
        return False
    v.p, v.n = p + HEAD_SIZE, <uint32_t> (n - HEAD_SIZE - TAIL_SIZE)
    return small_number(v, out)


cdef size_t write_payload(char* out, int64_t value) noexcept nogil:
    """Write the payload of a counter with `value`, in at most PAYLOAD_SIZE_MAX bytes; return its size."""
    cdef size_t n = HEAD_SIZE
    memcpy(out, b"{\"val\":\"", HEAD_SIZE)
    if value < 0:
        out[n] = c'-'
        n += 1
    n += write_digits(out + n, <uint64_t> -value if value < 0 else <uint64_t> value)
    memcpy(out + n, b"\"}", TAIL_SIZE)
    return n + TAIL_SIZE


def added(bytes increment not None, bytes headers not None, bytes payload) -> bytes | None:
    """Return the payload after an increment of a stored message, or None if counting.py must compute it.

    For tests.
    """
    cdef char[PAYLOAD_SIZE_MAX] out
    cdef int64_t total = 0, change = 0
    cdef bytes body
    cdef Record r
    cdef Value v
    v.p, v.n = increment, <uint32_t> len(increment)
    if not small_number(v, &change):
        return None
    if payload is not None:
        body = headers + payload
        r.body, r.header_len, r.size = body, <uint32_t> len(headers), <uint32_t> len(body)
        if not small_value(&r, &total):
            return None
    return out[:write_payload(out, total + change)]
