"""Queues that acks fill for the consumer's turn: replies to acks, and acknowledged sequences for the stream.

Replies are empty messages, which are sent after the acks were written. The stream takes the sequences in the order of
their acks, a limited number at a time. This module knows nothing of acks or streams.

Compiled, because it runs for every ack with a reply, and for every ack in an interest or workqueue stream (measured
in benchmarks/: pull with double acks, pull with explicit acks).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.grow cimport grow
from pyjs.core.account cimport Account
from pyjs.wire.compose cimport TAIL_SIZE_MAX, compose, set_tail
from pyjs.wire.ops cimport Msg

cdef enum:
    ROOM_KEPT = 2048            # number of sequences; a larger buffer is freed when it is empty


cdef class AckReplies:
    """The queued replies to acks of one consumer."""

    def __dealloc__(self):
        free(self.data)

    cdef void add(self, const char* reply, uint32_t n) noexcept nogil:
        """Queue a reply to the subject `reply` of `n` bytes. If out of memory, the reply is dropped."""
        if grow(<void**> &self.data, &self.room, self.size + n + sizeof(uint32_t), 1) < 0:
            return
        memcpy(self.data + self.size, &n, sizeof(uint32_t))
        memcpy(self.data + self.size + sizeof(uint32_t), reply, n)
        self.size += n + sizeof(uint32_t)

    cdef void send(self, Account account) noexcept nogil:
        """Publish the queued replies. Replies to acks that arrive meanwhile are queued for the next call."""
        cdef char* data = self.data
        cdef size_t size = self.size, room = self.room
        self.data = NULL                # a reply may itself be an ack of this consumer
        self.size = self.room = 0
        send_ack_replies(account, data, size)
        if self.data == NULL:
            self.data, self.room = data, room
        else:
            free(data)

    cdef bytes take(self):
        """Remove and return the replies, for a later `send_ack_replies`."""
        replies = <bytes> self.data[:self.size]
        self.size = 0
        return replies


cdef void send_ack_replies(Account account, const char* replies, size_t size) noexcept nogil:
    """Publish replies in the format of `AckReplies.take`; `size` is the number of bytes."""
    cdef size_t at = 0
    cdef uint32_t n = 0
    cdef char[TAIL_SIZE_MAX] tail
    cdef Msg m
    while at < size:
        memcpy(&n, replies + at, sizeof(uint32_t))
        compose(&m, replies + at + sizeof(uint32_t), n, b"", 0, 0)
        set_tail(&m, tail)
        account.publish(&m)
        at += sizeof(uint32_t) + n


cdef class AcknowledgedQueue:
    """The acknowledged sequences of one consumer that the stream has not taken yet."""

    def __dealloc__(self):
        free(self.seqs)

    cdef void add(self, uint64_t seq) noexcept nogil:
        """Queue a sequence. If out of memory, the sequence is dropped, and its message stays in the stream."""
        if grow(<void**> &self.seqs, &self.room, self.count + 1, sizeof(uint64_t)) < 0:
            return
        self.seqs[self.count] = seq
        self.count += 1

    cdef list take(self, size_t most):
        """Remove up to `most` sequences, the oldest first, and return them."""
        cdef size_t n = min(self.count - self.taken, most)
        out = [self.seqs[self.taken + i] for i in range(n)]
        self.taken += n
        if self.taken == self.count:
            self.count = self.taken = 0
            if self.room > ROOM_KEPT:
                free(self.seqs)
                self.seqs = NULL
                self.room = 0
        return out
