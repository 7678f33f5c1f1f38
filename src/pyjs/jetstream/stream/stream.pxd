"""A stream, which accepts publishes, stores them, and answers with PubAcks after the commit."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Sink, Turn
from pyjs.jetstream.stream.aging cimport Aging
from pyjs.jetstream.stream.answers cimport Answers
from pyjs.jetstream.stream.dedupe cimport Dedupe
from pyjs.jetstream.stream.eviction cimport Evictions
from pyjs.jetstream.stream.interest cimport Interest
from pyjs.jetstream.stream.limits cimport StreamLimits, UsageShare
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, Value
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer, StreamInbox
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef enum:                      # the points at which rare headers are checked, see features/checks.py
    AT_FIRST = 0
    AFTER_STREAM = 1
    AFTER_SEQUENCES = 2
    AT_LAST = 3

cdef class Stream(Sink):
    cdef readonly str name
    cdef bytes name_bytes
    cdef Value name_value                   # points into name_bytes
    cdef readonly object config             # config.StreamConfig
    cdef readonly Account account
    cdef readonly Turn turn
    cdef readonly StreamStore store
    cdef readonly Dedupe dedupe
    cdef readonly dict consumers            # name -> consumer, see stream_consumer.pyx
    cdef readonly list listing              # names of the consumers that lists show, ascending
    cdef readonly object claims             # claims.Claims: filter subjects of the consumers of a workqueue stream
    cdef readonly int64_t created_ns
    cdef readonly bint closed
    cdef object expiry                      # expiry.Expiry
    cdef object probe                       # store_probe.StoreProbe; None: the stream has no files
    cdef uint64_t kept_seq                  # all seq <= this are written

    cdef StreamLimits limits                # the configured options as C values
    cdef bint ttl_raised                    # the TTL of the current message was raised to that of markers
    cdef readonly Aging aging               # expiry of messages
    cdef public object transform            # subjects.transform.SubjectTransform; None: subjects do not change
    cdef int n_followers                    # number of mirrors and sources that copy this stream
    cdef public object inflow               # sourcing.Inflow for its mirror or sources; None: it has none
    cdef public Sink special                # features.special.SpecialPublishes, which handles batches and counters
    cdef int64_t stamp                      # time of the current message; 0: now
    cdef public Sink replica                # replicated.replica.Replica; None: not replicated
    cdef public int64_t entry_ns  # wall time of the entry that was applied last; 0: the stream is not replicated
    cdef public object republisher          # republish.Republisher; None: messages are not republished

    cdef UsageShare usage                   # the bytes that it counts in the usage of account and server

    cdef readonly Evictions evictions       # carried out when the messages of this turn are written
    cdef readonly StreamInbox inbox         # notices from its consumers
    cdef Interest interest                  # its consumers by subject
    cdef bint dirty                         # the stream is in Turn.streams
    cdef uint64_t staged_bytes              # bytes appended since the last commit
    cdef Answers answers
    cdef Answers held                       # answers that wait for the running sync; only with sync_always
    cdef public bint sync_always            # PubAcks are sent after the sync, not after the write
    cdef list calls, held_calls             # callbacks that wait for the next sync, and for the running one
    cdef bint unsynced                      # the stream is in Turn.unsynced
    cdef object sync_job                    # the running SyncJob of the store; None: none

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1
    cdef bint refused(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef int ingest(self, Msg* m) noexcept nogil
    cdef void ingest_transformed(self, Msg* m) noexcept
    cdef void ingest_without_status(self, Msg* m) noexcept
    cdef void ingest_with_other_headers(self, Msg* m, bytes headers) noexcept
    cdef arm_expiry(self)
    cdef commit_failed(self)
    cdef int ingest_with_headers(self, Msg* m) noexcept nogil
    cdef void note_headers(self, Msg* m, PubHeaders* h, uint64_t seq) noexcept nogil
    cdef bint is_too_large(self, Msg* m) noexcept nogil
    cdef bint usage_refused(self, Msg* m) noexcept nogil
    cdef bint headers_refused(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef bint raises_ttl(self, Msg* m) noexcept
    cdef void note_ttl(self, PubHeaders* h, uint64_t seq) noexcept nogil
    cdef int64_t now(self) noexcept nogil
    cdef int64_t wall(self) noexcept nogil
    cdef bint later_refused(self, Msg* m, int point) noexcept nogil
    cdef bint expectations_failed(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef bint answered_as_duplicate(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef bint size_refused(self, Msg* m) noexcept nogil
    cdef bint limits_refused(self, Msg* m, bint rolls_up) noexcept nogil
    cdef bint over_usage(self, Msg* m) noexcept nogil
    cdef uint64_t keep(self, Msg* m) noexcept nogil
    cdef uint64_t keep_and_republish(self, Msg* m) noexcept
    cdef void republish(self, bytes subject, bytes headers, const char* payload, size_t size,
                        uint64_t seq, uint64_t before) noexcept
    cdef uint64_t keep_or_skip(self, Msg* m, bint rolls_up) noexcept nogil
    cdef void answer(self, Msg* m, int kind, uint64_t seq) noexcept nogil
    cdef bint refuse(self, Msg* m, int err_code, uint64_t seq) noexcept nogil
    cdef bint refuse_with(self, Msg* m, object error) noexcept
    cdef bint refuse_unless_none(self, Msg* m, object error) noexcept
    cdef int remove_acknowledged(self, StreamConsumer consumer, size_t most) except -1
    cdef ask_for_sync(self)
    cdef end(self)
    cdef finish_batch(self)
    cdef void mark_dirty(self) noexcept nogil
    cdef void count_bytes(self) noexcept nogil
    cdef bint makes_room(self) noexcept nogil
    cdef bint trims(self, uint64_t seq) noexcept nogil
    cdef bint evict(self) noexcept nogil
    cdef int64_t next_ts(self) noexcept nogil
    cdef void remember_id(self, PubHeaders* h, uint64_t seq) noexcept nogil
    cdef uint64_t last_seq_for(self, Msg* m, PubHeaders* h) noexcept nogil
