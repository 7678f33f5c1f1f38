"""The deliveries that a mirror or source gets from a consumer of its origin and copies.

The consumer pushes to its deliver subject and has the ack policy flow_control. Each answer to one of its flow control
requests acknowledges all deliveries so far, so an answer is sent only when the target has committed them and
`sync_interval` is satisfied. Deliveries are accepted in the order of their consumer_seq. After a gap, or after a
message that the target refuses, deliveries are ignored until the consumer is reset to its ack floor, or replaced.
Messages that the target already has are skipped.

Requests and subscriptions are handled by consumer_link.py and origin_link.py. Compiled because it handles every
copied message (benchmarks/: JetStream mirror).
Source: nats-server's source, server/stream.go; probed on nats-server 2.15.1
(tests/conformance/scenarios/mirror, source: consumer_...).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memset

from pyjs.core.sink cimport Sink
from pyjs.jetstream.mirror.copier cimport Copier
from pyjs.jetstream.stream.copies cimport REFUSED, STORED
from pyjs.jetstream.stream.limits cimport HOLDS
from pyjs.store.store cimport Record
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from functools import partial

from pyjs.jetstream.mirror.consumer_link import read_heartbeat

cdef enum:
    TOKENS_V1 = 9               # $JS.ACK.<stream>.<consumer>.<five numbers>
    TOKENS_V2 = 11              # $JS.ACK.<domain>.<account>.<stream>.<consumer>.<five numbers>[.<anything>]
    NEARLY_COPIED = 10          # messages; a mirror that lacks fewer than this answers direct gets of its origin

cdef struct Delivery:
    uint64_t count              # number of deliveries of the message, including this one
    uint64_t seq                # stream_seq
    uint64_t cseq               # consumer_seq
    uint64_t ts                 # ns since the epoch
    uint64_t pending            # number of messages that the consumer has not delivered yet


cdef class ConsumerFeed(Sink):
    """The receiver of the deliveries of one consumer of the origin; it passes the messages to one copier."""

    cdef Copier copier
    cdef readonly object link               # consumer_link.ConsumerLink or origin_link.OriginLink
    cdef bytes consumer                     # the name of the consumer
    cdef const char* consumer_text          # points into `consumer`
    cdef size_t consumer_len
    cdef bint listens                       # whether deliveries are accepted
    cdef uint64_t cseq                      # consumer_seq of the last delivery in order
    cdef uint64_t seen                      # stream_seq of the last delivery in order
    cdef uint64_t unread                    # number of messages that the consumer had not delivered at that time
    cdef bytes asked                        # reply subject of the flow control request to answer; b"": none

    def __init__(self, Copier copier not None, object link, bytes consumer not None):
        self.copier = copier
        self.link = link
        self.consumer = self.consumer_text = consumer
        self.consumer_len = len(consumer)
        self.asked = b""
        copier.feed = self

    @property
    def target(self):
        """The stream that stores the copies."""
        return self.copier.target

    def open(self, uint64_t position, bytes ident) -> None:
        """Accept deliveries of messages after the sequence `position` of the origin, whose identity is `ident`.

        The consumer_seq of the first delivery must be 1.
        """
        cdef Copier copier = self.copier
        copier.start_at(position)
        if copier.target.sync_always:           # copies up to `position` may still wait for their sync
            copier.kept = 0
            copier.target.when_durable(partial(copier.durable, copier.generation, position))
        copier.ident = copier.ident_text = ident
        copier.ident_len = len(ident)
        copier.error = None
        copier.blocked = False
        copier.active_ns = copier.target.turn.now
        self.cseq = self.unread = 0
        self.seen = position
        self.asked = b""
        self.listens = True

    def expect(self, bytes consumer not None) -> None:
        """Accept deliveries of another consumer from the next `open` on."""
        self.consumer = self.consumer_text = consumer
        self.consumer_len = len(consumer)

    def pause(self) -> None:
        """Ignore deliveries until the next `open`."""
        self.listens = False
        self.asked = b""

    def close(self) -> None:
        """Ignore all further deliveries, and close the link."""
        self.pause()
        self.link.close()

    # -- deliveries ----------------------------------------------------------------------------------------

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef Delivery d
        if t.sub.closed or self.copier.target.closed or not self.listens:
            return 0
        self.copier.active_ns = self.copier.target.turn.now
        if m.header_len == m.size and m.size > 13 and memcmp(m.body, b"NATS/1.0 100 ", 13) == 0:
            with gil:
                self.take_status(m.body[:m.header_len], m.reply[:m.reply_len])
        elif not self.copier.blocked and read_delivery(m, self.consumer_text, self.consumer_len, &d) == 0 \
                and d.count == 1:
            self.take_delivery(m, &d)
        return 1

    cdef void take_delivery(self, Msg* m, Delivery* d) noexcept nogil:
        cdef bint follows = d.cseq == self.cseq + 1
        if d.seq > self.copier.copied:
            if not follows and not (self.copier.mirrors and d.seq == self.copier.copied + 1):
                if self.copier.mirrors or d.cseq > self.cseq:
                    self.miss()
                return
            if self.copier.target.limits.features & HOLDS and self.copier.target.replica is None:
                with gil:
                    self.copier.target.finish_batch()
            if self.copy_delivery(m, d) == REFUSED:
                self.unread = d.pending
                self.miss()
                return
            self.note_copied(d.seq)
        elif not follows:
            return
        self.cseq = d.cseq
        self.seen = max(self.seen, d.seq)
        self.unread = d.pending

    cdef int copy_delivery(self, Msg* m, Delivery* d) noexcept nogil:
        cdef Record r
        cdef int result
        memset(&r, 0, sizeof(r))
        r.subject, r.subject_len = m.subject, m.subject_len
        r.body, r.header_len, r.size = m.body, m.header_len, m.size
        r.seq, r.ts = d.seq, <int64_t> d.ts
        result = self.copier.copy(&r)
        if result == STORED:
            self.copier.stored = d.seq
        return result

    cdef void note_copied(self, uint64_t seq) noexcept nogil:
        cdef bint noted = self.copier.noted != 0
        self.copier.copied = seq
        if not noted:
            self.copier.noted = seq
        self.copier.target.mark_dirty()
        if not noted:
            with gil:
                self.copier.owner.has_copied(self.copier)
                self.copier.wake(0)

    cdef void miss(self) noexcept nogil:
        """Ignore deliveries until the consumer is reset or replaced."""
        self.copier.blocked = True
        with gil:
            self.copier.wake(0)

    cdef void take_status(self, bytes headers, bytes reply) noexcept:
        """Handle a heartbeat or a flow control request."""
        if not reply:
            cseq, reply = read_heartbeat(headers)
            if cseq and cseq != self.cseq:
                self.miss()
                return
        if reply:
            self.asked = reply
            self.copier.wake(0)

    # -- the turn ------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Answer a flow control request when all copies of the deliveries are safe; after a gap, renew the link."""
        if self.copier.blocked or not self.listens:
            self.link.renew()
            return
        if self.unread < NEARLY_COPIED:
            self.copier.owner.is_current(self.copier)
        if self.asked and self.copier.kept >= self.seen:
            self.link.answer(self.asked, self.cseq, self.seen)
            self.asked = b""

    def lag(self) -> int:
        """Return the lag behind the origin in messages, counted as by nats-server."""
        return max(0, <int64_t> self.unread - 1)


