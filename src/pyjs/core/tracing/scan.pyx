"""The search for headers that request a trace, in one pass over the starts of the lines.

Few messages have these headers; request.py reads their values. Compiled: runs for every publish with headers
(benchmarks/: JetStream async publish, headers).
"""
from libc.string cimport memchr, memcmp

cdef enum:
    DEST_LEN = 16               # of "Nats-Trace-Dest:"
    PARENT_LEN = 12             # of "traceparent:"


cdef bint is_parent(const char* line) noexcept nogil:
    """Return whether `line` begins with "traceparent:", ignoring case; it must have at least 12 bytes."""
    cdef const char* name = b"traceparent:"
    cdef int i
    for i in range(PARENT_LEN):
        if line[i] != name[i] and (i == PARENT_LEN - 1 or (line[i] | 0x20) != name[i]):
            return False
    return True


cdef bint asks_for_trace(const char* h, size_t n) noexcept nogil:
    cdef const char* end = h + n
    cdef const char* line = <const char*> memchr(h, c'\n', n)
    while line != NULL and end - line > PARENT_LEN:
        line += 1
        if line[0] == c'N':
            if end - line > DEST_LEN and memcmp(line, b"Nats-Trace-Dest:", DEST_LEN) == 0:
                return True
        elif (line[0] | 0x20) == c't' and end - line > PARENT_LEN and is_parent(line):
            return True
        line = <const char*> memchr(line, c'\n', end - line)
    return False


def asks(bytes headers) -> bool:
    """Return the result of asks_for_trace, for tests."""
    return asks_for_trace(headers, len(headers))
