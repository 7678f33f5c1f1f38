"""Answers direct gets of the last message of a subject, without a Python object per message.

Every read of a key-value bucket is such a request. All other cases (no message, a wildcard, damage) are left to
api/direct.py, which can handle every request and gives the same answers.

Source: ADR-31. Compiled because a client waits for each of these answers (benchmarks/: direct-1, direct-16).
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.fast cimport write_digits
from pyjs.base.grow cimport grow
from pyjs.core.account cimport Account
from pyjs.store.store cimport Record, StreamStore
from pyjs.store.index.subjects cimport Subject, subjects_find
from pyjs.subjects.tokens cimport has_wildcard
from pyjs.wire.compose cimport TAIL_SIZE_MAX, compose, set_tail
from pyjs.wire.ops cimport Msg

from pyjs.base.gotext import time_text

cdef enum:
    FIELDS_SIZE_MAX = 128               # bytes of sequence, time and the names of the header fields
    KEEP_MAX = 1048576                  # bytes; a larger buffer is freed after use
cdef int64_t NS_PER_S = 1000000000
cdef int64_t S_PER_DAY = 86400
cdef bytes FIRST_LINE = b"NATS/1.0\r\n"
cdef bytes SEQUENCE = b"\r\nNats-Sequence: "
cdef bytes TIME_STAMP = b"\r\nNats-Time-Stamp: "


cdef inline char* put(char* out, const char* p, size_t n) noexcept nogil:
    memcpy(out, p, n)
    return out + n


cdef inline void put_padded(char* out, int value, int digits) noexcept nogil:
    """Write the last `digits` decimal digits of `value`, with leading zeros."""
    while digits:
        digits -= 1
        out[digits] = <char> (c"0" + value % 10)
        value //= 10


cdef class DirectAnswers:
    """The sender of answers to direct gets of the last message of a subject in one stream."""

    cdef bytes name_line                # "Nats-Stream: <name>\r\nNats-Subject: "
    cdef char* buffer                   # one answer: headers, followed by payload
    cdef size_t room
    cdef int64_t day                    # days since 1970 of `date`
    cdef char[10] date                  # as text, such as 2026-11-21

    def __init__(self, bytes name) -> None:
        self.name_line = b"Nats-Stream: " + name + b"\r\nNats-Subject: "
        self.day = -1

    def __dealloc__(self):
        free(self.buffer)

    def send_last(self, Account account not None, StreamStore store not None, bytes subject, bytes reply) -> bool:
        """Send the last message of the literal `subject` to `reply`; return False if api/direct.py must do it."""
        cdef Subject* s = subjects_find(&store.catalogue.subjects.table, subject, len(subject))
        cdef Record r
        cdef Msg m
        cdef char[TAIL_SIZE_MAX] tail
        cdef size_t header_len, size_max
        cdef char* at
        if s == NULL or not reply or has_wildcard(subject, len(subject)):
            return False
        if store.load(store.catalogue.last_up_to(s, store.catalogue.last_seq), &r) != 0:
            return False
        size_max = len(self.name_line) + r.subject_len + r.size + FIELDS_SIZE_MAX
        if grow(<void**> &self.buffer, &self.room, size_max, 1) < 0:
            raise MemoryError
        if r.header_len:
            at = put(self.buffer, r.body, r.header_len - 2)
        else:
            at = put(self.buffer, FIRST_LINE, len(FIRST_LINE))
        at = put(at, self.name_line, len(self.name_line))
        at = put(at, r.subject, r.subject_len)
        at = put(at, SEQUENCE, len(SEQUENCE))
        at += write_digits(at, r.seq)
        at = put(at, TIME_STAMP, len(TIME_STAMP))
        at += self.compose_time(at, r.ts)
        at = put(at, b"\r\n\r\n", 4)
        header_len = at - self.buffer
        at = put(at, r.body + r.header_len, r.size - r.header_len)
        compose(&m, reply, len(reply), self.buffer, header_len, at - self.buffer)
        set_tail(&m, tail)
        account.publish(&m)
        if self.room > KEEP_MAX:
            free(self.buffer)
            self.buffer = NULL
            self.room = 0
        return True

    cdef size_t compose_time(self, char* out, int64_t ts) except 0:
        """Write `ts` as RFC 3339 in UTC, without trailing zeros in the fraction; return the size in bytes."""
        cdef int64_t second = ts // NS_PER_S
        cdef int64_t day = second // S_PER_DAY
        cdef int rest = <int> (ts - second * NS_PER_S)
        cdef int n
        cdef bytes text
        if day != self.day:
            text = time_text(ts).encode()
            memcpy(self.date, <const char*> text, sizeof(self.date))
            self.day = day
        second -= day * S_PER_DAY
        memcpy(out, self.date, sizeof(self.date))
        memcpy(out + 10, b"T00:00:00", 9)
        put_padded(out + 11, <int> (second // 3600), 2)
        put_padded(out + 14, <int> (second // 60 % 60), 2)
        put_padded(out + 17, <int> (second % 60), 2)
        n = 19
        if rest:
            out[n] = c"."
            put_padded(out + n + 1, rest, 9)
            n += 10
            while out[n - 1] == c"0":
                n -= 1
        out[n] = c"Z"
        return n + 1
