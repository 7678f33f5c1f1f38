"""Publishes of fast batches into one stream: order, gaps, checks, acknowledgements.

A message that continues the batch used last, and needs only checks of its size and id, is stored by compiled code
alone (`append`). Other messages take the slow path (`take`), with the checks of an atomic batch of one message. The
replies of a batch, including errors of its messages, are sent even if the stream has `no_ack`, as on nats-server.

Compiled, because it runs for every message of a fast batch (measured by benchmarks/batches.py).
Source: ADR-50 "Fast-ingest Batch Publishing"; order of checks probed on nats-server 2.15.1
(tests/conformance/scenarios/fast).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.base.fast cimport write_digits
from pyjs.jetstream.stream.answers cimport LONG_ACK, REFUSAL
from pyjs.jetstream.stream.features.fast_batches cimport APPEND, COMMIT, END, PING, parse_fast_reply
from pyjs.jetstream.stream.limits cimport COUNTS, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT, NO_ACK
from pyjs.jetstream.stream.pub_headers cimport scan_pub_headers
from pyjs.subjects.routes cimport Target
from pyjs.wire.compose cimport compose

import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.batch_checks import BatchChecks, Staged
from pyjs.jetstream.stream.features.batches import ID_SIZE_MAX, LEVEL
from pyjs.jetstream.stream.features.headers import value_of, without
from pyjs.jetstream.stream.publish_errors import failure_body

cdef extern from "string.h" nogil:
    void* memmem(const void* text, size_t n, const void* part, size_t part_n)

cdef enum:
    CHECKED = COUNTS | DISCARD_NEW | DISCARD_NEW_PER_SUBJECT      # options with which every message needs checks


cdef class FastPublishes(Sink):
    """The handler of the messages of one stream's fast batches."""

    def __init__(self, Stream stream not None, state, FastBatches batches not None) -> None:
        self.stream = stream
        self.state = state
        self.batches = batches

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        """Handle one message whose reply subject ends with `.$FI`; `t` is not used."""
        cdef FastReply r
        cdef PubHeaders h
        cdef bint is_valid
        scan_pub_headers(m.body, m.header_len, &h)
        if h.has_status:
            with gil:
                self.stream.ingest_without_status(m)
            return 1
        if self.stream.usage_refused(m) or self.stream.is_too_large(m):
            return 1
        is_valid = parse_fast_reply(m.reply, m.reply_len, &r)
        if is_valid and self.goes_on(m, &r, &h):
            self.append(m, &h)
            return 1
        with gil:
            try:
                self.take(m, &r, is_valid)
            except ApiError as error:
                self.stream.refuse_with(m, error)
            except BaseException as error:      # the stream's state may be half changed
                self.stream.turn.faulted.append((self.stream, error))
        return 1

    # -- the fast path -----------------------------------------------------------------------------------------
    cdef bint goes_on(self, Msg* m, FastReply* r, PubHeaders* h) noexcept nogil:
        """Return whether a message continues the batch used last and needs no further checks."""
        return (r.operation == APPEND and r.seq == self.batches.last.last_seq + 1 and self.batches.last.has_id(r)
                and not (h.conditional or h.later or self.stream.limits.features & CHECKED)
                and not self.stream.size_refused(m)
                and (m.header_len == 0 or memmem(m.body, m.header_len, b"Nats-Required-Api-Level", 23) == NULL))

    cdef void append(self, Msg* m, PubHeaders* h) noexcept nogil:
        """Store a message that continues its batch, unless its id is in the duplicate window."""
        cdef uint64_t seq
        self.batches.keep_alive(self.batches.last, self.stream.turn.now)
        self.batches.last.last_seq += 1
        if h.msg_id.n == 0 or self.stream.dedupe.seq_of(h.msg_id.p, h.msg_id.n, self.stream.now()) == 0:
            seq = self.stream.keep_or_skip(m, False)
            if seq == 0:                        # the message was refused and answered
                with gil:
                    self.batches.close(self.batches.last)
                return
            self.note_stored(m, h, seq)
            self.batches.last.stream_seq = seq
        self.batches.last.done_seq = self.batches.last.last_seq
        if self.batches.last.owes_ack(self.batches.n_open):
            self.send_flow(m, self.batches.last)

    cdef void note_stored(self, Msg* m, PubHeaders* h, uint64_t seq) noexcept nogil:
        if m.header_len:
            self.stream.note_headers(m, h, seq)
        else:
            self.stream.dedupe.last_id_len = 0

    # -- replies -----------------------------------------------------------------------------------------------
    cdef void send_flow(self, Msg* m, FastBatch batch) noexcept nogil:
        """Queue the acknowledgement for the batch up to `acked_seq`."""
        self.say_flow(m, LONG_ACK, batch.stream_seq, batch.acked_seq, batch.flow)

    cdef void say_flow(self, Msg* m, int kind, uint64_t stream_seq, uint64_t seq, uint64_t flow) noexcept nogil:
        cdef char body[80]
        cdef size_t n = 20
        memcpy(body, b"{\"type\":\"ack\",\"seq\":", 20)
        n += write_digits(body + n, seq)
        memcpy(body + n, b",\"msgs\":", 8)
        n += 8
        n += write_digits(body + n, flow)
        body[n] = c'}'
        self.stream.answers.add(m, kind, stream_seq, body, n + 1)

    cdef void say(self, Msg* m, bytes body) noexcept:
        self.stream.answers.add(m, REFUSAL, 0, body, len(body))

    # -- the slow path -----------------------------------------------------------------------------------------
    cdef void take(self, Msg* m, FastReply* r, bint is_valid) except *:
        """Check, store and answer one message.

        Raises:
            ApiError: the message must be refused with an ordinary error, outside the replies of a batch.
        """
        cdef FastBatch batch
        cdef bytes headers = m.body[:m.header_len]
        errcodes.BATCH_PUBLISH_DISABLED.raise_if(not self.stream.config.allow_batched)
        errcodes.BATCH_PUBLISH_INVALID_PATTERN.raise_if(not is_valid)
        errcodes.BATCH_PUBLISH_INVALID_BATCH_ID.raise_if(r.id_len > ID_SIZE_MAX)
        batch = self.batches.find(r)
        if batch is None:
            errcodes.BATCH_PUBLISH_UNKNOWN_BATCH_ID.raise_if(r.seq != 1 or r.operation == PING)
            batch = self.batches.begin(r, self.stream.turn.now)
        if value_of(headers, LEVEL):
            if needs_higher_level(headers):
                self.batches.close(batch)
                raise errcodes.REQUIRED_API_LEVEL.error()
            headers = without(headers, LEVEL)
        self.batches.keep_alive(batch, self.stream.turn.now)
        if r.operation == PING:
            self.ping(m, r, batch)
        elif not self.follows(m, r, batch):
            self.end(m, batch)
        elif r.operation == END:
            batch.last_seq -= 1
            self.end(m, batch)
        else:
            if r.seq == 1 and r.operation != COMMIT and not self.stream.limits.features & NO_ACK:
                self.say_flow(m, REFUSAL, 0, 0, batch.flow)
            self.check(m, r, batch, headers)

    cdef bint follows(self, Msg* m, FastReply* r, FastBatch batch) except -1:
        """Return whether the batch accepts the sequence of the message; report a gap if it is not the next one."""
        cdef uint64_t expected = batch.last_seq + 1
        if r.seq != expected:
            self.say(m, b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, r.seq))
            if r.seq < expected or not batch.gap_ok:
                return False
        batch.last_seq = r.seq
        return True

    cdef void ping(self, Msg* m, FastReply* r, FastBatch batch) except *:
        """Repeat the last acknowledgement of the batch; if messages before the ping are missing, report a gap first.

        A gap ends a batch that allows no gaps.
        """
        if r.seq > batch.last_seq:
            self.say(m, b'{"type":"gap","last_seq":%d,"seq":%d}' % (batch.last_seq + 1, r.seq + 1))
            if not batch.gap_ok:
                self.end(m, batch)
                return
            batch.last_seq = batch.done_seq = r.seq
            batch.owes_ack(self.batches.n_open)
        self.send_flow(m, batch)

    cdef void check(self, Msg* m, FastReply* r, FastBatch batch, bytes headers) except *:
        """Store the message if its headers and the limits of the stream allow that; otherwise report the error.

        Raises:
            ApiError: the expected last message id is wrong.
        """
        cdef bytes subject = m.subject[:m.subject_len], msg_id
        cdef uint64_t known = 0
        if self.stream.limits.features & (DISCARD_NEW | DISCARD_NEW_PER_SUBJECT):
            self.stream.makes_room()
        wanted = value_of(headers, b"Nats-Expected-Last-Msg-Id")
        try:
            message = BatchChecks(self.state).accepted(Staged(subject, headers, m.body[m.header_len:m.size]))
        except ApiError as error:
            if error.err_code == errcodes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.err_code:
                msg_id = value_of(headers, b"Nats-Msg-Id")
                known = self.stream.dedupe.seq_of(msg_id, len(msg_id), self.stream.now())
            self.refuse(m, r, batch, error, known)
            return
        if wanted and wanted != self.stream.dedupe.last_msg_id:
            last_id = self.stream.dedupe.last_msg_id.decode("utf-8", "replace")
            raise errcodes.STREAM_WRONG_LAST_MSG_ID.error(id=last_id)
        self.store(m, r, batch, message.headers, message.payload)

    cdef void store(self, Msg* m, FastReply* r, FastBatch batch, bytes headers, bytes payload) except *:
        """Store a checked message, and answer if a reply is due; close the batch if the store refuses the message."""
        cdef bytes body = headers + payload
        cdef PubHeaders h
        cdef uint64_t seq
        cdef Msg other
        compose(&other, m.subject, m.subject_len, body, <uint32_t> len(headers), <uint32_t> len(body))
        other.reply, other.reply_len = m.reply, m.reply_len
        scan_pub_headers(other.body, other.header_len, &h)
        seq = 0 if self.stream.size_refused(&other) else self.stream.keep_or_skip(&other, h.rollup.n != 0)
        if seq == 0:                            # the message was refused and answered
            self.batches.close(batch)
            return
        self.note_stored(&other, &h, seq)
        batch.stream_seq = seq
        batch.done_seq = batch.last_seq
        if r.operation == COMMIT:
            self.end(m, batch)
        elif batch.owes_ack(self.batches.n_open):
            self.send_flow(m, batch)

    cdef void refuse(self, Msg* m, FastReply* r, FastBatch batch, error, uint64_t known) except *:
        """Report the error of a message, and end the batch unless it may continue.

        If the message is a duplicate, `known` is the sequence of the stored message, otherwise 0.
        """
        if known:
            batch.done_seq = r.seq
            if batch.owes_ack(self.batches.n_open):
                self.send_flow(m, batch)
            if r.operation != COMMIT:
                return
        if not batch.gap_ok and batch.last_seq == 1:
            self.batches.close(batch)
            shown = orjson.dumps(batch.id.decode("utf-8", "replace"))
            self.say(m, failure_body(self.stream.name, error) if not known else (
                b'%b%d,"duplicate": true,"batch":%b,"count":%d}' % (self.stream.answers.head, known, shown, r.seq)))
            return
        if not known:
            self.say(m, orjson.dumps({"type": "err", "seq": r.seq, "error": error.as_json()}))
            if batch.gap_ok and r.operation != COMMIT:
                return
            batch.last_seq -= 1
        self.end(m, batch)

    cdef void end(self, Msg* m, FastBatch batch) except *:
        """End the batch with a PubAck for its last stored message."""
        shown = orjson.dumps(batch.id.decode("utf-8", "replace"))
        body = b'%b%d,"batch":%b,"count":%d}' % (self.stream.answers.head, batch.stream_seq, shown, batch.last_seq)
        self.stream.answers.add(m, LONG_ACK, batch.stream_seq, body, len(body))
        self.batches.close(batch)
