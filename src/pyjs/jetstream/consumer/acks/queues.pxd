"""Queues that acks fill, for the consumer's turn."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.core.account cimport Account

cdef class AckReplies:
    cdef char* data             # of each reply: u32 length, then the subject
    cdef size_t size, room      # bytes

    cdef void add(self, const char* reply, uint32_t n) noexcept nogil
    cdef void send(self, Account account) noexcept nogil
    cdef bytes take(self)

cdef class AcknowledgedQueue:
    cdef uint64_t* seqs
    cdef size_t count, room
    cdef size_t taken           # number of sequences that were taken already

    cdef void add(self, uint64_t seq) noexcept nogil
    cdef list take(self, size_t most)

cdef void send_ack_replies(Account account, const char* replies, size_t size) noexcept nogil
