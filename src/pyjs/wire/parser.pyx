"""The protocol parser: a cursor over received bytes.

`begin` takes one read, `next` returns one operation after another until OP_NEED, and `finish` copies an incomplete
operation so that the read's memory may be freed. Operations are parsed in place. Only an operation that is split
between reads is copied, with no more bytes of the next read than the operation needs. Invariant: the same bytes give
the same operations, however they are split into reads.

The parser handles only the grammar and the size limits. The grammar and the reaction to each
kind of wrong input follow nats-server 2.15: tests/conformance/scenarios/core. Compiled: it runs for every message
(benchmarks/: core publish, 1-1).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from pyjs.base.fast cimport below_graphic, write_digits
from pyjs.wire.ops cimport (
    OP_BAD, OP_BAD_ARGS, OP_CONNECT, OP_ERR, OP_INFO, OP_LINE_TOO_LONG, OP_MSG, OP_NEED, OP_NO_HEADERS, OP_OK,
    OP_PING, OP_PONG, OP_SUB, OP_TOO_BIG, OP_UNSUB,
)

cdef enum:
    MAX_ARGS = 5                # maximum number of arguments of any verb, plus one to detect too many
    MAX_SIZE_DIGITS = 9

cdef struct Arg:
    const char* p
    size_t n


cdef inline int verb(const char* p, size_t n, const char* name, size_t m) noexcept nogil:
    """Return 1 if p starts with `name`, 0 if p is a shorter prefix of `name`, -1 otherwise; case is ignored.

    `name` must be in lower case.
    """
    cdef size_t i
    for i in range(m):
        if i == n:
            return 0
        if (p[i] | 0x20) != name[i]:
            return -1
    return 1


cdef inline bint blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef unsigned char CLASS[256]       # by byte: 0: part of a token, 1: between tokens, 2: end of the line
CLASS[:] = [0] * 256
CLASS[<int> c' '] = CLASS[<int> c'\t'] = CLASS[<int> c'\r'] = 1
CLASS[<int> c'\n'] = 2


cdef inline size_t token_end(const char* p, size_t n, size_t i) noexcept nogil:
    """Return the offset of the first blank or line end at or after p[i], or n if there is none."""
    i = below_graphic(p, n, i)
    while i < n and CLASS[<unsigned char> p[i]] == 0:       # a control character that is part of the token
        i = below_graphic(p, n, i + 1)
    return i


cdef inline size_t split(const char* p, size_t n, size_t start, Arg* out, size_t* end) noexcept nogil:
    """Split p[start:] at blanks up to the line end; set `end` to the offset of the line end, or to n without one.

    Return the number of tokens, at most MAX_ARGS.
    """
    cdef size_t i = start, count = 0, first
    while i < n:
        if CLASS[<unsigned char> p[i]] == 0:
            first = i
            i = token_end(p, n, i + 1)
            if count < MAX_ARGS:
                out[count].p = p + first
                out[count].n = i - first
                count += 1
        elif p[i] == c'\n':
            break
        else:
            i += 1
    end[0] = i
    return count


cdef inline long parse_size(const char* p, size_t n) noexcept nogil:
    """Return the number in 1 to 9 ASCII digits, or -1 for any other text."""
    cdef size_t i
    cdef long value = 0
    if n == 0 or n > MAX_SIZE_DIGITS:
        return -1
    for i in range(n):
        if p[i] < c'0' or p[i] > c'9':
            return -1
        value = value * 10 + (p[i] - c'0')
    return value


cdef class Parser:
    """The parser of the operations of one connection."""

    def __cinit__(self):
        self.max_payload = 1024 * 1024
        self.max_control_line = 4096
        self.headers = True

    def __dealloc__(self):
        free(self.kept)
        free(self.scratch)

    cdef void begin(self, const char* data, size_t n) noexcept nogil:
        self.data = data
        self.size = n
        self.at = 0

    cdef int next(self) noexcept nogil:
        cdef size_t used = 0
        cdef int op
        if self.kept_len:
            return self.next_kept()
        if self.at == self.size:
            return OP_NEED
        op = self.parse_one(self.data + self.at, self.size - self.at, &used)
        self.at += used
        return op

    cdef void finish(self) noexcept nogil:
        if self.kept_done:
            self.kept_len = 0
            self.kept_done = False
        if self.at < self.size:
            self.keep(self.data + self.at, self.size - self.at)
        self.at = self.size = 0

    cdef bytes take_rest(self):
        """Return a copy of the unparsed rest of this read; the caller must hold it until it is parsed."""
        cdef bytes rest = self.data[self.at:self.size]
        self.begin(rest, len(rest))
        return rest

    cdef int keep(self, const char* p, size_t n) noexcept nogil:
        cdef size_t wanted = self.kept_len + n
        cdef char* more
        if self.kept_need > wanted:
            wanted = self.kept_need
        if wanted > self.kept_room or (self.kept_room > 65536 and wanted < 1024):
            more = <char*> realloc(self.kept, wanted + 64)
            if more == NULL:
                return -1
            self.kept = more
            self.kept_room = wanted + 64
        memcpy(self.kept + self.kept_len, p, n)
        self.kept_len += n
        return 0

    cdef int next_kept(self) noexcept nogil:
        """Complete the split operation and return it, or return OP_NEED if more input is needed.

        No more bytes of this read are taken than the operation needs.
        """
        cdef size_t take, used = 0
        cdef const char* end
        cdef int op
        if self.kept_done:
            self.kept_len = 0
            self.kept_done = False
            return self.next()
        while True:
            take = self.size - self.at
            if self.kept_need:
                if take > self.kept_need - self.kept_len:
                    take = self.kept_need - self.kept_len
            else:
                end = <const char*> memchr(self.data + self.at, c'\n', take)
                if end != NULL:
                    take = end + 1 - (self.data + self.at)
            if take and self.keep(self.data + self.at, take) < 0:
                return OP_BAD
            self.at += take
            op = self.parse_one(self.kept, self.kept_len, &used)
            if op != OP_NEED:
                self.kept_need = 0
                self.kept_done = True
                return op
            if self.at == self.size:
                return OP_NEED

    cdef int parse_one(self, const char* p, size_t n, size_t* used) noexcept nogil:
        """Parse the operation at `p`. OP_NEED means that the operation is incomplete.

        `kept_need` is then the length of the whole operation, or 0 if it is not known yet.
        """
        cdef int hit
        cdef char c = p[0] | 0x20
        self.kept_need = 0
        if c == c'p':
            hit = verb(p, n, b"pub", 3)
            if hit >= 0:
                return self.args(OP_MSG, p, n, 3, used) if hit else OP_NEED
            hit = verb(p, n, b"ping", 4)
            if hit >= 0:
                return self.args(OP_PING, p, n, 4, used) if hit else OP_NEED
            hit = verb(p, n, b"pong", 4)
            if hit >= 0:
                return self.args(OP_PONG, p, n, 4, used) if hit else OP_NEED
            return OP_BAD
        if c == c'h':
            hit = verb(p, n, b"hpub", 4)
            return OP_BAD if hit < 0 else self.args(OP_MSG, p, n, 4, used) if hit else OP_NEED
        if c == c's':
            hit = verb(p, n, b"sub", 3)
            return OP_BAD if hit < 0 else self.args(OP_SUB, p, n, 3, used) if hit else OP_NEED
        if c == c'u':
            hit = verb(p, n, b"unsub", 5)
            return OP_BAD if hit < 0 else self.args(OP_UNSUB, p, n, 5, used) if hit else OP_NEED
        if c == c'c':
            hit = verb(p, n, b"connect", 7)
            return OP_BAD if hit < 0 else self.args(OP_CONNECT, p, n, 7, used) if hit else OP_NEED
        if c == c'i':
            hit = verb(p, n, b"info", 4)
            return OP_BAD if hit < 0 else self.args(OP_INFO, p, n, 4, used) if hit else OP_NEED
        if p[0] == c'+':
            hit = verb(p + 1, n - 1, b"ok", 2)
            return OP_BAD if hit < 0 else self.args(OP_OK, p, n, 3, used) if hit else OP_NEED
        if p[0] == c'-':
            hit = verb(p + 1, n - 1, b"err", 3)
            return OP_BAD if hit < 0 else self.args(OP_ERR, p, n, 4, used) if hit else OP_NEED
        return OP_BAD

    cdef int args(self, int op, const char* p, size_t n, size_t start, size_t* used) noexcept nogil:
        """Parse the rest of the control line after the verb, which ends at `start`; return the operation."""
        cdef const char* end
        cdef size_t stop
        cdef bint free_form = op == OP_PING or op == OP_PONG or op == OP_OK      # anything may follow the verb
        if start == n:
            return OP_NEED
        if not free_form and not blank(p[start]):
            if op != OP_CONNECT or (p[start] != c'\r' and p[start] != c'\n'):
                return OP_BAD
        while start < n and blank(p[start]):
            start += 1
        if op == OP_MSG:
            return self.publish((p[0] | 0x20) == c'h', p, n, start, used)
        end = <const char*> memchr(p + start, c'\n', n - start)
        if end == NULL:
            return OP_LINE_TOO_LONG if n - start > self.max_control_line and not free_form else OP_NEED
        stop = end - p
        used[0] = stop + 1
        if stop > start and p[stop - 1] == c'\r':
            stop -= 1
        if stop - start > self.max_control_line and not free_form:
            return OP_LINE_TOO_LONG
        self.line = p + start
        self.line_len = stop - start
        return op

    cdef int publish(self, bint with_headers, const char* p, size_t n, size_t start, size_t* used) noexcept nogil:
        """Parse a PUB or HPUB whose arguments begin at p[start]."""
        cdef Arg found[MAX_ARGS]
        cdef size_t line_end = 0
        cdef size_t count = split(p, n, start, found, &line_end), body = line_end + 1
        cdef size_t fixed = 3 if with_headers else 2
        cdef long size, header_len = 0
        cdef Msg* m = &self.msg
        cdef Arg* last
        if line_end - start > self.max_control_line + (line_end < n and p[line_end - 1] == c'\r'):
            return OP_LINE_TOO_LONG
        if line_end == n:
            return OP_NEED
        if with_headers and not self.headers:
            return OP_NO_HEADERS
        if count != fixed and count != fixed + 1:
            return OP_BAD_ARGS
        last = &found[count - 1]
        size = parse_size(last.p, last.n)
        if with_headers:
            header_len = parse_size(found[count - 2].p, found[count - 2].n)
        if size < 0 or header_len < 0 or header_len > size:
            return OP_BAD_ARGS
        if <size_t> size > self.max_payload:
            return OP_TOO_BIG
        if n > body + size and p[body + size] != c'\r':
            return OP_BAD
        if n > body + size + 1 and p[body + size + 1] != c'\n':
            return OP_BAD
        if n < body + size + 2:
            self.kept_need = body + size + 2
            used[0] = 0
            return OP_NEED
        used[0] = body + size + 2
        m.subject = found[0].p
        m.subject_len = <uint32_t> found[0].n
        m.reply_len = <uint32_t> found[1].n if count > fixed else 0
        m.reply = found[1].p if count > fixed else found[0].p
        m.header_len = <uint32_t> header_len
        m.size = <uint32_t> size
        m.body = p + body
        m.aliased = False
        m.via = NULL
        m.told = m.number = 0
        m.tail = found[1].p
        # Forward the line unchanged if it has the usual form; otherwise rebuild its tail.
        if (found[count - 1].p + found[count - 1].n == p + body - 2 and p[body - 2] == c'\r'
                and (count == 2 or found[count - 2].p + found[count - 2].n + 1 == last.p)
                and (count < 4 or found[1].p + found[1].n + 1 == found[2].p)
                and (not with_headers or header_len)):
            m.split = False
            m.tail_len = p + used[0] - m.tail
            return OP_MSG
        if self.rebuild_tail(last.p, last.n, header_len) < 0:
            return OP_BAD
        return OP_MSG

    cdef int rebuild_tail(self, const char* size, size_t size_len, size_t header_len) noexcept nogil:
        """Write "[reply ][hlen ]size CRLF" for self.msg into scratch memory; return -1 if out of memory."""
        cdef Msg* m = &self.msg
        cdef size_t at = 0, room = m.reply_len + 64
        cdef char* out
        if room > self.scratch_room:
            out = <char*> realloc(self.scratch, room)
            if out == NULL:
                return -1
            self.scratch = out
            self.scratch_room = room
        out = self.scratch
        if m.reply_len:
            memcpy(out, m.reply, m.reply_len)
            out[m.reply_len] = c' '
            at = m.reply_len + 1
        if header_len:
            at += write_digits(out + at, header_len)
            out[at] = c' '
            at += 1
        memcpy(out + at, size, size_len)
        memcpy(out + at + size_len, b"\r\n", 2)
        m.tail = out
        m.tail_len = at + size_len + 2
        m.split = True
        return 0

    def feed(self, bytes data) -> list:
        """Return the operations of one read as (name, arguments) with bytes objects, for tests."""
        cdef int op
        cdef list out = []
        cdef Msg* m = &self.msg
        self.begin(data, len(data))
        while True:
            op = self.next()
            if op == OP_NEED:
                self.finish()
                return out
            if op == OP_MSG:
                tail = m.tail[:m.tail_len] + (m.body[:m.size] + b"\r\n" if m.split else b"")
                out.append(("MSG", (m.subject[:m.subject_len], m.reply[:m.reply_len], m.body[:m.header_len],
                                    m.body[m.header_len:m.size], tail)))
            elif op in NAMES:
                out.append((NAMES[op], (self.line[:self.line_len],)))
            else:
                out.append((ERRORS[op], ()))
                return out


cdef dict NAMES = {OP_PING: "PING", OP_PONG: "PONG", OP_SUB: "SUB", OP_UNSUB: "UNSUB", OP_CONNECT: "CONNECT",
                   OP_INFO: "INFO", OP_OK: "+OK", OP_ERR: "-ERR"}
cdef dict ERRORS = {OP_BAD: "BAD", OP_BAD_ARGS: "BAD_ARGS", OP_LINE_TOO_LONG: "LINE_TOO_LONG",
                    OP_TOO_BIG: "TOO_BIG", OP_NO_HEADERS: "NO_HEADERS"}
