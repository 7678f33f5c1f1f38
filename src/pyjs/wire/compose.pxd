"""Builder of all messages that the server itself composes: replies, stored messages, deliveries.

In these messages, the body does not follow the tail in memory. The caller writes the tail, and sets the reply if
there is one.
"""
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from pyjs.base.fast cimport write_digits
from pyjs.wire.ops cimport Msg

cdef enum:
    TAIL_SIZE_MAX = 24          # bytes of two 32-bit lengths, a space and CRLF

cdef inline void compose(Msg* m, const char* subject, size_t subject_len, const char* body, size_t header_len,
                         size_t size) noexcept nogil:
    """Set `m` to a message of the server, without reply and tail; `size` includes `header_len`, both in bytes."""
    m.subject = subject
    m.subject_len = <uint32_t> subject_len
    m.reply = m.tail = NULL
    m.reply_len = 0
    m.tail_len = 0
    m.body = body
    m.header_len = <uint32_t> header_len
    m.size = <uint32_t> size
    m.split = True
    m.aliased = False
    m.told = m.number = 0
    m.origin = m.whole = m.via = NULL

cdef inline char* write_sizes(char* out, Msg* m) noexcept nogil:
    """Write "[hlen ]size CRLF", the end of a tail, to `out`; return the position after it."""
    if m.header_len:
        out += write_digits(out, m.header_len)
        out[0] = c' '
        out += 1
    out += write_digits(out, m.size)
    memcpy(out, b"\r\n", 2)
    return out + 2

cdef inline void set_tail(Msg* m, char* room) noexcept nogil:
    """Write the tail of a message without reply to `room`, which has TAIL_SIZE_MAX bytes."""
    m.tail = room
    m.tail_len = write_sizes(room, m) - room
