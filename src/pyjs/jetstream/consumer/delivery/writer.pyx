"""The messages that a consumer sends, and the acks that come back: both carry its ack subject.

A delivery is a stored message with "<ack prefix><token>" as reply; the line behind its subject is written here, its
body stays in the store. Only headers_only and a pin need the body written anew, with one header more. Knows nothing
of who gets the message.

Compiled: writes every delivery and reads every ack (benchmarks/: pull 500, push).
Source: nats.docs "Consumers", ADR-15, ADR-42.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport write_digits
from pyjs.base.grow cimport grow
from pyjs.jetstream.consumer.acks.token cimport AckToken, parse_token, write_token
from pyjs.jetstream.consumer.delivery.pin cimport PIN_SIZE
from pyjs.store.store cimport Record
from pyjs.wire.compose cimport compose, write_sizes
from pyjs.wire.ops cimport Msg

cdef enum:
    LINE_ROOM = 160             # behind the ack prefix: token, header length, size
    HEADER_ROOM = 64            # for one header and the end of the block


cdef inline char* copy_headers(char* out, Msg* m) noexcept nogil:
    """Copy the headers without the end of the block, or begin a block; returns the place behind them."""
    cdef size_t n = m.header_len - 2 if m.header_len else 10
    memcpy(out, m.body if m.header_len else <const char*> b"NATS/1.0\r\n", n)
    return out + n


cdef class DeliveryWriter:
    """Writes the deliveries of one consumer."""

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
        """Make `m` the delivery of a stored message, all but the end of its line; -1: no memory."""
        compose(m, r.subject, r.subject_len, r.body, r.header_len, r.size)
        m.reply = m.tail = self.line
        m.reply_len = self.prefix_len + <uint32_t> write_token(
            self.line + self.prefix_len, count, r.seq, cseq, r.ts, unread)
        m.aliased = True
        return self.strip_payload(m) if self.headers_only else 0

    cdef void finish(self, Msg* m) noexcept nogil:
        """Write "[hlen ]size" behind the reply."""
        self.line[m.reply_len] = c' '
        m.tail_len = write_sizes(self.line + m.reply_len + 1, m) - self.line

    cdef int strip_payload(self, Msg* m) noexcept nogil:
        """Replace the payload by a header that tells its size."""
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
        """Make `out` the delivery `m` with a header that names the pin; -1: no memory."""
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
        """Read the token of an ack, which has one of the two prefixes; -1: it has none."""
        cdef uint32_t n = self.prefix_len
        if m.subject_len <= n or memcmp(m.subject, self.line, n) != 0:
            n = self.other_len
        if m.subject_len <= n:
            return -1
        return parse_token(m.subject + n, m.subject_len - n, token)
