"""Replies to publishers that wait for the commit."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.wire.ops cimport Msg

cdef enum AnswerKind:
    PUB_ACK                     # sent when the message is written; if the write fails, an error is sent instead
    LONG_ACK                    # as PUB_ACK, but its body is in the arena
    DUPLICATE
    REFUSAL                     # its body is in the arena
    REPUBLISHED                 # a copy to republish, sent when the message is written; dropped if the write fails

cdef struct Answer:
    uint64_t seq
    size_t reply_at             # offset in the arena
    size_t body_at              # for LONG_ACK, REFUSAL and REPUBLISHED: offset in the arena
    uint32_t reply_len
    uint32_t body_len
    uint32_t header_len         # for REPUBLISHED: bytes of the headers in the body
    int kind

cdef class Answers:
    cdef bytes head             # {"stream":"S","seq":
    cdef const char* head_text  # points into `head`
    cdef size_t head_len
    cdef Answer* queue
    cdef size_t used, room
    cdef char* arena            # reply subjects, bodies of refusals, and copies
    cdef size_t arena_used, arena_room

    cdef int add(self, Msg* m, int kind, uint64_t seq, const char* body, size_t body_len) noexcept nogil
    cdef int add_message(self, bytes subject, bytes headers, const char* payload, size_t size, uint64_t seq) noexcept
    cdef Answers detach(self)
    cdef void send(self, Account account, uint64_t lost_from, const char* failure, size_t failure_len) noexcept nogil
    cdef void send_queue(self, Account account, Answer* queue, size_t used, char* arena,
                         uint64_t lost_from, const char* failure, size_t failure_len) noexcept nogil
