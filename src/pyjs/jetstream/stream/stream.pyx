"""A stream, which accepts publishes, stores them, and answers with PubAcks after the commit.

`deliver` is the ingest: it checks header conditions, duplicates, sizes and limits, then appends the message to the
store's batch and queues an answer. `commit`, called in the turn, writes the batch; only then does it send answers
and wake consumers. Messages that new ones replace (by limits or a roll-up) are removed by a second, small write
before the answers (eviction.pyx).

Invariants after a commit: first_seq <= last_seq + 1; msgs <= last_seq + 1 - first_seq; kept_seq == last_seq.

Long because the ingest of a message, the commit and its effects change the same state. Compiled, because it runs for
every published message (benchmarks/: JetStream async publish). Source: nats.docs "Streams"; order of checks and texts
probed on nats-server 2.15.1 (tests/conformance).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Sink
from pyjs.jetstream.stream.aging cimport Aging
from pyjs.jetstream.stream.answers cimport DUPLICATE, PUB_ACK, REFUSAL, Answers
from pyjs.jetstream.stream.dedupe cimport Dedupe
from pyjs.jetstream.stream.eviction cimport Evictions
from pyjs.jetstream.stream.features.plain_schedules cimport is_valid_plain
from pyjs.jetstream.stream.interest cimport Interest
from pyjs.jetstream.stream.limits cimport (
    ALLOW_ROLLUP, ALLOW_TTL, AWAITS_REPLICA, COUNTS, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT, HOLDS, IN_STEPS,
    KEEPS_INTEREST, NO_ACK, REMOVES_ACKNOWLEDGED, SCHEDULES, SEALED, StreamLimits, Usage, UsageShare,
)
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, parse_seq, scan_pub_headers, value_is
from pyjs.jetstream.stream.retention cimport remove_unneeded, skip_unwanted
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer, StreamInbox
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.sequences cimport index_prev_live
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from bisect import bisect_left, insort

from pyjs.base.bounds import SEQ_MAX, taken
from pyjs.base.gotext import duration_text
from pyjs.jetstream.rules.claims import Claims
from pyjs.jetstream.config.choices import WORKQUEUE
from pyjs.jetstream.stream.message_ttl import marker_headers, with_least_ttl
from pyjs.jetstream.stream.publish_errors import IS_DUPLICATE, failure_body, refusal, rollup_error
from pyjs.jetstream.stream.publish_errors import store_error, traced_refusal
from pyjs.jetstream.stream.retention import sweep_steps

cdef int64_t PROBE_NS = 1000000000  # ns to wait before another attempt to remove a message
cdef int64_t STEP_NS = 1000000000   # ns: if a message is older than the last one by this, the wall clock was set back

cdef enum:
    STAGED_BYTES_MAX = 262144   # staged bytes; with more, a turn is requested
    ANSWERS_MAX = 8192
    HEADERS_SIZE_MAX = 65535
    REMOVED_PER_TURN = 2048     # number of messages removed in one turn: about a millisecond
    SUBJECT_TOO_LONG = 4        # possible with a large max_control_line; nats-server stores a part of the subject
    NO_SEQUENCE_LEFT = 5        # nats-server continues with 0, and loses such messages in files
    SUBJECT_SIZE_MAX = 65535    # the limit of a log record
cdef uint64_t LAST_SEQ = SEQ_MAX


cdef class Stream(Sink):
    """One stream of one account."""

    def __init__(self, Account account, config, StreamStore store, int64_t created_ns,
                 Usage account_usage, Usage server_usage, bytes ack_head, expiry, probe=None):
        self.account = account
        self.turn = account.turn
        self.name = config.name
        self.name_bytes = self.name.encode()
        self.name_value.p, self.name_value.n = self.name_bytes, <uint32_t> len(self.name_bytes)
        self.store = store
        self.created_ns = created_ns
        self.usage = UsageShare(account_usage, server_usage)
        self.limits = StreamLimits()
        self.answers, self.held = Answers(ack_head), Answers(ack_head)
        self.expiry, self.aging = expiry, Aging(store)
        self.evictions = Evictions(store, self.turn)
        self.dedupe = Dedupe(0)
        self.dedupe.steps = store.steps
        self.inbox = StreamInbox(self.turn, self)
        self.interest = Interest(store, self.inbox, account.subs.cache)
        self.consumers, self.listing = {}, []
        self.claims = Claims()
        self.n_followers = 0
        self.calls, self.held_calls = [], []
        self.kept_seq, self.probe = store.catalogue.last_seq, probe
        self.configure(config)
        self.count_bytes()

    def __str__(self) -> str:
        return f"stream '{self.account.name} > {self.name}'"

    def configure(self, config) -> None:
        """Apply `config`; the next commit evicts messages in excess of lowered limits."""
        self.finish_batch()
        self.config = config
        cdef int64_t max_age_ns = self.limits.max_age_ns
        self.limits.read(config)
        if self.limits.max_age_ns != max_age_ns:
            self.expiry.cancel()
        self.dedupe.window_ns = taken("duplicate_window", config.duplicate_window_ns)
        self.inbox.asks = self.limits.features & REMOVES_ACKNOWLEDGED != 0
        self.mark_dirty()

    def await_replica(self) -> None:
        """Enforce no limits until a Replica is attached: all replicas must enforce them after the same entries."""
        self.limits.features |= AWAITS_REPLICA

    # -- ingest --------------------------------------------------------------------------------------------

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if self.closed:
            return 0
        if self.replica is not None:
            return self.replica.deliver(m, t)
        t.sub.delivered += 1
        if not self.dirty:
            self.mark_dirty()
        if self.transform is None:
            self.ingest(m)
        else:
            with gil:
                self.ingest_transformed(m)
        if self.staged_bytes > STAGED_BYTES_MAX or self.answers.used > ANSWERS_MAX:
            self.turn.pressure = True
        return 1

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        cdef Msg sent = m[0]
        cdef PubHeaders h
        cdef bytes subject = m.subject[:m.subject_len]
        if self.closed:
            return 0
        if self.replica is not None:
            return self.replica.deliver_traced(m, t, trace)
        self.finish_batch()
        from pyjs.core.tracing.request import disabled_in_place  # imported lazily, as in tracing/publish.pyx
        self.mark_dirty()
        trace.enter_stream(self.name)
        trace.later = self.publish_later
        if self.transform is not None:
            subject = self.transform.apply(subject) or subject
        sent.subject, sent.subject_len = subject, <uint32_t> len(subject)
        if not trace.only:
            self.ingest_with_other_headers(&sent, disabled_in_place(m.body[:m.header_len]))
        elif not self.limits.features & SEALED or not self.refuse(m, 10109, 0):
            scan_pub_headers(m.body, m.header_len, &h)
            self.refused(&sent, &h)
        if not trace.failed:
            wanted = self.interest.wanted(subject, len(subject))
            trace.stored(subject, wanted or not self.limits.features & KEEPS_INTEREST)
        return 1

    def publish_later(self, bytes subject, bytes headers, bytes body) -> None:
        """Publish a message after the next commit, unless that commit fails to write the message ingested last."""
        self.answers.add_message(subject, headers, body, len(body), self.store.catalogue.last_seq)
        self.staged_bytes += len(body)

    cdef void ingest_transformed(self, Msg* m) noexcept:
        """Ingest a message under its transformed subject; a subject that the transform does not match is kept."""
        cdef bytes subject = self.transform.apply(m.subject[:m.subject_len])
        cdef Msg renamed = m[0]
        if subject is not None:
            renamed.subject = subject
            renamed.subject_len = <uint32_t> len(subject)
        self.ingest(&renamed)

    cdef int ingest(self, Msg* m) noexcept nogil:
        cdef uint64_t seq
        if self.limits.features & (SEALED | HOLDS):
            return self.special.deliver(m, NULL) if self.limits.features & HOLDS else self.refuse(m, 10109, 0)
        if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            return self.special.deliver(m, NULL)
        if m.header_len:
            return self.ingest_with_headers(m)
        if self.limits.features & COUNTS:
            self.refuse(m, 10169, 0)
            return 0
        if self.size_refused(m):
            return 0
        seq = self.keep_or_skip(m, False)
        if seq:
            self.dedupe.last_id_len = 0
            self.answer(m, PUB_ACK, seq)
        return 0

    cdef int ingest_with_headers(self, Msg* m) noexcept nogil:
        cdef PubHeaders h
        cdef uint64_t seq
        scan_pub_headers(m.body, m.header_len, &h)
        if h.has_status:
            with gil:
                self.ingest_without_status(m)
            return 0
        if h.batch_id.n or (h.schedule.n and h.rollup.n == 0 and self.limits.features & SCHEDULES):
            return self.special.deliver(m, NULL)
        if self.limits.features & COUNTS:
            return self.special.deliver(m, NULL)
        if self.refused(m, &h):
            return 0
        if h.ttl.n and self.limits.marker_ttl_ns and self.limits.max_msgs_per_subject != 1 and not self.ttl_raised:
            with gil:
                if self.raises_ttl(m):
                    return 0
        seq = self.keep_or_skip(m, h.rollup.n != 0)
        if seq:
            self.note_headers(m, &h, seq)
            self.answer(m, PUB_ACK, seq)
        return 0

    cdef void note_headers(self, Msg* m, PubHeaders* h, uint64_t seq) noexcept nogil:
        """Apply the headers of message `seq`, which has just been accepted."""
        self.remember_id(h, seq)
        if h.ttl.n:
            self.note_ttl(h, seq)
        if h.rollup.n:
            with gil:
                self.evictions.note_rollup(m.subject[:m.subject_len], h.rollup.p[:h.rollup.n], seq)
        if h.schedule.n or h.schedule_next.n:
            with gil:
                self.special.note_schedule(m.body[:m.header_len], seq)

    cdef bint usage_refused(self, Msg* m) noexcept nogil:
        """Return whether server or account has no room for the message; if so, answer it. This check comes first."""
        if self.usage.server.max >= 0 and self.usage.server.used > self.usage.server.max and self.replica is None:
            return self.refuse(m, 10023, 0)
        return self.over_usage(m) and self.refuse(m, 10002, 0)

    cdef bint refused(self, Msg* m, PubHeaders* h) noexcept nogil:
        """Return whether the message is refused for a header or its size, or is a duplicate; if so, answer it."""
        return (self.size_refused(m) or (h.conditional and self.headers_refused(m, h))
                or (h.later and h.ttl.n and self.later_refused(m, AT_LAST))
                or (h.msg_id.n and not h.conditional and self.answered_as_duplicate(m, h)))

    cdef bint headers_refused(self, Msg* m, PubHeaders* h) noexcept nogil:
        """Return whether the message is refused for a header, or is a duplicate; if so, answer it."""
        if h.increments and self.later_refused(m, AT_FIRST):
            return True
        if h.expected_stream.n and not value_is(h.expected_stream, self.name_value.p, self.name_value.n):
            return self.refuse(m, 10060, 0)
        if h.ttl.n and not self.limits.features & ALLOW_TTL and self.later_refused(m, AFTER_STREAM):
            return True
        if self.expectations_failed(m, h):
            return True
        if h.rare and not is_valid_plain(self.limits, m) and self.later_refused(m, AFTER_SEQUENCES):
            return True
        if h.msg_id.n and self.answered_as_duplicate(m, h):
            return True
        if h.expected_last_msg_id.n \
                and not value_is(h.expected_last_msg_id, self.dedupe.last_id, self.dedupe.last_id_len):
            return self.refuse(m, 10070, 0)
        if h.rollup.n == 0 or (self.limits.features & ALLOW_ROLLUP and value_is(h.rollup, b"sub", 3)):
            return False
        with gil:
            return self.refuse_unless_none(m, rollup_error(
                h.rollup.p[:h.rollup.n], self.limits.features & ALLOW_ROLLUP != 0))

    cdef bint later_refused(self, Msg* m, int point) noexcept nogil:
        """Return whether the checks of rare headers at `point` refuse the message; if so, answer it."""
        with gil:
            return self.refuse_unless_none(m, self.special.later_refusal(
                point, m.body[:m.header_len], m.size - m.header_len, m.subject[:m.subject_len]))

    cdef bint expectations_failed(self, Msg* m, PubHeaders* h) noexcept nogil:
        cdef uint64_t last
        if h.expected_last_subject_seq.n:
            last = self.last_seq_for(m, h)
            if parse_seq(h.expected_last_subject_seq) != <int64_t> last:
                return self.refuse(m, 10071, last)
        elif h.expected_last_subject.n:
            return self.refuse(m, 10193, 0)
        if h.expected_last_seq.n and parse_seq(h.expected_last_seq) != <int64_t> self.store.catalogue.last_seq:
            return self.refuse(m, 10071, self.store.catalogue.last_seq)
        return False

    cdef uint64_t last_seq_for(self, Msg* m, PubHeaders* h) noexcept nogil:
        """Return the last sequence of the subject about which the message has a condition, or 0 if there is none."""
        cdef uint64_t last
        if h.expected_last_subject.n:
            last = self.store.last_of(h.expected_last_subject.p, h.expected_last_subject.n, &self.turn.extra_work)
        else:
            last = self.store.last_of(m.subject, m.subject_len, &self.turn.extra_work)
        return self.last_seq_for(m, h) if self.trims(last) else self.evictions.after_rollups(last)

    cdef bint answered_as_duplicate(self, Msg* m, PubHeaders* h) noexcept nogil:
        cdef uint64_t seq = self.dedupe.seq_of(h.msg_id.p, h.msg_id.n, self.now())
        if seq:
            self.answer(m, DUPLICATE, seq)
            if self.turn.trace is not None:
                with gil:
                    self.turn.trace.refused(IS_DUPLICATE)
        return seq != 0

    cdef bint is_too_large(self, Msg* m) noexcept nogil:
        """Return whether the message is larger than max_msg_size; if so, refuse it."""
        return self.limits.max_msg_size >= 0 and m.size > self.limits.max_msg_size and self.refuse(m, 10054, 0)

    cdef bint size_refused(self, Msg* m) noexcept nogil:
        if self.is_too_large(m):
            return True
        if m.header_len > HEADERS_SIZE_MAX:
            return self.refuse(m, 10097, 0)
        return m.subject_len > SUBJECT_SIZE_MAX and self.refuse(m, 10077, SUBJECT_TOO_LONG)

    cdef uint64_t keep_or_skip(self, Msg* m, bint rolls_up) noexcept nogil:
        """Store the message, or skip it if no consumer wants it; return its sequence, or 0 if it is refused."""
        if self.usage.server.max >= 0 and self.usage.server.used > self.usage.server.max and self.replica is None:
            self.refuse(m, 10023, 0)
            return 0
        if self.store.catalogue.last_seq >= LAST_SEQ:
            self.refuse(m, 10077, NO_SEQUENCE_LEFT)
            return 0
        if self.limits.features & KEEPS_INTEREST and not self.interest.wanted(m.subject, m.subject_len):
            return skip_unwanted(self.store, m, self.wall(), self.replica is not None)
        if self.over_usage(m) and not (self.makes_room() and not self.over_usage(m)):
            self.refuse(m, 10002, 0)
            return 0
        if self.limits.features & (DISCARD_NEW | DISCARD_NEW_PER_SUBJECT) and self.limits_refused(m, rolls_up):
            return 0
        if self.republisher is None:
            return self.keep(m)
        with gil:
            return self.keep_and_republish(m)

    cdef bint over_usage(self, Msg* m) noexcept nogil:
        cdef int64_t after
        if self.usage.account.max < 0 or self.replica is not None:
            return False
        after = self.usage.account.used + m.size + m.subject_len + self.store.catalogue.overhead
        return after > self.usage.account.max

    cdef bint limits_refused(self, Msg* m, bint rolls_up) noexcept nogil:
        """Return whether the policy `discard: new` refuses the message; if so, answer the message."""
        cdef int reached = self.limits.reached(self.store.catalogue, m, rolls_up)
        if reached and self.makes_room():
            reached = self.limits.reached(self.store.catalogue, m, rolls_up)
        return reached != 0 and self.refuse(m, 10077, reached)

    cdef bint makes_room(self) noexcept nogil:
        """Carry out noted evictions at once; return False if there are none, or the store cannot be written."""
        if not self.evictions.due(self.limits) or (self.replica is None and self.store.commit() != 0):
            return False
        self.kept_seq = self.store.catalogue.last_seq
        self.evict()
        return True

    cdef bint trims(self, uint64_t seq) noexcept nogil:
        """If the stream's limits may remove `seq`, apply them at once; return whether that was done."""
        return seq != 0 and self.evictions.may_remove(self.limits, seq) and self.makes_room()

    cdef uint64_t keep_and_republish(self, Msg* m) noexcept:
        cdef bytes subject = m.subject[:m.subject_len]
        cdef uint64_t before = self.store.catalogue.last_seq_of(m.subject, m.subject_len)
        cdef uint64_t seq = self.keep(m)
        if seq:
            self.republish(subject, m.body[:m.header_len], m.body + m.header_len, m.size - m.header_len, seq, before)
        return seq

    cdef void republish(self, bytes subject, bytes headers, const char* payload, size_t size,
                        uint64_t seq, uint64_t before) noexcept:
        """Queue a copy of message `seq` for republishing; `before` is the subject's previous sequence, or 0."""
        cdef bytes dest = self.republisher.destination(subject)
        if dest and (self.replica is None or self.replica.proposed):
            headers = self.republisher.headers(headers, subject, seq, self.store.catalogue.last_ts, before, size)
            self.answers.add_message(dest, headers, payload, 0 if self.republisher.headers_only else size, seq)

    cdef uint64_t keep(self, Msg* m) noexcept nogil:
        cdef uint64_t seq = self.store.append(m, self.stamp or self.next_ts())
        if seq == 0:
            with gil:
                self.refuse_with(m, store_error(self.store.error))
            return 0
        self.staged_bytes += m.size + m.subject_len
        if self.usage.account.max >= 0 or self.usage.server.max >= 0:
            self.count_bytes()
        if self.limits.max_msgs_per_subject > 0 \
                and (self.store.catalogue.count_of(m.subject, m.subject_len)
                     > <uint64_t> self.limits.max_msgs_per_subject):
            self.evictions.note(seq)
        return seq

    cdef int64_t next_ts(self) noexcept nogil:
        """Return the time of the next message: unique, and lower than the last one only if the clock was set back."""
        cdef int64_t ts = self.wall(), last = self.store.catalogue.last_ts
        return last + 1 if ts <= last and (last < ts + STEP_NS or self.entry_ns) else ts

    cdef void remember_id(self, PubHeaders* h, uint64_t seq) noexcept nogil:
        self.dedupe.set_last_id(h.msg_id.p, h.msg_id.n)
        # If out of memory, the id is not remembered, and a duplicate of this message would be stored.
        if h.msg_id.n and self.dedupe.window_ns:
            self.dedupe.remember(h.msg_id.p, h.msg_id.n, seq,
                                 self.store.catalogue.time_of(seq) if self.entry_ns else self.turn.now)

    cdef void answer(self, Msg* m, int kind, uint64_t seq) noexcept nogil:
        if m.reply_len and not self.limits.features & NO_ACK:
            self.answers.add(m, kind, seq, NULL, 0)

    cdef bint refuse(self, Msg* m, int err_code, uint64_t seq) noexcept nogil:
        """Answer with an error, and return True; `seq` is a value in the text or, for 10077, the reason's number."""
        if (m.reply_len and not self.limits.features & NO_ACK) or self.turn.trace is not None:
            with gil:
                self.refuse_with(m, refusal(err_code, seq, self.dedupe.last_msg_id))
        return True

    cdef bint refuse_with(self, Msg* m, object error) noexcept:
        """Refuse a message with an ApiError, as `refuse` does."""
        cdef bytes body
        if m.reply_len and not self.limits.features & NO_ACK:
            body = failure_body(self.name, error)
            self.answers.add(m, REFUSAL, 0, body, len(body))
        if self.turn.trace is not None:
            self.turn.trace.refused(*traced_refusal(error, m.subject[:m.subject_len], m.body[:m.header_len]))
        return True

    cdef bint refuse_unless_none(self, Msg* m, object error) noexcept:
        return error is not None and self.refuse_with(m, error)

    cdef bint raises_ttl(self, Msg* m) noexcept:
        """If a TTL is below that of delete markers, raise it and ingest the message; return whether that was done."""
        headers = with_least_ttl(m.body[:m.header_len], self.limits.marker_ttl_ns)
        if headers is None:
            return False
        self.ttl_raised = True              # a flag, since a message may have several such headers
        self.ingest_with_other_headers(m, headers)
        self.ttl_raised = False
        return True

    cdef void note_ttl(self, PubHeaders* h, uint64_t seq) noexcept nogil:
        if h.ttl_ns:
            self.aging.lifetimes.note(seq, h.ttl_ns, self.store.catalogue.time_of(seq))
            return
        with gil:
            self.aging.lifetimes.add(seq, h.ttl.p[:h.ttl.n], self.store.catalogue.time_of(seq))

    cdef void ingest_without_status(self, Msg* m) noexcept:
        """Ingest a message whose header block begins with a status line, without storing that line."""
        cdef bytes rest = m.body[8:m.header_len].partition(b"\r\n")[2]
        self.ingest_with_other_headers(m, b"" if rest == b"\r\n" else b"NATS/1.0\r\n" + rest)

    cdef void ingest_with_other_headers(self, Msg* m, bytes headers) noexcept:
        cdef Msg plain = m[0]
        cdef bytes body = headers + m.body[m.header_len:m.size]
        plain.body = body
        plain.whole = NULL
        plain.header_len = <uint32_t> len(headers)
        plain.size = <uint32_t> len(body)
        plain.split = True                  # `tail` does not belong to this body
        self.ingest(&plain)

    cdef void mark_dirty(self) noexcept nogil:
        if self.dirty:
            return
        self.dirty = True
        with gil:
            self.turn.streams.append(self)

    cdef finish_batch(self):
        """Finish a batch that is being committed in steps, before the stream changes."""
        if self.limits.features & HOLDS:
            self.special.finish()

    def note_change(self) -> None:
        """Queue a commit for this turn, since something other than `ingest` has changed the stream."""
        self.mark_dirty()

    cdef void count_bytes(self) noexcept nogil:
        self.usage.count(<int64_t> self.store.catalogue.bytes)

    # -- the turn ------------------------------------------------------------------------------------------
    def commit(self) -> None:
        """Write the batch, then send answers, report removals to consumers, and wake those that wait."""
        self.dirty = False
        self.staged_bytes = 0
        if self.closed or self.limits.features & (IN_STEPS | AWAITS_REPLICA):
            return
        if self.replica is not None and not self.replica.offer():
            return
        if self.store.commit() != 0:
            self.commit_failed()
            return
        self.kept_seq = self.store.catalogue.last_seq
        self.store.catalogue.check_counts()
        # A replica evicts only at the end of each entry, like all other replicas.
        if self.replica is None and self.evict() and self.store.commit() != 0 and self.probe is not None:
            self.probe.failed(self.turn.now)    # the messages are written; the next commit evicts
        if not self.sync_always:
            self.answers.send(self.account, 0, NULL, 0)
        self.ask_for_sync()
        self.count_bytes()
        if self.limits.max_age_ns or self.limits.features & ALLOW_TTL:
            self.arm_expiry()
        self.interest.tell(self.evictions.purges)
        if self.inflow is not None:
            self.inflow.committed()

    cdef ask_for_sync(self):
        """If there are unsynced writes or waiting answers, queue a call of `begin_sync`."""
        if self.unsynced or not (self.store.dirty or self.answers.used or self.calls):
            return
        self.unsynced = True
        self.turn.unsynced.append(self)

    def when_durable(self, done) -> None:
        """Call `done` with None or an error when all commits so far are written or, with `sync_always`, synced."""
        if self.sync_always:
            self.calls.append(done)
            self.ask_for_sync()
        else:
            done(None)

    def begin_sync(self):
        """Return a job that syncs everything committed, or None if there is nothing to sync. Any thread may run it.

        The caller must pass the job's result to `finish_sync`, which then sends the answers that wait for the sync.
        """
        self.unsynced = False
        if self.sync_job is not None or (self.dirty and self.sync_always):
            return None                         # the running sync, or the commit due in this turn, queues this again
        self.sync_job = self.store.begin_sync()
        if self.sync_job is None and not self.dirty:
            self.answers.send(self.account, 0, NULL, 0)
            self.call_back(self.take_calls(), None)
        elif self.sync_always:
            self.answers, self.held = self.held, self.answers
            self.calls, self.held_calls = self.held_calls, self.calls
        return self.sync_job

    def finish_sync(self, error) -> None:
        """Handle the result of a sync: send the waiting answers, or errors if it failed and sync_always is set."""
        cdef bytes failure
        job, self.sync_job = self.sync_job, None
        self.store.finish_sync(job, error)
        if self.store.wants_upkeep and self.store not in self.turn.upkeep:
            self.turn.upkeep.append(self.store)
        if error is not None and self.sync_always:
            failure = failure_body(self.name, store_error(self.store.error))
            self.held.send(self.account, 0, failure, len(failure))
            self.answers.send(self.account, 0, failure, len(failure))
            self.call_back(self.take_calls(), self.store.error)
            return
        self.held.send(self.account, 0, NULL, 0)
        held, self.held_calls = self.held_calls, []
        self.call_back(held, None)
        if not self.closed:
            self.ask_for_sync()

    def take_calls(self) -> list:
        """Remove the callbacks that wait for a sync, and return them in order."""
        calls, self.calls, self.held_calls = self.held_calls + self.calls, [], []
        return calls

    def call_back(self, list calls, error) -> None:
        """Call the callbacks with the result of a sync."""
        for done in calls:
            done(error)

    cdef commit_failed(self):
        """Refuse the messages of this batch that were not written, and forget their ids."""
        if self.replica is not None:
            self.replica.stop(self.store.error)
            return
        cdef bytes failure = failure_body(self.name, store_error(self.store.error))
        # Messages still in the index were written earlier in the turn; with sync_always, they get the error as well.
        self.kept_seq = max(self.kept_seq,
                            index_prev_live(&self.store.catalogue.index, self.store.catalogue.last_seq))
        self.evictions.forget_from(self.kept_seq + 1)
        self.evict()
        self.dedupe.forget_from(self.kept_seq + 1)
        self.dedupe.last_id_len = 0
        self.answers.send(self.account, 0 if self.sync_always else self.kept_seq + 1, failure, len(failure))
        if not getattr(self.store, "sync_lost", False):
            self.ask_for_sync()             # written messages are synced even while the disk is full
        self.special.lost(self.kept_seq)
        if self.inflow is not None:
            self.inflow.lost()
        if self.probe is not None:
            self.probe.failed(self.turn.now)
        if self.limits.max_age_ns or self.limits.features & ALLOW_TTL:
            self.arm_expiry()                   # stored messages still expire
        self.interest.tell(self.evictions.purges)

    cdef bint evict(self) noexcept nogil:
        """Carry out the noted evictions and the stream's limits; return whether any message was removed."""
        cdef bint some = self.evictions.carry_out(self.limits)
        self.count_bytes()
        return some

    def commit_now(self) -> None:
        """Commit now, before an API reply confirms a change. Raise StoreFailed if the change is not written."""
        self.finish_batch()
        was_dirty = self.dirty
        self.commit()
        self.dirty = was_dirty
        if self.store.failed:
            raise self.store.error

    cdef arm_expiry(self):
        """Set the timer for `expire` to the time of the next expiry."""
        cdef int64_t due = self.aging.next_due(self.limits.max_age_ns)
        self.aging.tidy(self)
        if due and self.store.failed and self.limits.marker_ttl_ns:    # nothing is removed until the disk has space
            due = max(due, self.wall() + PROBE_NS)
        if due and (self.replica is None or self.replica.may_expire):
            self.expiry.arm(self, due - self.turn.skew, self.turn.now)

    def clock_stepped(self) -> None:
        """Reset the expiry timer after the wall clock has been set."""
        self.expiry.cancel()
        self.arm_expiry()
        self.special.clock_stepped()

    cdef int64_t now(self) noexcept nogil:
        """Return the time of the turn, or the time of the entry that a replica applies. New messages get `wall`."""
        return self.entry_ns or self.turn.now

    cdef int64_t wall(self) noexcept nogil:
        """Return the wall time, or the time of the entry that a replica applies. New messages and expiry use it."""
        return self.entry_ns or self.turn.now + self.turn.skew

    def expire(self) -> None:
        """Remove expired messages, over as many turns as necessary."""
        if self.replica is None:
            self.aging.begin(self)
        else:
            self.replica.propose_expiry()

    def expire_some(self) -> bool:
        """Remove some of the expired messages; return whether there are more."""
        self.mark_dirty()
        cdef bint leaves_markers = self.limits.marker_ttl_ns != 0
        return not self.closed and (self.limits.features & HOLDS != 0 or self.aging.drop_some(
            self, self.wall(), self.limits.max_age_ns, leaves_markers))

    def leave_marker(self, bytes subject, uint64_t expired) -> None:
        """Store the marker for a subject whose last message, `expired`, is being removed."""
        cdef bytes headers = marker_headers(self.limits.marker_ttl_ns)
        cdef uint64_t seq = self.store.store(subject, headers, b"", self.next_ts() if self.entry_ns else self.wall())
        if self.republisher is not None and seq:
            self.republish(subject, headers, b"", 0, seq, expired)
        self.aging.lifetimes.add(seq, duration_text(self.limits.marker_ttl_ns).encode(),
                                 self.store.catalogue.last_ts if self.entry_ns else self.wall())

    # -- consumers -----------------------------------------------------------------------------------------

    def add_consumer(self, consumer) -> None:
        """Add `consumer` to the stream, to its interest and to its inbox."""
        assert consumer.name not in self.consumers
        self.consumers[consumer.name] = consumer
        if not consumer.config.direct:
            insort(self.listing, consumer.name)
        self.interest.add(consumer)
        if self.config.retention == WORKQUEUE:
            self.claims.put(consumer.name, consumer.config)
        self.store.catalogue.drops.tracked = True
        self.inbox.join(consumer)

    def remove_consumer(self, str name, bint for_good=True) -> None:
        """Remove a consumer; if `for_good`, an interest stream removes messages that only this consumer needed."""
        consumer = self.consumers[name]
        if for_good:
            self.remove_acknowledged(consumer, <size_t> -1)     # before they are lost with the consumer
        del self.consumers[name]
        if not consumer.config.direct:
            del self.listing[bisect_left(self.listing, name)]
        self.interest.remove(consumer)
        self.claims.remove(name)
        self.inbox.leave(consumer)
        self.store.catalogue.drops.tracked = bool(self.consumers)
        if self.limits.features & KEEPS_INTEREST and for_good and not self.closed:
            self.sweep()

    def let_go(self, consumer) -> None:
        """Release a consumer after the stream was closed."""
        del self.consumers[consumer.name]
        self.interest.remove(consumer)
        self.inbox.leave(consumer)

    def update_interest(self, consumer) -> None:
        """Apply the changed filters of `consumer`."""
        self.interest.change(consumer)
        if self.config.retention == WORKQUEUE:
            self.claims.put(consumer.name, consumer.config)
        if self.limits.features & KEEPS_INTEREST:
            self.sweep()

    def read_inbox(self) -> None:
        """Remove acknowledged messages that no consumer needs: some now, the rest in later turns."""
        cdef int left = REMOVED_PER_TURN
        self.inbox.queued = False
        while left > 0 and self.inbox.acknowledged:
            left -= 1 + self.remove_acknowledged(self.inbox.next_acknowledged(), left)
        if self.inbox.acknowledged:
            self.inbox.queue()

    cdef int remove_acknowledged(self, StreamConsumer consumer, size_t most) except -1:
        """Examine up to `most` acknowledged messages, remove those not needed, and return how many were examined."""
        cdef uint64_t seq, features = self.limits.features
        cdef bint shared = features & KEEPS_INTEREST or self.n_followers or len(self.consumers) > 1
        cdef list acknowledged = consumer.take_acknowledged(most) if features & REMOVES_ACKNOWLEDGED else []
        for seq in acknowledged:
            if not (shared and self.interest.needed(seq)):
                if self.replica is None:
                    self.store.drop(seq, False)
                else:
                    self.replica.remove(seq)
        if acknowledged:
            self.mark_dirty()
        return len(acknowledged)

    def sweep(self) -> None:
        """Remove acknowledged messages that no consumer needs, in steps over the next turns."""
        if self.limits.features & REMOVES_ACKNOWLEDGED:
            self.turn.go_on(sweep_steps(self, self.store, self.interest, self.limits))

    # -- streams that copy from this one -------------------------------------------------------------------

    def add_follower(self, follower) -> None:
        """Add a mirror or source. Acknowledged messages that it needs stay in the stream until it calls `release`."""
        self.n_followers += 1
        self.interest.add(follower)
        self.inbox.join(follower)

    def remove_follower(self, follower) -> None:
        """Remove a mirror or source; an interest stream removes messages that only this follower needed."""
        self.n_followers -= 1
        self.interest.remove(follower)
        self.inbox.leave(follower)
        if self.limits.features & KEEPS_INTEREST and not self.closed:
            self.sweep()

    def release(self, uint64_t low, uint64_t high, StoreFilter f not None) -> None:
        """Remove messages `low` to `high` that match `f` and that no consumer needs, unless retention is limits."""
        if self.limits.features & REMOVES_ACKNOWLEDGED and not self.closed:
            remove_unneeded(self.store, self.interest, low, high, f, self.replica)
            self.mark_dirty()

    # -- calls of the API ---------------------------------------------------------------------------------

    def purge(self, bytes subject_filter=b"", uint64_t before_seq=0, uint64_t keep=0) -> int:
        """Remove the messages that match a filter (b"": all), and return their number.

        With `before_seq`, only lower sequences are removed; with `keep`, the last `keep` matches stay. The removal is
        written when this returns; if it cannot be written, StoreFailed is raised.
        """
        self.commit_now()                   # a store that refuses messages must not remove or erase any
        purged = self.evictions.purge(subject_filter, before_seq, keep)
        self.end_purge(subject_filter)
        return purged

    def end_purge(self, bytes subject_filter) -> None:
        """Make consumers recount num_pending after a purge; the removal is written when this returns."""
        self.evictions.purges.append(subject_filter)
        self.commit_now()

    def delete_msg(self, uint64_t seq, bint erase) -> bool:
        """Remove one message; return False if there was none. The removal is written when this returns.

        With `erase`, the message is also overwritten in its file. Raise StoreFailed if the stream cannot be written.
        """
        self.commit_now()                   # as in purge
        removed = self.store.drop_seq(seq, erase)
        self.commit_now()
        return removed

    def close(self) -> None:
        """Answer committed messages, then refuse all others; the caller must close the store."""
        cdef bytes failure
        self.read_inbox()
        self.commit()
        self.end()
        if self.sync_always:
            self.store.sync_now()
        if self.sync_always and self.store.error is not None:
            failure = failure_body(self.name, store_error(self.store.error))
            self.answers.send(self.account, 0, failure, len(failure))
        else:
            self.answers.send(self.account, 0, NULL, 0)
        self.call_back(self.calls, self.store.error)
        self.calls = []
        self.usage.count(0)

    def abandon(self, error) -> None:
        """Stop all work without writing, since the state may be half changed; callbacks get `error`."""
        cdef bytes failure = failure_body(self.name, store_error(error))
        self.end()
        self.held.send(self.account, 0, failure, len(failure))
        self.answers.send(self.account, 0, failure, len(failure))
        self.call_back(self.take_calls(), error)
        self.usage.count(0)

    cdef end(self):
        """Stop accepting messages, and cancel the timers."""
        self.closed, self.special = True, Sink()        # break the cycle: the old object refers to this stream
        self.expiry.cancel()
        for part in (self.probe, self.replica):
            if part is not None:
                part.cancel()
