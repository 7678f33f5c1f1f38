"""The one builder of messages that the server composes itself: replies, stored messages, deliveries.

The body is elsewhere, not behind the tail. Whoever hands the message on sets the reply and the tail, if it has any.
"""
from libc.stdint cimport uint32_t

from pyjs.wire.ops cimport Msg

cdef inline void compose(Msg* m, const char* subject, size_t subject_len, const char* body, size_t header_len,
                         size_t size) noexcept nogil:
    """Make `m` a message of the server's own without reply and tail; `size` counts headers and payload in bytes."""
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
    m.origin = m.whole = NULL
