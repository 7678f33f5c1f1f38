"""Replies to acks that asked for one."""
from libc.stdint cimport uint32_t

from pyjs.core.account cimport Account

cdef class AckReplies:
    cdef char* data             # u32 length and subject of each
    cdef size_t size, room      # bytes

    cdef void add(self, const char* reply, uint32_t n) noexcept nogil
    cdef void send(self, Account account) noexcept nogil
    cdef bytes take(self)

cdef void send_ack_replies(Account account, const char* replies, size_t size) noexcept nogil
