"""Deliveries as bytes, and the acks that answer them: both have the consumer's ack subject.

    $JS.ACK.<stream>.<consumer>.<count>.<stream_seq>.<consumer_seq>.<timestamp>.<pending>
    $JS.ACK.<domain or _>.<account hash>.<stream>.<consumer>.<the same five>[.<anything>]

A delivery is a stored message whose reply subject is its ack subject: a prefix and the last five tokens. This module
writes the line before the body; the body itself is sent from the store's memory. The body is copied only for
headers_only or a pin, which add a header. The timestamp and the pending count in an ack are for clients; this module
does not read them. This module knows nothing of the receivers.

Compiled, because it writes every delivery and reads every ack (measured in benchmarks/: pull 500, push, pull with
explicit acks).
Source: nats.docs "Consumers", ADR-15, ADR-42 and ADR-47; lenience with acks probed on nats-server 2.15.1.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from pyjs.base.fast cimport write_digits, write_eight_digits
from pyjs.base.grow cimport grow
from pyjs.store.store cimport Record
from pyjs.wire.compose cimport compose, write_sizes
from pyjs.wire.ops cimport Msg

cdef enum:
    LOW_NS = 100000000          # 10 to the power of 8: the last eight digits of a timestamp in ns
    LINE_ROOM = 160             # bytes after the ack prefix: token, header length, size
    HEADER_ROOM = 64            # bytes for one header and the end of the block


# -- ack subjects ---------------------------------------------------------------------------------------------------


cdef size_t read_number(const char* p, size_t n, uint64_t* out) noexcept nogil:
    """Read the number up to a dot or the end; return its length. An invalid number is read as 2**64 - 1."""
    cdef size_t i = 0
    cdef uint64_t value = 0
    while i < n and <unsigned char> (p[i] - c'0') <= 9:
        value = value * 10 + <uint64_t> (p[i] - c'0')
        i += 1
    if 0 < i < 20 and (i == n or p[i] == c'.'):
        out[0] = value
        return i
    out[0] = <uint64_t> -1
    while i < n and p[i] != c'.':
        i += 1
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


cdef void write_token(TokenText* t, char* out, uint64_t count, uint64_t seq, uint64_t cseq, uint64_t ts,
                      uint64_t pending) noexcept nogil:
    """Write the five tokens to `out` (room for 104 bytes), and record the positions of their digits in `t`."""
    cdef char* p = out
    p += write_digits(p, count)
    p[0] = c'.'
    p += 1 + write_digits(p + 1, seq)
    t.seq_end = <uint32_t> (p - out) - 1
    p[0] = c'.'
    p += 1 + write_digits(p + 1, cseq)
    t.cseq_end = <uint32_t> (p - out) - 1
    p[0] = c'.'
    p += 1 + write_digits(p + 1, ts)
    t.ts_end = <uint32_t> (p - out) - 1
    p[0] = c'.'
    p += 1 + write_digits(p + 1, pending)
    t.size = <uint32_t> (p - out)
    t.count, t.seq, t.cseq, t.pending, t.ts_high = count, seq, cseq, pending, ts / LOW_NS


cdef void update_token(TokenText* t, char* out, uint64_t count, uint64_t seq, uint64_t cseq, uint64_t ts,
                       uint64_t pending) noexcept nogil:
    """Write the five tokens over those of the previous delivery; usually only a few digits change."""
    if (count != t.count or seq != t.seq + 1 or cseq != t.cseq + 1 or pending + 1 != t.pending
            or ts / LOW_NS != t.ts_high or t.ts_high == 0
            or out[t.seq_end] == c'9' or out[t.cseq_end] == c'9' or out[t.size - 1] == c'0'):
        write_token(t, out, count, seq, cseq, ts, pending)
        return
    out[t.seq_end] += 1
    out[t.cseq_end] += 1
    out[t.size - 1] -= 1
    write_eight_digits(out + t.ts_end - 7, <uint32_t> (ts % LOW_NS))
    t.seq, t.cseq, t.pending = seq, cseq, pending


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


# -- deliveries -----------------------------------------------------------------------------------------------------


cdef inline char* copy_headers(char* out, Msg* m) noexcept nogil:
    """Copy the headers of `m` to `out`, without their empty last line; return the position after them.

    If `m` has no headers, begin a new block.
    """
    cdef size_t n = m.header_len - 2 if m.header_len else 10
    memcpy(out, m.body if m.header_len else <const char*> b"NATS/1.0\r\n", n)
    return out + n


cdef class DeliveryWriter:
    """The encoder of one consumer's deliveries, and the decoder of the acks that answer them."""

    def __cinit__(self, bytes prefix not None, bytes other_prefix not None):
        self.prefix_len = <uint32_t> len(prefix)
        self.other_len = <uint32_t> len(other_prefix)
        self.line = <char*> malloc(self.prefix_len + LINE_ROOM)
        if self.line == NULL:
            raise MemoryError
        memcpy(self.line, <const char*> prefix, self.prefix_len)

    def __dealloc__(self):
        free(self.line)
        free(self.bare)
        free(self.pinned)

    cdef int write(self, Msg* m, Record* r, uint32_t count, uint64_t cseq, uint64_t unread) noexcept nogil:
        """Set `m` to the delivery of the stored message `r`, without the end of its line; call `finish` next.

        `m` refers to memory of `r` and of this writer, until the next call. Return -1 if out of memory.
        """
        compose(m, r.subject, r.subject_len, r.body, r.header_len, r.size)
        m.reply = m.tail = self.line
        update_token(&self.token, self.line + self.prefix_len, count, r.seq, cseq, <uint64_t> r.ts, unread)
        m.reply_len = self.prefix_len + self.token.size
        m.aliased = True
        return self.strip_payload(m) if self.headers_only else 0

    cdef void finish(self, Msg* m) noexcept nogil:
        """Write "[hlen ]size" after the reply subject."""
        self.line[m.reply_len] = c' '
        m.tail_len = write_sizes(self.line + m.reply_len + 1, m) - self.line

    cdef int strip_payload(self, Msg* m) noexcept nogil:
        """Replace the payload with a header that has the payload's size; return -1 if out of memory."""
        cdef char* p
        if grow(<void**> &self.bare, &self.bare_room, m.header_len + HEADER_ROOM, 1) < 0:
            return -1
        p = copy_headers(self.bare, m)
        memcpy(p, b"Nats-Msg-Size: ", 15)
        p += 15 + write_digits(p + 15, m.size - m.header_len)
        memcpy(p, b"\r\n\r\n", 4)
        m.body = self.bare
        m.header_len = m.size = <uint32_t> (p + 4 - self.bare)
        return 0

    cdef int add_pin(self, Msg* out, Msg* m, const char* pin) noexcept nogil:
        """Set `out` to the delivery `m` with the pin header added; return -1 if out of memory."""
        cdef size_t payload = m.size - m.header_len
        cdef char* p
        if grow(<void**> &self.pinned, &self.pinned_room, m.size + HEADER_ROOM, 1) < 0:
            return -1
        p = copy_headers(self.pinned, m)
        memcpy(p, b"Nats-Pin-Id: ", 13)
        memcpy(p + 13, pin, PIN_SIZE)
        memcpy(p + 13 + PIN_SIZE, b"\r\n\r\n", 4)
        p += 13 + PIN_SIZE + 4
        memcpy(p, m.body + m.header_len, payload)
        out[0] = m[0]
        out.body = self.pinned
        out.header_len = <uint32_t> (p - self.pinned)
        out.size = <uint32_t> (out.header_len + payload)
        self.finish(out)
        return 0

    cdef int read_ack(self, Msg* m, AckToken* token) noexcept nogil:
        """Read the tokens in the ack subject `m.subject` of this consumer; return -1 if there are too few."""
        cdef uint32_t n = self.prefix_len
        if m.subject_len <= n or memcmp(m.subject, self.line, n) != 0:
            n = self.other_len
        if m.subject_len <= n:
            return -1
        return parse_token(m.subject + n, m.subject_len - n, token)


# -- for tests -----------------------------------------------------------------------------------------------------


def parse(bytes tokens) -> tuple:
    """Return (count, stream_seq, consumer_seq) in the five `tokens` of an ack subject, or None if any is missing."""
    cdef AckToken token
    if parse_token(tokens, len(tokens), &token) < 0:
        return None
    return token.count, token.seq, token.cseq


def compose_tokens(deliveries) -> list:
    """Return the last five tokens of the ack subject of each delivery in `deliveries`.

    All tokens are written to one buffer, as in `write`, so each delivery overwrites the tokens of the last one.
    """
    cdef TokenText t
    cdef char out[104]
    memset(&t, 0, sizeof(t))
    texts = []
    for count, seq, cseq, ts, pending in deliveries:
        update_token(&t, out, count, seq, cseq, ts, pending)
        texts.append(out[: t.size])
    return texts


def verb_of(bytes payload) -> str:
    """Return the name of the verb in an ack's payload."""
    return ("ack", "nak", "in_progress", "term", "next", "other")[<int> parse_verb(payload, len(payload))]
