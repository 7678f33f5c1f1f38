"""The last five tokens of an ack subject, and the verbs of ack payloads.

    $JS.ACK.<stream>.<consumer>.<count>.<stream_seq>.<consumer_seq>.<timestamp>.<pending>
    $JS.ACK.<domain or _>.<account hash>.<stream>.<consumer>.<the same five>[.<anything>]

Written for every delivery and read for every ack; the timestamp and the pending count are for clients, reading
them back would serve nobody. Compiled for that (benchmarks/: pull with explicit acks).

Source: ADR-15 and ADR-47 of nats-architecture-and-design; lenience probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp

from pyjs.base.fast cimport write_digits


cdef size_t read_number(const char* p, size_t n, uint64_t* out) noexcept nogil:
    """Read up to a dot or the end, return how far; what is no number becomes the largest, which no delivery has."""
    cdef size_t i = 0
    cdef uint64_t value = 0
    cdef bint bad = n == 0 or p[0] == c'.'
    while i < n and p[i] != c'.':
        bad = bad or p[i] < c'0' or p[i] > c'9' or i == 19
        value = value * 10 + <uint64_t> (p[i] - c'0')
        i += 1
    out[0] = <uint64_t> -1 if bad else value
    return i


cdef int parse_token(const char* p, size_t n, AckToken* out) noexcept nogil:
    cdef uint64_t numbers[3]
    cdef size_t at = 0
    cdef int k
    for k in range(3):
        at += read_number(p + at, n - at, &numbers[k])
        if at >= n:
            return -1
        at += 1
    if memchr(p + at, c'.', n - at) == NULL:
        return -1
    out.count = numbers[0]
    out.seq = numbers[1]
    out.cseq = numbers[2]
    return 0


cdef size_t write_token(char* out, uint64_t count, uint64_t seq, uint64_t cseq, int64_t ts,
                        uint64_t pending) noexcept nogil:
    """Write the five tokens at `out` (room for 104 bytes); returns their length."""
    cdef char* p = out
    p += write_digits(p, count)
    p[0] = c'.'
    p += 1 + write_digits(p + 1, seq)
    p[0] = c'.'
    p += 1 + write_digits(p + 1, cseq)
    p[0] = c'.'
    p += 1 + write_digits(p + 1, <uint64_t> ts)
    p[0] = c'.'
    p += 1 + write_digits(p + 1, pending)
    return p - out


cdef Verb parse_verb(const char* p, size_t n) noexcept nogil:
    if n == 0 or (n == 4 and memcmp(p, b"+ACK", 4) == 0) or (n == 3 and memcmp(p, b"+OK", 3) == 0):
        return VERB_ACK
    if n < 4:
        return VERB_OTHER
    if memcmp(p, b"-NAK", 4) == 0:
        return VERB_NAK
    if memcmp(p, b"+NXT", 4) == 0:
        return VERB_NEXT
    if n == 4 and memcmp(p, b"+WPI", 4) == 0:
        return VERB_PROGRESS
    if n >= 5 and memcmp(p, b"+TERM", 5) == 0:
        return VERB_TERM
    return VERB_OTHER


# -- for tests -----------------------------------------------------------------------------------------------------


def parse(bytes tokens) -> tuple:
    """Return (count, stream_seq, consumer_seq) of the last five tokens, None when they are malformed."""
    cdef AckToken token
    if parse_token(tokens, len(tokens), &token) < 0:
        return None
    return token.count, token.seq, token.cseq


def compose(uint64_t count, uint64_t seq, uint64_t cseq, int64_t ts, uint64_t pending) -> bytes:
    """Return the last five tokens."""
    cdef char out[104]
    return out[:write_token(out, count, seq, cseq, ts, pending)]


def verb_of(bytes payload) -> str:
    """Return the name of the verb that `payload` is."""
    return ("ack", "nak", "in_progress", "term", "next", "other")[<int> parse_verb(payload, len(payload))]
