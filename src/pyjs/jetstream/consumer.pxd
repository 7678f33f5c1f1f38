"""One consumer: delivers a stream's messages, takes acks."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Sink, Turn
from pyjs.jetstream.ack_token cimport AckToken
from pyjs.jetstream.consumer_log cimport StateLog
from pyjs.jetstream.pending cimport PendingAcks
from pyjs.jetstream.waiting cimport Waiting, WaitingQueue
from pyjs.store.store cimport Record, StoreFilter, StreamStore
from pyjs.subjects.sublist cimport Target
from pyjs.wire.ops cimport Msg

cdef enum Stop:                 # why a pump ends
    STOP_BUDGET                 # enough for one pump: come again
    STOP_END                    # no more messages
    STOP_FULL                   # max_ack_pending
    STOP_IDLE                   # nobody asks

cdef enum AckPolicy:
    ACK_NONE
    ACK_ALL
    ACK_EXPLICIT

cdef class Consumer(Sink):
    cdef readonly str stream_name, name
    cdef readonly object config         # consumer_config.ConsumerConfig
    cdef readonly int64_t created_ns
    cdef readonly bint closed
    cdef readonly tuple filters         # bytes; empty: everything
    cdef readonly list settled          # sequences not needed any more; drained by the stream
    cdef public object settle           # called after `settled` grew; None: the stream does not ask (limits)
    cdef public object wait             # called when caught up: wake me when there are messages
    cdef public object expired          # called when inactive_threshold has passed: remove me

    cdef readonly Account account
    cdef readonly Turn turn
    cdef readonly StreamStore store
    cdef readonly object timers, rng, log
    cdef readonly object file           # store.consumer_state.ConsumerStateFile, None: nothing is kept
    cdef readonly StateLog changes
    cdef readonly PendingAcks pending
    cdef readonly WaitingQueue waiting
    cdef readonly dict spent            # seq -> deliveries: reached max_deliver, not acked, not pending
    cdef readonly int64_t written_size  # of the deltas behind the last snapshot
    cdef StoreFilter filter

    # copies of the configuration
    cdef readonly bint push
    cdef bint headers_only, flow_control
    cdef AckPolicy ack_policy
    cdef int64_t max_ack_pending
    cdef uint32_t max_deliver           # 0: unlimited
    cdef uint32_t sample_percent        # 0: no ack metrics
    cdef bytes deliver_subject, deliver_group

    # the cursor
    cdef readonly uint64_t next_seq             # where the search for the next first delivery begins
    cdef readonly uint64_t delivered_seq, delivered_cseq
    cdef readonly uint64_t floor_seq, floor_cseq        # everything up to here is settled; as reported
    cdef uint64_t* skips                # last_per_subject: deliver only these before `skips_end`; NULL: done
    cdef size_t n_skips, skips_at
    cdef uint64_t skips_end
    cdef uint64_t unread                # live matches in [next_seq, counted_to]
    cdef uint64_t counted_to

    # activity, ns since the epoch, 0: never
    cdef readonly int64_t delivered_at, acked_at
    cdef public int64_t active_at       # last request, delivery or ack
    cdef readonly int64_t paused_until
    cdef int64_t threshold              # inactive_threshold with its jitter; 0: lives for ever
    cdef readonly bint bound            # push: the deliver subject has interest
    cdef int64_t unbound_at
    cdef int64_t sent_at                # push: last message or heartbeat

    # flow control, bytes
    cdef readonly int64_t flow_window, flow_pending, flow_sent
    cdef readonly bytes flow_id         # reply subject of the outstanding request, b"": none

    # the turn
    cdef bint dirty                     # in Turn.consumers
    cdef bint waits                     # `wait` was called and `wake` was not
    cdef bint interest_changed
    cdef list orders                    # (reply, body): pull requests that came with an ack
    cdef list advisories
    cdef uint64_t* settling
    cdef size_t n_settling, settling_room
    cdef char* replies                  # of acks: u32 length and subject each
    cdef size_t replies_len, replies_room
    cdef object timer                   # base.timers.Timer
    cdef int64_t timer_at

    # buffers
    cdef char* line                     # "<ack prefix><token> [hlen ]size\r\n"
    cdef uint32_t prefix_len            # of "$JS.ACK.<stream>.<consumer>."
    cdef uint32_t prefix2_len           # of "$JS.ACK.<domain>.<hash>.<stream>.<consumer>."
    cdef char* header_buf               # headers_only
    cdef size_t header_room
    cdef list subscriptions

    cdef void mark_dirty(self) noexcept nogil

    # acks
    cdef int take_ack(self, Msg* m, Target* t) noexcept nogil
    cdef bint ack(self, AckToken* token) noexcept nogil
    cdef bint ack_one(self, uint64_t seq) noexcept nogil
    cdef bint ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil
    cdef void settle_entry(self, uint32_t i) noexcept nogil
    cdef void note_settled(self, uint64_t seq) noexcept nogil
    cdef void queue_reply(self, const char* reply, uint32_t n) noexcept nogil
    cdef void nak(self, AckToken* token, bytes argument) noexcept
    cdef void forget_spent(self, uint64_t seq) noexcept nogil

    # deliveries
    cdef Stop deliver_some(self) noexcept nogil
    cdef bint has_demand(self) noexcept nogil
    cdef void refresh_unread(self) noexcept nogil
    cdef uint64_t find_next(self) noexcept nogil
    cdef int deliver_new(self, int64_t* budget) noexcept nogil
    cdef int deliver_again(self, uint32_t i, int64_t* budget) noexcept nogil
    cdef int send(self, Record* r, uint32_t count, int64_t* budget) noexcept nogil
    cdef int send_pull(self, Msg* m, int64_t size) noexcept nogil
    cdef int send_push(self, Msg* m, int64_t size) noexcept nogil
    cdef int compose(self, Msg* m, Record* r, uint32_t count, uint64_t unread) noexcept nogil
    cdef int strip_payload(self, Msg* m) noexcept nogil
    cdef void passed(self, uint64_t seq) noexcept nogil
