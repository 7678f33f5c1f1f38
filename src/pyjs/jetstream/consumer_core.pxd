"""The message path of a consumer."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Turn
from pyjs.jetstream.ack_token cimport AckToken, Verb
from pyjs.jetstream.consumer_log cimport StateLog
from pyjs.jetstream.pending cimport PendingAcks
from pyjs.jetstream.skips cimport Skips
from pyjs.jetstream.stream_consumer cimport StreamConsumer
from pyjs.jetstream.waiting cimport Waiting, WaitingQueue
from pyjs.store.filter cimport StoreFilter
from pyjs.store.store cimport Record, StreamStore
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef enum:
    SETTLED_PER_PUMP = 2048     # messages that a stream drops at once: about a millisecond

cdef enum Stop:                 # why a pump ends
    STOP_BUDGET                 # enough for one pump: come again
    STOP_END                    # no more messages
    STOP_FULL                   # max_ack_pending
    STOP_IDLE                   # nobody asks
    STOP_HELD                   # too early, or too fast: see hold_until

cdef enum AckPolicy:
    ACK_NONE
    ACK_ALL
    ACK_EXPLICIT

cdef enum Priority:             # which of the waiting requests are served
    PRIORITY_NONE
    PRIORITY_OVERFLOW
    PRIORITY_PINNED
    PRIORITY_PRIORITIZED

cdef class ConsumerCore(StreamConsumer):
    cdef readonly bint closed
    cdef readonly Account account
    cdef readonly Turn turn
    cdef readonly StreamStore store
    cdef readonly object rng, log
    cdef readonly str path              # "<account> > <stream> > <consumer>", for the log
    cdef readonly StateLog changes      # since the state was last recorded
    cdef readonly PendingAcks pending
    cdef readonly WaitingQueue waiting  # None: push
    cdef readonly dict spent            # seq -> deliveries: reached max_deliver, not acked, not pending
    cdef uint32_t n_spent               # len(spent)

    # copies of the configuration
    cdef readonly bint push
    cdef bint headers_only
    cdef AckPolicy ack_policy
    cdef int64_t max_ack_pending        # <= 0: unlimited
    cdef uint32_t max_deliver           # 0: unlimited
    cdef uint32_t sample_percent        # of acks that a metric tells of
    cdef bytes deliver_subject
    cdef const char* dest               # of deliver_subject
    cdef uint32_t dest_len

    # the cursor
    cdef StoreFilter filter
    cdef readonly uint64_t next_seq             # where the search for the next first delivery begins
    cdef readonly uint64_t delivered_seq, delivered_cseq
    cdef readonly uint64_t floor_seq, floor_cseq        # everything up to here is settled; as reported
    cdef Skips skips                    # last_per_subject: while any are left, only these up to `skips_end`
    cdef uint64_t skips_end
    cdef uint64_t end_seq               # the last search ended without a match here; 0: it found one
    cdef uint64_t unread                # live matches from next_seq to counted_to
    cdef uint64_t counted_to
    cdef bint unread_stale              # count anew

    # activity, ns since the epoch, 0: never
    cdef readonly int64_t delivered_at, acked_at
    cdef readonly int64_t active_at     # last request, delivery or ack
    cdef readonly int64_t paused_until
    cdef readonly bint bound            # push: the deliver subject has interest
    cdef int64_t sent_at                # push: last message or heartbeat

    # flow control, bytes; flow_window 0: none
    cdef readonly int64_t flow_window, flow_pending, flow_sent
    cdef readonly bint flow_asked       # a request is not answered yet

    # priority groups
    cdef Priority priority
    cdef uint64_t pin                   # number of the pin that a client has; 0: nobody has one
    cdef readonly bytes pin_id          # as the client knows it
    cdef char[22] pin_text
    cdef bint declined                  # no waiting request may be served now
    cdef char* pin_buf                  # a message with the header that tells the pin
    cdef size_t pin_room

    # pace: the distances of replay_policy original, the bucket of rate_limit_bps
    cdef uint64_t replay_to             # first deliveries up to here keep their distances; 0: none does
    cdef int64_t replay_ts, replay_at   # of the last of them: time stored (0: none yet), time of its delivery
    cdef readonly int64_t rate_bps      # bits per second; 0: any number
    cdef int64_t burst_size             # bytes that may go out at once
    cdef int64_t burst_at               # when that many may go out again
    cdef int64_t hold_until             # the next delivery is for then; 0: for now

    # left for the turn
    cdef bint dirty                     # in Turn.consumers
    cdef bint interest_changed
    cdef list orders                    # (reply, body): pull requests that came with an ack
    cdef list advisories                # (kind, fields)
    cdef uint64_t* settling             # on the way into `settled`
    cdef size_t n_settling, settling_room
    cdef size_t n_handed                # of them are in `settled` already
    cdef char* replies                  # of acks: u32 length and subject each
    cdef size_t replies_len, replies_room

    # buffers
    cdef bint acks_by_flow              # ack policy flow_control: what an answer to flow control names is settled
    cdef char* line                     # "<ack prefix><token> [hlen ]size CRLF"
    cdef uint32_t prefix_len            # of "$JS.ACK.<stream>.<consumer>."
    cdef uint32_t prefix2_len           # of the ack prefix that deliveries do not carry
    cdef char* header_buf               # headers_only
    cdef size_t header_room

    cdef void mark_dirty(self) noexcept nogil
    cdef void end_head(self, bytes text) noexcept
    cdef void ask_flow(self) noexcept
    cdef void assign_pin(self, Waiting* w) noexcept
    cdef void spend(self, uint32_t i) noexcept
    cdef void lose(self, uint32_t i, str reason) noexcept

    # acks
    cdef int take_ack(self, Msg* m) noexcept nogil
    cdef bint ack(self, AckToken* token) noexcept nogil
    cdef void ack_one(self, uint64_t seq) noexcept nogil
    cdef void ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil
    cdef void settle_entry(self, uint32_t i) noexcept nogil
    cdef void in_progress(self, uint64_t seq) noexcept nogil
    cdef bint rare_ack(self, Msg* m, Verb verb, AckToken* token, bytes argument) noexcept
    cdef void sample(self, AckToken* token) noexcept
    cdef void note_settled(self, uint64_t seq) noexcept nogil
    cdef void queue_reply(self, const char* reply, uint32_t n) noexcept nogil
    cdef void forget_spent(self, uint64_t seq) noexcept nogil

    # deliveries
    cdef bint has_demand(self) noexcept nogil
    cdef Stop deliver_some(self) noexcept nogil
    cdef void deliver_again(self, uint32_t i, int64_t* budget) noexcept nogil
    cdef int deliver_new(self, int64_t* budget) noexcept nogil
    cdef uint64_t find_next(self) noexcept nogil
    cdef int64_t replay_due(self, int64_t ts) noexcept nogil
    cdef bint is_early(self, int64_t ts) noexcept nogil
    cdef void note_replayed(self, int64_t ts) noexcept nogil
    cdef bint take_rate(self, int64_t size) noexcept nogil
    cdef void pass_by(self, uint64_t seq) noexcept nogil
    cdef void refresh_unread(self) noexcept nogil
    cdef int send(self, Record* r, uint32_t count, uint64_t unread, int64_t* budget) noexcept nogil
    cdef void compose(self, Msg* m, Record* r, uint32_t count, uint64_t unread) noexcept nogil
    cdef void finish_line(self, Msg* m) noexcept nogil
    cdef int strip_payload(self, Msg* m) noexcept nogil
    cdef int send_pull(self, Msg* m, int64_t size, uint64_t unread) noexcept nogil
    cdef bint may_have(self, Waiting* w, uint64_t unread) noexcept nogil
    cdef int publish_pinned(self, Waiting* w, Msg* m) noexcept nogil
    cdef void serve_head(self, int64_t size) noexcept nogil
    cdef int send_push(self, Msg* m) noexcept nogil
