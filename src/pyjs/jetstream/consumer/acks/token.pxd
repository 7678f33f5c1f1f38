"""The reply subject of a delivered message: what it says about the delivery."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct AckToken:
    uint64_t count              # deliveries of the message, this one included
    uint64_t seq                # stream_seq
    uint64_t cseq               # consumer_seq

cdef enum Verb:
    VERB_ACK
    VERB_NAK
    VERB_PROGRESS
    VERB_TERM
    VERB_NEXT
    VERB_OTHER

cdef int parse_token(const char* p, size_t n, AckToken* out) noexcept nogil     # 0, -1: not five tokens
cdef size_t write_token(char* out, uint64_t count, uint64_t seq, uint64_t cseq, int64_t ts,
                        uint64_t pending) noexcept nogil
cdef Verb parse_verb(const char* p, size_t n) noexcept nogil
