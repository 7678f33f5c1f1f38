"""Publishes that need more than a check and an append: those of batches, counters and schedules.

A stream's ingest passes a message here when its reply subject, a header or an option of the stream asks for it; all
others never see this part. Batches come before any check of the ingest, counters after the conditions. A schedule
gets its roll-up header and goes back to the ingest; scheduling.pyx fires it.

Compiled, since it stores and answers with the functions of the ingest (benchmarks/: JetStream async publish); the
decisions are in plain Python beside it.
Source: order of checks probed on nats-server 2.15.1 (tests/conformance/scenarios/counter, publish).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.jetstream.stream.features.fast_batches cimport FastBatches
from pyjs.jetstream.stream.features.fast_publishes cimport FastPublishes
from pyjs.jetstream.stream.answers cimport LONG_ACK, REFUSAL
from pyjs.jetstream.stream.limits cimport ALLOW_ROLLUP, COUNTS, DISCARD_NEW, KEEPS_INTEREST, NO_ACK, SCHEDULES
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Target
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

import orjson

from pyjs.base.errors import NotNow
from pyjs.jetstream import advisories, errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.batch_checks import BatchChecks
from pyjs.jetstream.stream.features.batches import ID as BATCH_ID, AtomicBatches, Staged
from pyjs.jetstream.stream.features.counting import counted
from pyjs.jetstream.stream.features.headers import value_of
from pyjs.jetstream.stream.features.schedule import ended_by, with_rollup
from pyjs.jetstream.stream.features.scheduling import Scheduling
from pyjs.jetstream.stream.publish_errors import store_error


cdef class SpecialPublishes(Sink):
    """The publishes of one stream that its ingest does not handle itself."""

    def __init__(self, Stream stream not None, server, timer) -> None:
        self.stream = stream
        self.server = server
        self.scheduling = Scheduling(stream, timer)
        self.batches = AtomicBatches(server.options.limits.batch, server.batches, server.timers, self.tell_abandoned)
        self.fast = FastPublishes(
            stream, self, FastBatches(server.options.limits.batch, server.batches, server.timers))

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        """Take, stage or refuse one message; `t` is not used."""
        cdef PubHeaders h
        if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            return self.fast.deliver(m, t)
        scan_pub_headers(m.body, m.header_len, &h)
        with gil:
            try:
                if h.batch_id.n:
                    self.batched(m)
                elif h.schedule.n and h.rollup.n == 0:
                    self.scheduled(m)
                else:
                    self.add_up(m, &h)
            except ApiError as error:
                self.stream.refuse_with(m, error)
            except BaseException as error:      # the stream's state may be wrong
                self.stream.turn.faulted.append((self.stream, error))
        return 1

    cdef bint is_refused(self, Msg* m) noexcept nogil:
        """Return whether space or size refuse a message of a batch, which is then answered."""
        return self.stream.usage_refused(m) or self.stream.is_too_large(m)

    # -- batches -----------------------------------------------------------------------------------------------
    cdef void batched(self, Msg* m) except *:
        """Stage a message, or commit its batch; a staged one is answered with an empty message."""
        if self.is_refused(m):
            return
        errcodes.ATOMIC_PUBLISH_DISABLED.raise_if(not self.stream.config.allow_atomic)
        message = Staged(m.subject[:m.subject_len], m.body[:m.header_len], m.body[m.header_len:m.size])
        messages = self.batches.add(message, self.stream.turn.now)
        if messages is not None:
            self.commit_batch(m, messages, value_of(message.headers, BATCH_ID))
        elif m.reply_len and not self.stream.limits.features & NO_ACK:
            self.stream.answers.add(m, REFUSAL, 0, NULL, 0)

    cdef void commit_batch(self, Msg* m, list messages, bytes batch_id) except *:
        """Check all messages of a batch, and store them; the PubAck of the last one is that of the batch."""
        cdef uint64_t seq
        if self.stream.limits.features & DISCARD_NEW:
            self.stream.makes_room()            # evictions of this turn count no more
        checks = BatchChecks(self)
        messages = [checks.plain(each) if self.is_plain(each.headers) else checks.checked(each) for each in messages]
        size = sum([each.size for each in messages])
        usage, share = self.stream.usage.account, len(messages) * self.stream.store.catalogue.overhead
        errcodes.ACCOUNT_RESOURCES_EXCEEDED.raise_if(0 <= usage.max < usage.used + size + share)
        seq = self.append_batch(messages)
        shown = orjson.dumps(batch_id.decode("utf-8", "replace"))
        self.answer(m, seq, b',"batch":%b,"count":%d' % (shown, len(messages)))

    cdef bint is_plain(self, bytes headers) except -1:
        """Return whether no header of a message of a batch needs a check."""
        cdef PubHeaders h
        scan_pub_headers(headers, len(headers), &h)
        return not (h.later or h.msg_id.n or h.ttl.n or h.rollup.n or h.expected_stream.n or h.expected_last_seq.n
                    or h.expected_last_subject_seq.n or h.expected_last_subject.n or h.expected_last_msg_id.n
                    or h.schedule.n or h.schedule_next.n or self.stream.limits.features & (COUNTS | SCHEDULES))

    cdef uint64_t append_batch(self, list messages) except? 0:
        """Append messages so that a crash leaves all of them or none; return the last sequence."""
        cdef StreamStore store = self.stream.store
        cdef uint64_t first = store.catalogue.last_seq + 1, seq = 0
        cdef PubHeaders h
        cdef Msg m
        cdef bytes subject, body
        size = sum([each.size for each in messages])
        if store.begin_batch(len(messages), size, self.stream.wall()) != 0:
            raise store_error(store.error)
        for each in messages:
            subject, body = each.subject, each.headers + each.payload
            compose(&m, subject, len(subject), body, <uint32_t> len(each.headers), <uint32_t> len(body))
            seq = self.keep(&m)
            if seq == 0:
                store.drop_batch()
                while store.catalogue.last_seq >= first:
                    store.drop(first, False)
                    first += 1
                raise store_error(store.error)
        store.end_batch()
        for seq, each in enumerate(messages, first):
            subject, body = each.subject, each.headers
            compose(&m, subject, len(subject), body, <uint32_t> len(body), <uint32_t> len(body))
            scan_pub_headers(m.body, m.header_len, &h)
            self.stream.note_headers(&m, &h, seq)
        return seq

    cdef uint64_t keep(self, Msg* m) noexcept:
        """Append one message of a batch, whose limits are checked."""
        if self.stream.limits.features & KEEPS_INTEREST and not self.stream.interest.wanted(m.subject, m.subject_len):
            return self.stream.store.skip()
        return self.stream.keep(m) if self.stream.republisher is None else self.stream.keep_and_republish(m)

    def drop_disabled(self) -> None:
        """Forget the open batches of the kinds that the stream's configuration does not allow."""
        if not self.stream.config.allow_atomic:
            self.batches.drop_all()
        if not self.stream.config.allow_batched:
            self.fast.batches.close_all()

    def lost(self, uint64_t kept_seq) -> None:
        """End fast batches that have messages after `kept_seq`: these were not written."""
        self.fast.batches.close_lost(kept_seq)

    def close(self) -> None:
        """Forget open batches and schedules, which refer to the stream: a cycle would outlive it."""
        self.batches.drop_all()
        self.fast.batches.close_all()
        self.batches = self.fast.state = None
        self.scheduling.close()
        self.scheduling = None

    def tell_abandoned(self, bytes batch_id, str reason) -> None:
        """Publish the advisory of an abandoned batch."""
        server, stream = self.server, self.stream
        advisories.publish_batch_abandoned(
            stream.account, server.rng, stream.name, batch_id.decode("utf-8", "replace"), reason,
            server.clock.wall_ns(), server.options.domain,
        )

    # -- schedules -----------------------------------------------------------------------------------------------
    cdef void scheduled(self, Msg* m) except *:
        """Take a schedule, with the header by which it replaces earlier messages of its subject."""
        cdef PubHeaders h
        cdef bytes headers = with_rollup(m.body[:m.header_len])
        scan_pub_headers(headers, len(headers), &h)
        errcodes.MESSAGE_SCHEDULES_PATTERN_INVALID.raise_if(h.rollup.n == 0)    # the block is no valid one
        self.stream.ingest_with_other_headers(m, headers)

    def note_schedule(self, bytes headers, uint64_t seq) -> None:
        """Apply the headers of the message `seq`, just stored: it is a schedule, or ends one."""
        subject = ended_by(headers)
        if subject and self.stream.limits.features & ALLOW_ROLLUP:
            self.stream.evictions.note_rollup(subject, b"sub", seq)
        if self.stream.limits.features & SCHEDULES:
            self.scheduling.add(headers, seq, self.stream.store.catalogue.last_ts, self.stream.wall())
            self.scheduling.arm()

    def clock_stepped(self) -> None:
        """Fire by the new wall time, after the clock was set."""
        self.scheduling.arm_again()

    def wall_ns(self) -> int:
        """Return the wall time."""
        return self.stream.wall()

    def last_headers(self, bytes subject) -> bytes | None:
        """Return the header block of the last message of a subject, None: there is none."""
        cdef uint64_t seq = self.stream.store.catalogue.last_seq_of(subject, len(subject))
        try:
            last = self.stream.store.get(seq) if seq else None
        except NotNow as error:
            raise errcodes.STREAM_STORE_FAILED.error(err=error) from None
        return None if last is None else last.headers

    # -- the state that the checks of a batch read ----------------------------------------------------------------
    @property
    def config(self):
        """The configuration of the stream."""
        return self.stream.config

    def is_known_id(self, bytes msg_id) -> bool:
        """Return whether the duplicate window has the id."""
        return self.stream.dedupe.seq_of(msg_id, len(msg_id), self.stream.turn.now) != 0

    def last_seq_of(self, bytes subject) -> int:
        """Return the last sequence of a subject, which may have wildcards; 0: none."""
        return self.stream.store.last_match(subject)

    def totals(self) -> tuple:
        """Return last sequence, messages and bytes of the stream."""
        return self.stream.store.last_seq, self.stream.store.msgs, self.stream.store.bytes

    def count_of(self, bytes subject) -> int:
        """Return the number of messages of a subject."""
        return self.stream.store.catalogue.count_of(subject, len(subject))

    def stored_size(self, bytes subject, bytes headers, bytes payload) -> int:
        """Return the bytes that a message will count."""
        extra = self.stream.store.catalogue.header_overhead if headers else 0
        return self.stream.store.catalogue.overhead + extra + len(subject) + len(headers) + len(payload)

    def add_up_after(self, bytes headers, last, bytes subject) -> tuple:
        """Return headers, payload and value of a counter message, after `last` or the last stored one."""
        if last is None:
            return self.count(self.stream.store.catalogue.last_seq_of(subject, len(subject)), headers)
        return counted(headers, last[0], last[1], self.server.max_payload)

    # -- counters ----------------------------------------------------------------------------------------------
    cdef void add_up(self, Msg* m, PubHeaders* h) except *:
        """Store the sum of an increment and the last value of its subject."""
        cdef uint64_t last_seq
        if h.msg_id.n and not h.conditional and self.stream.answered_as_duplicate(m, h):
            return
        last_seq = self.stream.store.catalogue.last_seq_of(m.subject, m.subject_len)
        headers, payload, value = self.count(last_seq, m.body[:m.header_len])
        self.store(m, headers, payload, b',"val":"%b"' % value)

    def count(self, uint64_t last_seq, bytes headers, copied=None) -> tuple:
        """Return headers, payload and value of a message of a counter.

        `last_seq` is the last message of its subject, 0: none; `copied` is the payload from another stream.

        Raises:
            ApiError: the message cannot be counted.
        """
        try:
            last = self.stream.store.get(last_seq) if last_seq else None
        except NotNow as error:
            raise errcodes.STREAM_STORE_FAILED.error(err=error) from None
        last_headers, last_payload = (b"", None) if last is None else (last.headers, last.payload)
        return counted(headers, last_headers, last_payload, self.server.max_payload, copied)

    # -- storing -----------------------------------------------------------------------------------------------
    cdef uint64_t store(self, Msg* m, bytes headers, bytes payload, bytes told) except? 0:
        """Store a checked message with other headers and payload; the PubAck tells `told` too. 0: it is refused."""
        cdef bytes body = headers + payload
        cdef PubHeaders h
        cdef uint64_t seq
        cdef Msg other
        compose(&other, m.subject, m.subject_len, body, <uint32_t> len(headers), <uint32_t> len(body))
        other.reply, other.reply_len = m.reply, m.reply_len
        if self.stream.size_refused(&other):
            return 0
        scan_pub_headers(other.body, other.header_len, &h)
        if h.ttl.n and self.stream.ttl_refused(&other):
            return 0
        seq = self.stream.keep_or_skip(&other, h.rollup.n != 0)
        if seq:
            self.stream.note_headers(&other, &h, seq)
            self.answer(m, seq, told)
        return seq

    cdef void answer(self, Msg* m, uint64_t seq, bytes told) except *:
        """Queue a PubAck with more members, `told`."""
        cdef bytes body
        if m.reply_len and not self.stream.limits.features & NO_ACK:
            body = b"%b%d%b}" % (self.stream.answers.head, seq, told)
            self.stream.answers.add(m, LONG_ACK, seq, body, len(body))
