"""Replies to publishers that wait for the commit, and copies to republish after it.

Answers are in a queue of fixed-size entries, and their reply subjects in one arena; both grow by doubling and are
used again in the next turn. `send` detaches the queue before the first reply, since a reply may itself be published
into a stream, which then queues answers. A PubAck is composed from a template and digits, without a JSON library.

This module knows nothing of the reasons for refusals. Compiled: runs for every publish with a reply (benchmarks/:
JetStream async publish).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyjs.base.fast cimport write_digits
from pyjs.base.grow cimport grow
from pyjs.core.account cimport Account
from pyjs.wire.compose cimport TAIL_SIZE_MAX, compose, set_tail
from pyjs.wire.ops cimport Msg

cdef enum:
    HEAD_SIZE_MAX = 1200        # bytes: a name of 255 bytes, escaped, and a domain


cdef class Answers:
    """The queued replies of one stream, in the order of the publishes to it."""

    def __cinit__(self, bytes head):
        assert len(head) <= HEAD_SIZE_MAX
        self.head = head
        self.head_text = head
        self.head_len = len(head)

    def __dealloc__(self):
        free(self.queue)
        free(self.arena)

    cdef int add(self, Msg* m, int kind, uint64_t seq, const char* body, size_t body_len) noexcept nogil:
        """Queue a reply to the publish `m`. If out of memory, return -1; the publisher then gets no reply."""
        cdef Answer* a
        if (grow(<void**> &self.queue, &self.room, self.used + 1, sizeof(Answer)) < 0
                or grow(<void**> &self.arena, &self.arena_room, self.arena_used + m.reply_len + body_len, 1) < 0):
            return -1
        a = &self.queue[self.used]
        self.used += 1
        a.kind = kind
        a.header_len = 0
        a.seq = seq
        a.reply_at = self.arena_used
        a.reply_len = m.reply_len
        memcpy(self.arena + a.reply_at, m.reply, m.reply_len)
        a.body_at = a.reply_at + m.reply_len
        a.body_len = <uint32_t> body_len
        if body_len:
            memcpy(self.arena + a.body_at, body, body_len)
        self.arena_used = a.body_at + body_len
        return 0

    cdef int add_message(self, bytes subject, bytes headers, const char* payload, size_t size, uint64_t seq) noexcept:
        """Queue a copy to publish when message `seq` is committed. If out of memory, drop the copy and return -1."""
        cdef bytes body = headers + payload[:size]
        cdef Msg m
        memset(&m, 0, sizeof(Msg))
        m.reply = subject
        m.reply_len = <uint32_t> len(subject)
        if self.add(&m, REPUBLISHED, seq, body, len(body)) != 0:
            return -1
        self.queue[self.used - 1].header_len = <uint32_t> len(headers)
        return 0

    cdef Answers detach(self):
        """Return the queued replies as a separate object, and empty this queue."""
        cdef Answers batch = Answers(self.head)
        batch.queue, batch.used, batch.room = self.queue, self.used, self.room
        batch.arena, batch.arena_used, batch.arena_room = self.arena, self.arena_used, self.arena_room
        self.queue, self.arena = NULL, NULL
        self.used = self.room = self.arena_used = self.arena_room = 0
        return batch

    cdef void send(self, Account account, uint64_t lost_from, const char* failure, size_t failure_len) noexcept nogil:
        """Publish the queued replies and copies.

        If `failure` is not NULL, it is the reply to each message from sequence `lost_from` on, and the copies of
        these messages are dropped. Refusals are sent in any case.
        """
        cdef Answer* queue = self.queue
        cdef char* arena = self.arena
        cdef size_t used = self.used, room = self.room, arena_room = self.arena_room
        if used == 0:
            return
        self.queue, self.arena = NULL, NULL
        self.used = self.room = self.arena_used = self.arena_room = 0
        self.send_queue(account, queue, used, arena, lost_from, failure, failure_len)
        if self.queue == NULL and self.arena == NULL:
            self.queue, self.arena, self.room, self.arena_room = queue, arena, room, arena_room
        else:
            free(queue)
            free(arena)

    cdef void send_queue(self, Account account, Answer* queue, size_t used, char* arena,
                         uint64_t lost_from, const char* failure, size_t failure_len) noexcept nogil:
        cdef char ack[1280]
        cdef char tail[TAIL_SIZE_MAX]
        cdef const char* body
        cdef size_t i, n
        cdef Answer* a
        cdef Msg m
        memcpy(ack, self.head_text, self.head_len)
        for i in range(used):
            a = &queue[i]
            body, n = arena + a.body_at, a.body_len
            if a.kind != REFUSAL and failure != NULL and a.seq >= lost_from:
                if a.kind == REPUBLISHED:
                    continue
                body, n = failure, failure_len
            elif a.kind == PUB_ACK or a.kind == DUPLICATE:
                n = self.head_len + write_digits(ack + self.head_len, a.seq)
                if a.kind == DUPLICATE:
                    memcpy(ack + n, b",\"duplicate\": true", 18)
                    n += 18
                ack[n] = c'}'
                n += 1
                body = ack
            compose(&m, arena + a.reply_at, a.reply_len, body, a.header_len, n)
            set_tail(&m, tail)
            account.publish(&m)
