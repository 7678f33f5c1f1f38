"""Publishes that need more than a check and an append: those of batches, counters and schedules.

A stream's ingest passes a message to this part if its reply subject, a header or an option of the stream requires it.
Messages of batches and counters arrive before any check of the ingest. So the conditions in the headers of a
counter's message are checked here, unless a small increment is the only header with an effect. A schedule gets a
roll-up header, and returns to the ingest; scheduling.pyx publishes its message when the schedule is due.

Compiled because it uses compiled functions of the ingest (benchmarks/: JetStream async publish); plain Python modules
of this package make the decisions.
Source: order of checks probed on nats-server 2.15.1 (tests/conformance/scenarios/counter, publish).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from pyjs.jetstream.stream.features.batches cimport AtomicBatch, AtomicBatches, BatchHeaders, scan_batch_headers
from pyjs.base.fast cimport write_digits
from pyjs.base.grow cimport grow
from pyjs.jetstream.stream.features.batch_commits cimport BatchCommits
from pyjs.jetstream.stream.features.fast_batches cimport FastBatches
from pyjs.jetstream.stream.features.fast_publishes cimport FastPublishes
from pyjs.jetstream.stream.features.plain_schedules cimport PlainSchedule, read_plain
from pyjs.jetstream.stream.features.scheduling cimport Scheduling
from pyjs.jetstream.stream.features.increments cimport (
    PAYLOAD_SIZE_MAX, is_only_increment, small_number, small_value, write_payload,
)
from pyjs.jetstream.stream.answers cimport LONG_ACK, REFUSAL
from pyjs.jetstream.stream.limits cimport ALLOW_ROLLUP, HOLDS, NO_ACK, SCHEDULES
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.stream cimport AT_LAST, Stream
from pyjs.store.store cimport Record
from pyjs.subjects.routes cimport Target
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

from pyjs.base.errors import NotNow
from pyjs.jetstream import advisories, errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.checks import later_refusal
from pyjs.jetstream.stream.features.counting import counted
from pyjs.jetstream.stream.features.schedule import ended_by, with_rollup

cdef enum:
    ACK_SIZE_MAX = 1280         # maximum bytes: the head of a PubAck, a sequence and a small value
    REPLICATED_PAYLOAD_MAX = 67108864   # bytes: the highest max_payload
    LINE_END = 2                # bytes of "\r\n"
cdef bytes ROLLUP_LINE = b"Nats-Rollup: sub\r\n\r\n"


cdef inline bint is_special(PubHeaders* h) noexcept nogil:
    """Return whether a message of a batch has a header that needs a check or has an effect."""
    return (h.later or h.msg_id.n or h.ttl.n or h.rollup.n or h.expected_stream.n or h.expected_last_seq.n
            or h.expected_last_subject_seq.n or h.expected_last_subject.n or h.expected_last_msg_id.n
            or h.schedule.n or h.schedule_next.n)


cdef class SpecialPublishes(Sink):
    """The handler of those publishes of one stream that its ingest does not handle itself."""

    def __init__(self, Stream stream not None, server, timer) -> None:
        self.stream = stream
        self.server = server
        self.scheduling = Scheduling(stream, timer)
        self.batches = AtomicBatches(server.options.limits.batch, server.batches, server.timers, self.tell_abandoned)
        self.commits = BatchCommits(stream, self, server.batches)
        self.fast = FastPublishes(
            stream, self, FastBatches(server.options.limits.batch, server.batches, server.timers))

    def __dealloc__(self):
        free(self.scratch)

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        """Store, stage, hold or refuse one message; `t` is not used."""
        cdef PubHeaders h
        if self.stream.limits.features & HOLDS:
            return self.commits.hold(m)
        if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            return self.fast.deliver(m, t)
        scan_pub_headers(m.body, m.header_len, &h)
        if h.batch_id.n:
            self.batched(m, is_special(&h))
            return 1
        if h.schedule.n and h.rollup.n == 0 and self.stream.limits.features & SCHEDULES:
            with gil:
                self.take(m, &h)
        elif not self.added(m, &h):
            if self.stream.size_refused(m) or (h.conditional and self.stream.headers_refused(m, &h)):
                return 1
            with gil:
                self.take(m, &h)
        return 1

    cdef void take(self, Msg* m, PubHeaders* h) noexcept:
        """Handle a schedule, or a counter that needs the checks written in Python."""
        try:
            if h.schedule.n and h.rollup.n == 0 and self.stream.limits.features & SCHEDULES:
                self.scheduled(m)
            else:
                self.add_up(m, h)
        except ApiError as error:
            self.stream.refuse_with(m, error)
        except BaseException as error:      # the stream's state may be half changed
            self.stream.turn.faulted.append((self.stream, error))

    cdef bint is_refused(self, Msg* m) noexcept nogil:
        """Return whether a message of a batch is refused for its size or for lack of room; if so, answer it."""
        return self.stream.usage_refused(m) or self.stream.is_too_large(m)

    # -- batches -----------------------------------------------------------------------------------------------
    cdef void batched(self, Msg* m, bint special) noexcept nogil:
        """Stage a message of an atomic batch or commit the batch, and answer.

        `special` means that a header of the message needs a check or has an effect.
        """
        cdef BatchHeaders h
        cdef int64_t now_ns = self.stream.turn.now
        if self.is_refused(m):
            return
        scan_batch_headers(m.body, m.header_len, &h)
        if self.stream.replica is None and self.batches.goes_on(m, &h) \
                and self.batches.stage(self.batches.last, m, special, now_ns) == 0:
            self.answer_staged(m)
            return
        with gil:
            try:
                self.take_batched(m, &h, special)
            except ApiError as error:
                self.stream.refuse_with(m, error)
            except BaseException as error:      # the stream's state may be half changed
                self.stream.turn.faulted.append((self.stream, error))

    cdef void take_batched(self, Msg* m, BatchHeaders* h, bint special) except *:
        cdef AtomicBatch batch
        # The leader of a replicated stream stages its batches, see `collect`.
        errcodes.ATOMIC_PUBLISH_DISABLED.raise_if(
            not self.stream.config.allow_atomic or self.stream.replica is not None)
        batch = self.batches.take(m, h, special, self.stream.turn.now)
        if batch is None:
            self.answer_staged(m)
        else:
            self.commits.commit(m, batch)

    cdef AtomicBatch collect(self, Msg* m):
        """As the leader of a replicated stream, stage a message of an atomic batch.

        Return the batch if the message is its last one, otherwise None.

        Raises:
            ApiError: the message is refused.
        """
        cdef PubHeaders h
        cdef BatchHeaders b
        cdef AtomicBatch batch
        errcodes.ATOMIC_PUBLISH_DISABLED.raise_if(not self.stream.config.allow_atomic)
        if self.stream.is_too_large(m):
            return None
        scan_pub_headers(m.body, m.header_len, &h)
        scan_batch_headers(m.body, m.header_len, &b)
        batch = self.batches.take(m, &b, is_special(&h), self.stream.turn.now)
        if batch is None:
            self.answer_staged(m)
        return batch

    cdef int restage(self, AtomicBatch batch, Msg* m) except -1:
        """Add a message of a replicated entry to a batch. Raises MemoryError."""
        cdef PubHeaders h
        scan_pub_headers(m.body, m.header_len, &h)
        if batch.stage(m, is_special(&h)) != 0:
            raise MemoryError
        return 0

    cdef void commit_staged(self, Msg* m, AtomicBatch batch) noexcept:
        """Commit the batch of a replicated entry; `m` has the reply subject for its PubAck."""
        try:
            self.commits.commit_whole(m, batch)
        except ApiError as error:
            self.stream.refuse_with(m, error)
        except BaseException as error:      # the stream's state may be half changed
            self.stream.turn.faulted.append((self.stream, error))

    cdef void answer_staged(self, Msg* m) noexcept nogil:
        """Queue the reply to a staged message. This reply is empty."""
        if m.reply_len and not self.stream.limits.features & NO_ACK:
            self.stream.answers.add(m, REFUSAL, 0, NULL, 0)

    def finish(self) -> None:
        """Commit the rest of the current atomic batch at once, then store the publishes held since it began."""
        self.commits.finish()

    def drop_disabled(self) -> None:
        """Close open batches of the kinds that the stream's configuration no longer allows."""
        if not self.stream.config.allow_atomic:
            self.batches.drop_all()
        if not self.stream.config.allow_batched:
            self.fast.batches.close_all()

    def lost(self, uint64_t kept_seq) -> None:
        """Close the fast batches that allow no gaps and have a message after `kept_seq`; these messages are lost."""
        self.fast.batches.close_lost(kept_seq)

    def drop(self, error) -> None:
        """Refuse the current batch and the held publishes with `error`, which ended the stream's writes."""
        self.commits.drop(error)

    def close(self) -> None:
        """Finish the current commit, close open batches, and end the schedules.

        Their references to the stream would otherwise form a cycle.
        """
        self.commits.close()
        self.batches.drop_all()
        self.fast.batches.close_all()
        self.batches.tell = self.fast.state = None
        self.scheduling.close()
        self.scheduling = None

    def tell_abandoned(self, bytes batch_id, str reason) -> None:
        """Publish the advisory that a batch was abandoned."""
        server, stream = self.server, self.stream
        advisories.publish_batch_abandoned(
            stream.account, server.rng, stream.name, batch_id.decode("utf-8", "replace"), reason,
            server.clock.wall_ns(), server.options.domain,
        )

    # -- schedules -----------------------------------------------------------------------------------------------
    cdef void scheduled(self, Msg* m) except *:
        """Ingest a schedule with a roll-up header added, so that it replaces earlier messages of its subject.

        Raises:
            ApiError: the header block is invalid.
        """
        cdef PubHeaders h
        cdef PlainSchedule plain
        cdef bytes headers
        if read_plain(m.body, m.header_len, &plain):
            headers = m.body[:m.header_len - LINE_END] + ROLLUP_LINE
        else:
            headers = with_rollup(m.body[:m.header_len])
        scan_pub_headers(headers, len(headers), &h)
        errcodes.MESSAGE_SCHEDULES_PATTERN_INVALID.raise_if(h.rollup.n == 0)    # the header block is invalid
        self.stream.ingest_with_other_headers(m, headers)

    def note_schedule(self, bytes headers, uint64_t seq) -> None:
        """Apply the schedule headers of message `seq`, which has just been stored."""
        cdef PlainSchedule plain
        if self.stream.limits.features & SCHEDULES and read_plain(headers, len(headers), &plain):
            self.scheduling.note(seq, plain.at_ns)
            if self.scheduling.due.next_due() >= plain.at_ns:   # otherwise the timer is set to an earlier time
                self.scheduling.arm()
            return
        subject = ended_by(headers)
        if subject and self.stream.limits.features & ALLOW_ROLLUP:
            self.stream.evictions.note_rollup(subject, b"sub", seq)
        if self.stream.limits.features & SCHEDULES:
            self.scheduling.add(headers, seq, self.stream.store.catalogue.last_ts, self.stream.wall())
            self.scheduling.arm()

    def clock_stepped(self) -> None:
        """Reset the timers after the wall clock has been set."""
        self.scheduling.arm_again()

    def wall_ns(self) -> int:
        """Return the wall time in ns."""
        return self.stream.wall()

    def later_refusal(self, int point, bytes headers, size_t payload_size, bytes subject):
        """Return the ApiError with which the checks of rare headers at `point` refuse a message, or None.

        If a replica cannot make a check now, the stream is opened again, and the message does not count.
        """
        try:
            return later_refusal(point, self.stream.config, headers, payload_size, subject, self)
        except ApiError as error:           # a message that the check needs cannot be read now
            return error
        except NotNow as error:
            self.stream.turn.faulted.append((self.stream, error))
            return None

    def last_headers(self, bytes subject) -> bytes | None:
        """Return the header block of the last message of a subject, or None if there is none.

        Raises:
            ApiError: the message cannot be read now, and the stream is not replicated.
            NotNow: the message cannot be read now, and the stream is replicated.
        """
        cdef uint64_t seq = self.stream.store.catalogue.last_seq_of(subject, len(subject))
        try:
            last = self.stream.store.get(seq) if seq else None
        except NotNow as error:
            if self.stream.replica is not None:
                raise  # other replicas may be able to read it, so this one must stop instead of refusing
            raise errcodes.STREAM_STORE_FAILED.error(err=error) from None
        return None if last is None else last.headers

    # -- the state that the checks of a batch read ----------------------------------------------------------------
    @property
    def config(self):
        """The configuration of the stream."""
        return self.stream.config

    def is_known_id(self, bytes msg_id) -> bool:
        """Return whether the duplicate window has the id."""
        return self.stream.dedupe.seq_of(msg_id, len(msg_id), self.stream.now()) != 0

    def last_seq_of(self, bytes subject) -> int:
        """Return the last sequence of a subject, which may have wildcards, or 0 if there is none.

        Messages that limits or queued roll-ups will remove do not count.
        """
        return self.stream.evictions.after_rollups(self.last_value(subject, len(subject)))

    def totals(self) -> tuple:
        """Return the last sequence, the number of messages and the number of bytes of the stream."""
        return self.stream.store.last_seq, self.stream.store.msgs, self.stream.store.bytes

    def count_of(self, bytes subject) -> int:
        """Return the number of messages of a subject."""
        return self.stream.store.catalogue.count_of(subject, len(subject))

    def stored_size(self, bytes subject, bytes headers, bytes payload) -> int:
        """Return the bytes that a message counts towards limits when it is stored."""
        extra = self.stream.store.catalogue.header_overhead if headers else 0
        return self.stream.store.catalogue.overhead + extra + len(subject) + len(headers) + len(payload)

    def add_up_after(self, bytes headers, last, bytes subject) -> tuple:
        """Add the increment in `headers` to the counter of the subject; return headers, payload and new value.

        `last` is the headers and the payload of the counter's preceding message; None: use the last stored one.
        """
        if last is None:
            return self.count(self.last_value(subject, len(subject)), headers)
        return counted(headers, last[0], last[1], self.payload_max())

    # -- counters ----------------------------------------------------------------------------------------------
    def payload_max(self) -> int:
        """Return the maximum payload of a counter's message in bytes, which must be equal on all replicas."""
        return self.server.max_payload if self.stream.replica is None else REPLICATED_PAYLOAD_MAX

    cdef uint64_t last_value(self, const char* subject, size_t n) noexcept nogil:
        """Return the sequence of the last message of a subject, or 0 if there is none.

        Messages that limits will remove do not count.
        """
        cdef uint64_t seq = self.stream.store.last_of(subject, n, &self.stream.turn.extra_work)
        return self.last_value(subject, n) if self.stream.trims(seq) else seq

    cdef bint added(self, Msg* m, PubHeaders* h) noexcept nogil:
        """Store the sum of a small increment and a small value, and answer; return False if `add_up` must do this."""
        cdef uint64_t last_seq
        cdef int64_t change = 0, total = 0
        cdef size_t size
        cdef Record r
        if m.size != m.header_len or not is_only_increment(h) or not small_number(h.increment, &change):
            return False
        last_seq = self.last_value(m.subject, m.subject_len)
        if last_seq and (self.stream.store.load(last_seq, &r) != 0 or not small_value(&r, &total)):
            return False
        if grow(<void**> &self.scratch, &self.scratch_room, m.size + PAYLOAD_SIZE_MAX, 1) != 0:
            return False
        memcpy(self.scratch, m.body, m.size)
        size = m.size + write_payload(self.scratch + m.size, total + change)
        with gil:
            if size > self.payload_max():
                return False
        self.store_sum(m, h, size)
        return True

    cdef void store_sum(self, Msg* m, PubHeaders* h, size_t size) noexcept nogil:
        """Store the message that was composed in `scratch` (`size` bytes), and answer with the counter's value."""
        cdef char body[ACK_SIZE_MAX]
        cdef size_t n, value_size = size - m.size
        cdef uint64_t seq
        cdef Msg sum
        compose(&sum, m.subject, m.subject_len, self.scratch, m.size, size)
        sum.reply, sum.reply_len = m.reply, m.reply_len
        if self.stream.size_refused(&sum):
            return
        seq = self.stream.keep_or_skip(&sum, False)
        if seq == 0:
            return
        self.stream.note_headers(&sum, h, seq)
        if m.reply_len and not self.stream.limits.features & NO_ACK:
            n = self.stream.answers.head_len
            memcpy(body, self.stream.answers.head_text, n)
            n += write_digits(body + n, seq)
            body[n] = c','
            memcpy(body + n + 1, self.scratch + m.size + 1, value_size - 1)  # the value with its name: `"val":"..."}`
            self.stream.answers.add(m, LONG_ACK, seq, body, n + value_size)

    cdef void add_up(self, Msg* m, PubHeaders* h) except *:
        """Store the sum of an increment and the last value of its subject. Raises ApiError."""
        cdef uint64_t last_seq
        if h.msg_id.n and not h.conditional and self.stream.answered_as_duplicate(m, h):
            return
        last_seq = self.last_value(m.subject, m.subject_len)
        headers, payload, value = self.count(last_seq, m.body[:m.header_len])
        self.store(m, headers, payload, b',"val":"%b"' % value)

    def count(self, uint64_t last_seq, bytes headers, copied=None) -> tuple:
        """Return headers, payload and value for the message of a counter.

        `last_seq` is the sequence of the last message of the subject, or 0 if there is none. If the message is a copy
        from another stream, `copied` is its payload, otherwise None.

        Raises:
            ApiError: the message cannot be counted.
            NotNow: a replica cannot read the last message now.
        """
        try:
            last = self.stream.store.get(last_seq) if last_seq else None
        except NotNow as error:
            if self.stream.replica is not None:
                raise  # other replicas may be able to read it, so this one must stop instead of refusing
            raise errcodes.STREAM_STORE_FAILED.error(err=error) from None
        last_headers, last_payload = (b"", None) if last is None else (last.headers, last.payload)
        return counted(headers, last_headers, last_payload, self.payload_max(), copied)

    # -- storing -----------------------------------------------------------------------------------------------
    cdef uint64_t store(self, Msg* m, bytes headers, bytes payload, bytes told) except? 0:
        """Store a checked message with new headers and payload; return its sequence, or 0 if it was refused.

        `told` is the JSON text of additional members for the PubAck, each with a comma before it.
        """
        cdef bytes body = headers + payload
        cdef PubHeaders h
        cdef uint64_t seq
        cdef Msg other
        compose(&other, m.subject, m.subject_len, body, <uint32_t> len(headers), <uint32_t> len(body))
        other.reply, other.reply_len = m.reply, m.reply_len
        if self.stream.size_refused(&other):
            return 0
        scan_pub_headers(other.body, other.header_len, &h)
        if h.ttl.n and self.stream.later_refused(&other, AT_LAST):
            return 0
        seq = self.stream.keep_or_skip(&other, h.rollup.n != 0)
        if seq:
            self.stream.note_headers(&other, &h, seq)
            self.answer(m, seq, told)
        return seq

    cdef void answer(self, Msg* m, uint64_t seq, bytes told) except *:
        """Queue a PubAck; `told` is the JSON text of additional members, each with a comma before it."""
        cdef bytes body
        if m.reply_len and not self.stream.limits.features & NO_ACK:
            body = b"%b%d%b}" % (self.stream.answers.head, seq, told)
            self.stream.answers.add(m, LONG_ACK, seq, body, len(body))
