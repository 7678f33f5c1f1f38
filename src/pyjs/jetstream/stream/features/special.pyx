"""Publishes that need more than a check and an append: those of batches and counters.

A stream's ingest passes a message here when its reply subject, a header or an option of the stream asks for it; all
others never see this part. Batches come before any check of the ingest, counters after the conditions.

Compiled, since it stores and answers with the functions of the ingest (benchmarks/: JetStream async publish); the
decisions are in plain Python beside it.
Source: order of checks probed on nats-server 2.15.1 (tests/conformance/scenarios/counter, publish).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.jetstream.stream.answers cimport LONG_ACK
from pyjs.jetstream.stream.limits cimport NO_ACK
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.subjects.routes cimport Target
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

from pyjs.base.errors import NotNow
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.counting import counted


cdef class SpecialPublishes(Sink):
    """The publishes of one stream that its ingest does not handle itself."""

    def __init__(self, Stream stream not None, server) -> None:
        self.stream = stream
        self.server = server

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        """Take, stage or refuse one message; `t` is not used."""
        cdef PubHeaders h
        scan_pub_headers(m.body, m.header_len, &h)
        with gil:
            try:
                if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
                    self.fast_batched(m)
                elif h.batch_id.n:
                    self.batched(m)
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
    cdef void fast_batched(self, Msg* m) except *:
        if not self.is_refused(m):
            raise errcodes.BATCH_PUBLISH_DISABLED.error()

    cdef void batched(self, Msg* m) except *:
        if not self.is_refused(m):
            raise errcodes.ATOMIC_PUBLISH_DISABLED.error()

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
