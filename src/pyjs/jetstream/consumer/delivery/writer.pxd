"""Deliveries as bytes, and the acks that answer them."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.store cimport Record
from pyjs.wire.ops cimport Msg

cdef enum:
    PIN_SIZE = 22               # characters of a pin, a nuid

cdef struct AckToken:
    uint64_t count              # number of deliveries of the message, including this one
    uint64_t seq                # stream_seq
    uint64_t cseq               # consumer_seq

cdef struct TokenText:          # the last token that was written, and the positions of its digits
    uint64_t count, seq, cseq, pending
    uint64_t ts_high            # the time without its last eight digits
    uint32_t seq_end, cseq_end, ts_end      # positions of the last digits of each number
    uint32_t size

cdef enum Verb:
    VERB_ACK
    VERB_NAK
    VERB_PROGRESS
    VERB_TERM
    VERB_NEXT
    VERB_OTHER

cdef Verb parse_verb(const char* p, size_t n) noexcept nogil

cdef class DeliveryWriter:
    cdef char* line                     # "<ack prefix><token> [hlen ]size CRLF"
    cdef TokenText token                # of `line`
    cdef uint32_t prefix_len            # of "$JS.ACK.<stream>.<consumer>."
    cdef uint32_t other_len             # length of the other form of the ack prefix
    cdef public bint headers_only
    cdef char* bare                     # for headers_only: the headers, with the size of the payload added
    cdef size_t bare_room
    cdef char* pinned                   # a message with the header of a pin added
    cdef size_t pinned_room

    cdef int write(self, Msg* m, Record* r, uint32_t count, uint64_t cseq, uint64_t unread) noexcept nogil
    cdef void finish(self, Msg* m) noexcept nogil
    cdef int strip_payload(self, Msg* m) noexcept nogil
    cdef int add_pin(self, Msg* out, Msg* m, const char* pin) noexcept nogil
    cdef int read_ack(self, Msg* m, AckToken* token) noexcept nogil
