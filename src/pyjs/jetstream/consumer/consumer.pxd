"""A consumer delivers the messages of a stream, and stores which of them were acknowledged."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Turn
from pyjs.jetstream.consumer.acks.queues cimport AckReplies, AcknowledgedQueue
from pyjs.jetstream.consumer.acks.state cimport AckState
from pyjs.jetstream.consumer.delivery.cursor cimport DeliveryCursor
from pyjs.jetstream.consumer.delivery.outcome cimport Outcome
from pyjs.jetstream.consumer.delivery.pacing cimport Pacing
from pyjs.jetstream.consumer.delivery.pull_requests cimport PullRequests
from pyjs.jetstream.consumer.delivery.push cimport FlowControl, PushSubject
from pyjs.jetstream.consumer.delivery.writer cimport AckToken, DeliveryWriter, Verb
from pyjs.jetstream.consumer.state_keeper cimport StateKeeper
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer
from pyjs.jetstream.consumer.wake_timer cimport WakeTimer
from pyjs.store.store cimport Record, StreamStore
from pyjs.wire.ops cimport Msg

cdef enum Life:
    LIVE                        # from its creation until `close`
    CLOSED                      # does no more work; `stop` must follow
    STOPPED                     # has no subscriptions and no timer

cdef enum AckPolicy:
    ACK_NONE
    ACK_ALL
    ACK_EXPLICIT
    ACK_FLOW                    # the answer to a flow control request acknowledges the sequences in it

cdef class Consumer(StreamConsumer):
    # the constructor's arguments
    cdef readonly str stream_name
    cdef readonly int64_t created_ns
    cdef readonly Account account
    cdef readonly Turn turn
    cdef readonly StreamStore store
    cdef readonly object rng
    cdef readonly object subjects       # subjects.ConsumerSubjects
    cdef readonly list subscriptions    # to its subjects
    cdef readonly object events         # advisories.ConsumerEvents
    cdef WakeTimer timer

    # the parts of the consumer
    cdef readonly StateKeeper keeper
    cdef readonly DeliveryCursor cursor
    cdef readonly AckState acks
    cdef readonly FlowControl flow
    cdef readonly Pacing pacing
    cdef readonly PushSubject push      # None: pull
    cdef readonly PullRequests requests     # None: push
    cdef DeliveryWriter writer
    cdef AckReplies replies             # answers to acks, which are sent in the turn
    cdef AcknowledgedQueue acknowledged     # acknowledged sequences that the stream has not read yet
    cdef public object letters  # dead_letters.sender.LetterSender; None: it has no stream for dead letters
    # (reply, body) of pull requests that were sent in acks, or wait for num_pending; handled in the turn
    cdef list orders

    # copies of the configuration
    cdef AckPolicy ack_policy
    cdef int64_t max_ack_pending        # <= 0: unlimited
    cdef uint32_t max_deliver           # 0: unlimited
    cdef uint32_t sample_percent        # percentage of acks for which a metric is sent
    cdef int64_t threshold  # ns: inactive_threshold, made longer by a random time; 0: the consumer is never removed

    # times of activity, ns since the epoch; 0: never
    cdef readonly int64_t delivered_at, acked_at
    cdef readonly int64_t active_at     # of the last request, delivery or ack
    cdef readonly int64_t paused_until
    cdef Life life
    cdef bint dirty                     # the consumer is in Turn.consumers

    cdef void mark_dirty(self) noexcept nogil

    # acks
    cdef bint take_ack(self, AckToken* token) noexcept nogil
    cdef void ack(self, AckToken* token) noexcept nogil
    cdef void ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil
    cdef bint rare_ack(self, Msg* m, Verb verb, AckToken* token, bytes argument) noexcept
    cdef void sample(self, AckToken* token) noexcept
    cdef void note_acknowledged(self, uint64_t seq) noexcept nogil
    cdef bint is_asked(self) noexcept nogil

    # deliveries
    cdef bint has_demand(self) noexcept nogil
    cdef Outcome deliver_some(self) noexcept nogil
    cdef Outcome deliver_again(self, uint32_t i, int64_t* budget) noexcept nogil
    cdef Outcome deliver_new(self, int64_t* budget) noexcept nogil
    cdef Outcome hold(self, int64_t until) noexcept nogil
    cdef Outcome send(self, Record* r, uint32_t count, uint64_t unread, int64_t* budget) noexcept nogil
    cdef Outcome send_push(self, Msg* m) noexcept nogil
    cdef void ask_flow(self) noexcept
    cdef void give_up(self, uint32_t i) noexcept
    cdef void lose(self, uint32_t i, str reason) noexcept