cdef int read_delivery(Msg* m, const char* consumer, size_t n, Delivery* out) noexcept nogil:
    """Read the ack subject of a delivery into `out`; return 0, or -1 if it is not an ack subject of `consumer`."""
    cdef size_t[TOKENS_V2 + 1] starts
    cdef uint64_t[5] numbers
    cdef size_t i, first, count = 1
    starts[0] = 0
    for i in range(m.reply_len):
        if m.reply[i] == c'.':
            if count <= TOKENS_V2:
                starts[count] = i + 1
            count += 1
    if count == TOKENS_V1:
        first = 3
        starts[count] = m.reply_len + 1
    elif count >= TOKENS_V2:
        first = 5
        if count == TOKENS_V2:
            starts[count] = m.reply_len + 1
    else:
        return -1
    if memcmp(m.reply, b"$JS.ACK.", 8) != 0 or starts[first + 1] - starts[first] - 1 != n \
            or memcmp(m.reply + starts[first], consumer, n) != 0:
        return -1
    for i in range(5):
        if read_decimal(m.reply + starts[first + 1 + i], starts[first + 2 + i] - starts[first + 1 + i] - 1,
                        &numbers[i]) != 0:
            return -1
    out.count, out.seq, out.cseq, out.ts, out.pending = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    return 0


cdef int read_decimal(const char* p, size_t n, uint64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef size_t i
    if n == 0 or n > 19:
        return -1
    for i in range(n):
        if <unsigned char> (p[i] - c'0') > 9:
            return -1
        value = value * 10 + <uint64_t> (p[i] - c'0')
    out[0] = value
    return 0
