"""A message forwarded to another account, with another subject, reply or Nats-Request-Info header.

Only the server sets that header. Such a header from a client is removed, so that a service can trust it.

Compiled, because it runs for every message across accounts (measured in benchmarks/: request/reply across a service
import).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from pyjs.wire.compose cimport TAIL_SIZE_MAX, write_sizes
from pyjs.wire.ops cimport Msg

cdef enum:
    NAME_SIZE = 18              # "Nats-Request-Info:"
    FIRST_SIZE = 10             # "NATS/1.0" and CRLF
cdef const char* NAME = b"Nats-Request-Info:"
cdef const char* FIRST = b"NATS/1.0\r\n"


cdef void envelope_open(Envelope* e, Msg* m) noexcept nogil:
    e.m = m[0]
    e.m.told = e.m.number = 0   # no server has this message yet: in this account it is a new one
    e.subject = e.body = e.tail = NULL


cdef void envelope_free(Envelope* e) noexcept nogil:
    free(e.subject)
    free(e.body)
    free(e.tail)


cdef int set_reply(Envelope* e, const char* reply, uint32_t n) noexcept nogil:
    cdef char* at
    e.tail = <char*> malloc(n + 1 + TAIL_SIZE_MAX)
    if e.tail == NULL:
        return -1
    at = e.tail
    if n:
        memcpy(at, reply, n)
        at[n] = c' '
        at += n + 1
    at = write_sizes(at, &e.m)
    e.m.reply, e.m.reply_len = e.tail, n
    e.m.tail, e.m.tail_len = e.tail, at - e.tail
    e.m.split = True
    return 0


cdef inline const char* line_end(const char* at, const char* end) noexcept nogil:
    """Return the position after the line that starts at `at`."""
    cdef const char* found = <const char*> memchr(at, c'\n', end - at)
    return end if found == NULL else found + 1


cdef inline bint is_info(const char* at, const char* end) noexcept nogil:
    return end - at > NAME_SIZE and memcmp(at, NAME, NAME_SIZE) == 0


cdef int set_info(Envelope* e, const char* info, uint32_t n) noexcept nogil:
    cdef Msg* m = &e.m
    cdef const char* at = m.body
    cdef const char* end = m.body + m.header_len
    cdef const char* after
    cdef char* out
    e.body = out = <char*> malloc(<size_t> m.size + n + FIRST_SIZE + NAME_SIZE + 8)
    if e.body == NULL:
        return -1
    if m.header_len == 0:
        memcpy(out, FIRST, FIRST_SIZE)
        out += FIRST_SIZE
    while at < end:
        after = line_end(at, end)
        if after - at > 2 and not is_info(at, end):     # the empty line at the end is written below
            memcpy(out, at, after - at)
            out += after - at
        at = after
    memcpy(out, NAME, NAME_SIZE)
    out[NAME_SIZE] = c' '
    memcpy(out + NAME_SIZE + 1, info, n)
    memcpy(out + NAME_SIZE + 1 + n, b"\r\n\r\n", 4)
    out += NAME_SIZE + n + 5
    memcpy(out, end, m.size - m.header_len)
    m.size = <uint32_t> (out - e.body) + m.size - m.header_len
    m.header_len = <uint32_t> (out - e.body)
    m.body = e.body
    m.whole = NULL
    return 0


cdef const char* find_info(Msg* m, uint32_t* n) noexcept nogil:
    cdef const char* at = m.body
    cdef const char* end = m.body + m.header_len
    cdef const char* after
    while at < end:
        after = line_end(at, end)
        if is_info(at, end):
            at += NAME_SIZE
            while at < after and at[0] == c' ':
                at += 1
            n[0] = <uint32_t> (after - at)
            return at
        at = after
    return NULL
