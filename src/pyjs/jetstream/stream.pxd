"""A stream: takes publishes, keeps them in a store, answers with PubAcks once they are kept."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Sink, Turn
from pyjs.jetstream.dedupe cimport Dedupe
from pyjs.jetstream.pub_headers cimport PubHeaders
from pyjs.jetstream.usage cimport Usage
from pyjs.store.store cimport StreamStore
from pyjs.subjects.sublist cimport Sublist, Target
from pyjs.wire.ops cimport Msg

cdef enum AnswerKind:
    PUB_ACK                     # goes out once its record is kept; an error reply if that fails
    DUPLICATE
    REFUSAL                     # the body is in the arena already

cdef struct Answer:             # one reply to a publisher, waiting for the commit
    uint64_t seq
    size_t reply_at             # in the arena
    size_t body_at              # REFUSAL
    uint32_t reply_len
    uint32_t body_len
    int kind

cdef class Stream(Sink):
    cdef readonly str name
    cdef readonly object config             # config.StreamConfig
    cdef readonly Account account
    cdef readonly Turn turn
    cdef readonly StreamStore store
    cdef readonly Dedupe dedupe
    cdef readonly dict consumers            # name -> Consumer, see stream.pyi
    cdef readonly int64_t created_ns
    cdef readonly bint closed
    cdef readonly bytes last_msg_id
    cdef public object limiter              # retention.Limiter: rare work, called from the turn
    cdef readonly uint64_t refused_msgs

    # copies of the configuration
    cdef int64_t max_msgs, max_bytes, max_msgs_per_subject, max_msg_size
    cdef bint discard_new, discard_new_per_subject, no_ack, sealed, keeps_interest, allow_rollup
    cdef int record_overhead, header_overhead

    cdef Usage account_usage, server_usage
    cdef int64_t counted_bytes              # what the usages hold of this stream

    cdef list waiting                       # consumers to wake when messages come
    cdef Sublist interest                   # filters of the consumers; only when keeps_interest
    cdef bint dirty                         # in Turn.streams
    cdef uint64_t woken_seq                 # last_seq when consumers were last woken

    cdef Answer* answers
    cdef size_t answers_used, answers_room
    cdef char* arena                        # reply subjects and refusals
    cdef size_t arena_used, arena_room
    cdef char* ack_head                     # {"stream":"S","seq":
    cdef uint32_t ack_head_len
    cdef bytes ack_head_owner
    cdef size_t staged_bytes                # appended since the last commit

    cdef int ingest(self, Msg* m) noexcept nogil
    cdef int ingest_with_headers(self, Msg* m, PubHeaders* headers) noexcept nogil
    cdef int check_headers(self, Msg* m, PubHeaders* headers) noexcept nogil
    cdef int check_room(self, Msg* m) noexcept nogil
    cdef int keep(self, Msg* m, PubHeaders* headers) noexcept nogil
    cdef int skip_without_interest(self, Msg* m, PubHeaders* headers) noexcept nogil
    cdef void answer(self, Msg* m, int kind, uint64_t seq) noexcept nogil
    cdef int refuse(self, Msg* m, int err_code, uint64_t seq) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef void count_bytes(self) noexcept nogil
    cdef void evict_subject(self, Msg* m) noexcept nogil
    cdef void send_answers(self, bint kept) noexcept nogil
    cdef void send_answer(self, Answer* a, bytes body) noexcept
