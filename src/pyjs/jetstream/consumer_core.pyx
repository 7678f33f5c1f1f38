"""The message path of a consumer: what is delivered next and to whom, and what an ack settles.

`deliver` is an incoming ack: it settles the delivery at once, in memory. `deliver_some` sends: first what is due
again, in sequence order, then the next matches of the filter, to the waiting requests in turns or to the deliver
subject, as long as somebody asks and max_ack_pending has room. Both only record what else has to happen; the
turn, deadlines, requests and recovery are in consumer.pyx, which derives from this class.

Knows the store, not the stream; nothing of sockets, and of requests only their reply subjects. Compiled: per
message no object is made and no Python called (benchmarks/: pull 500, push).
Long because choosing, sending and settling a message change one state.

Source: nats.docs "Consumers", ADR-13, ADR-15; behaviour compared in tests/conformance.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH, write_digits
from pyjs.jetstream.ack_token cimport (
    VERB_ACK,
    VERB_NAK,
    VERB_NEXT,
    VERB_OTHER,
    VERB_PROGRESS,
    AckToken,
    Verb,
    parse_token,
    parse_verb,
    write_token,
)
from pyjs.jetstream.consumer_log cimport (
    ACKED_ALL,
    DELAYED,
    NAKED,
    PROGRESS,
    REDELIVERED,
)
from pyjs.jetstream.pending cimport IN_REDELIVER, Entry
from pyjs.jetstream.skips cimport Skips
from pyjs.jetstream.stream_consumer cimport StreamConsumer
from pyjs.jetstream.waiting cimport Waiting
from pyjs.store.store cimport Record
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from pyjs.jetstream.consumer_orders import read_delay_ns

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    PUMP_SIZE = 262144              # bytes of one pump, a message counting 64 more
    EARLY_NS = 1000000              # a replayed message may come this much before its time
    PIN_SIZE = 22                   # of a nuid
    HOLD_MIN_NS = 1000000           # and one that waits for its rate waits for others as well
    LATE_NS = 50000000              # later than this, the next distance counts from when it came
    CROWDED_NS = 10000000           # for which redeliveries wait when their receiver has much queued already
    RETRY_NS = 100000000            # after which a message is read again that could not be for want of descriptors


cdef class ConsumerCore(StreamConsumer):
    """Deliveries and acks of one consumer."""

    def __cinit__(self, *arguments):
        self.orders = []
        self.advisories = []
        self.spent = {}
        self.skips = Skips(b"")

    def __dealloc__(self):
        free(self.line)
        free(self.header_buf)
        free(self.pin_buf)
        free(self.settling)
        free(self.replies)

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = True
            with gil:
                self.turn.consumers.append(self)

    # What consumer.pyx does when the message path meets something rare.

    cdef void end_head(self, bytes text) noexcept:
        """End the first waiting request with a status."""

    cdef void ask_flow(self) noexcept:
        """Ask the subscriber to confirm what it got."""

    cdef void assign_pin(self, Waiting* w) noexcept:
        """Make a request's client the one that is served."""

    cdef void spend(self, uint32_t i) noexcept:
        """Give up a pending delivery that was sent as often as allowed."""

    cdef void lose(self, uint32_t i, str reason) noexcept:
        """Give up a pending delivery whose message is gone."""

    # -- acks ------------------------------------------------------------------------------------------------------

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if t.sub.closed or self.closed:
            return 0
        return self.take_ack(m)

    cdef int take_ack(self, Msg* m) noexcept nogil:
        cdef AckToken token
        cdef const char* payload = m.body + m.header_len
        cdef size_t n = m.size - m.header_len
        cdef Verb verb = parse_verb(payload, n)
        cdef uint32_t prefix = self.prefix_len
        cdef bint answer = True
        if m.subject_len <= prefix or memcmp(m.subject, self.line, prefix) != 0:
            prefix = self.prefix2_len
        if m.subject_len <= prefix or parse_token(m.subject + prefix, m.subject_len - prefix, &token) < 0:
            return 0
        self.active_at = self.turn.now
        if verb == VERB_ACK:
            answer = self.ack(&token)
        elif verb == VERB_PROGRESS:
            self.in_progress(token.seq)
        elif verb != VERB_OTHER:
            with gil:
                answer = self.rare_ack(m, verb, &token, payload[4:n])
        if answer and m.reply_len and token.seq:
            self.queue_reply(m.reply, m.reply_len)
        self.mark_dirty()
        return 1

    cdef bint ack(self, AckToken* token) noexcept nogil:
        """Settle a delivery; returns whether the ack may be answered."""
        if token.seq >= self.next_seq and not self.flow_window:
            return False
        self.acked_at = self.turn.now
        if self.sample_percent and self.ack_policy == ACK_EXPLICIT:
            with gil:
                self.sample(token)
        if self.ack_policy == ACK_ALL:
            self.ack_all(token.seq, token.cseq)
        else:
            self.ack_one(token.seq)
        return True

    cdef void ack_one(self, uint64_t seq) noexcept nogil:
        cdef uint32_t i = self.pending.find(seq)
        if i:
            self.settle_entry(i)
            self.changes.acked(seq)
            self.note_settled(seq)
        elif self.n_spent:
            self.forget_spent(seq)

    cdef void settle_entry(self, uint32_t i) noexcept nogil:
        """Forget a pending delivery and move the floors as far as that allows."""
        cdef Entry* e = &self.pending.entries[i]
        cdef Entry* after
        cdef uint64_t seq = e.seq, cseq = e.cseq
        cdef uint32_t newer = e.newer
        cdef bint oldest = e.older == 0     # with ack all it need not be, whatever the floor of the consumer sequence
        self.pending.remove(i)
        if self.pending.count == 0:
            self.floor_seq, self.floor_cseq = self.delivered_seq, self.delivered_cseq
        elif cseq == self.floor_cseq + 1 and oldest:
            if newer:
                after = &self.pending.entries[newer]
                self.floor_seq, self.floor_cseq = after.seq - 1, after.cseq - 1
            else:
                self.floor_seq, self.floor_cseq = seq, cseq

    cdef void ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil:
        """Settle everything up to `seq`.

        A first delivery acknowledged after the redelivery of an older message has a consumer sequence below the
        floor. nats-server confirms such an ack and passes it over; here what was confirmed is not delivered again.
        """
        cdef uint32_t i = self.pending.oldest
        if seq <= self.floor_seq and (i == 0 or self.pending.entries[i].seq > seq):
            return
        while self.settle is not None and i and self.pending.entries[i].seq <= seq:
            self.note_settled(self.pending.entries[i].seq)
            i = self.pending.entries[i].newer
        self.pending.remove_to(seq)
        self.floor_seq = seq if seq > self.floor_seq else self.floor_seq
        self.floor_cseq = cseq if cseq > self.floor_cseq else self.floor_cseq
        self.changes.put(ACKED_ALL, seq, self.floor_cseq)
        if self.n_spent:
            with gil:
                self.forget_spent_below(seq + 1, True)

    cdef void in_progress(self, uint64_t seq) noexcept nogil:
        cdef uint32_t i = self.pending.find(seq)
        if i:
            self.pending.progress(i, self.turn.now)
            self.changes.put(PROGRESS, seq, <uint64_t> self.turn.now)

    cdef bint rare_ack(self, Msg* m, Verb verb, AckToken* token, bytes argument) noexcept:
        """Take an ack with an argument; returns whether it may be answered."""
        try:
            if verb == VERB_NEXT:
                self.ack(token)
                self.orders.append((m.reply[:m.reply_len], argument))
                return False
            if verb == VERB_NAK:
                self.nak(token.seq, token.cseq, token.count, argument)
                return True
            if token.seq >= self.next_seq:
                return False
            self.acked_at = self.turn.now
            if self.ack_policy == ACK_ALL:
                self.ack_all(token.seq, token.cseq)
            else:
                self.ack_one(token.seq)
            reason = argument[1:].strip().decode("utf-8", "replace")
            self.note_terminated(token.seq, token.cseq, token.count, reason)
            return True
        except MemoryError:
            return False

    def nak(self, uint64_t seq, uint64_t cseq, uint64_t count, bytes argument) -> None:
        """Have a delivery go out again, at once or after the delay in `argument`."""
        cdef uint32_t i = self.pending.find(seq)
        cdef int64_t delay_ns
        if i == 0 or cseq <= self.floor_cseq or cseq > self.delivered_cseq + 1:
            return
        self.advisories.append(("nak", {"consumer_seq": cseq, "stream_seq": seq, "deliveries": count}))
        try:
            delay_ns = read_delay_ns(argument)
        except ValueError:
            self.log.warn(f"JetStream consumer '{self.path}' bad NAK delay value: {argument!r}")
            delay_ns = -1
        if delay_ns >= 0:
            self.pending.delay(i, self.turn.now + delay_ns)
            self.changes.put(DELAYED, seq, <uint64_t> (self.turn.now + delay_ns))
        else:
            self.pending.requeue(i)
            self.changes.put(NAKED, seq, 0)

    def note_terminated(self, uint64_t seq, uint64_t cseq, uint64_t count, str reason) -> None:
        """Have an advisory tell that a message is not delivered again."""
        fields = {"consumer_seq": cseq, "stream_seq": seq, "deliveries": count}
        if reason:
            fields["reason"] = reason
        self.advisories.append(("terminated", fields))

    cdef void sample(self, AckToken* token) noexcept:
        """Have a metric tell of an ack, for the configured share of acks."""
        cdef uint32_t i = self.pending.find(token.seq)
        if i == 0 or (self.sample_percent < 100 and self.rng.below(100) >= self.sample_percent):
            return
        took_ns = self.turn.now - self.pending.entries[i].sent_at
        fields = {"consumer_seq": token.cseq, "stream_seq": token.seq, "ack_time": took_ns, "deliveries": token.count}
        self.advisories.append(("ack", fields))

    cdef void note_settled(self, uint64_t seq) noexcept nogil:
        """Remember for the stream that this consumer needs `seq` no more."""
        cdef uint64_t* settling
        if self.settle is None:
            return
        if self.n_settling == self.settling_room:
            settling = <uint64_t*> realloc(self.settling, (self.settling_room * 2 + 64) * sizeof(uint64_t))
            if settling == NULL:
                return
            self.settling = settling
            self.settling_room = self.settling_room * 2 + 64
        self.settling[self.n_settling] = seq
        self.n_settling += 1

    cpdef void hand_over(self, size_t most):
        """Let the stream drop what is settled, up to `most` messages; the rest is for the next turns."""
        cdef size_t n = min(self.n_settling - self.n_handed, most)
        self.settled.extend([self.settling[self.n_handed + i] for i in range(n)])
        self.n_handed += n
        if self.n_handed < self.n_settling:
            self.mark_dirty()
        else:
            self.n_handed = self.n_settling = 0
            if self.settling_room > SETTLED_PER_PUMP:
                free(self.settling)
                self.settling = NULL
                self.settling_room = 0
        if self.settle is not None:
            self.settle()

    cdef void queue_reply(self, const char* reply, uint32_t n) noexcept nogil:
        """Answer an ack once it is recorded."""
        cdef char* replies
        cdef size_t need = self.replies_len + n + sizeof(uint32_t)
        if need > self.replies_room:
            replies = <char*> realloc(self.replies, need * 2)
            if replies == NULL:
                return
            self.replies = replies
            self.replies_room = need * 2
        memcpy(self.replies + self.replies_len, &n, sizeof(uint32_t))
        memcpy(self.replies + self.replies_len + sizeof(uint32_t), reply, n)
        self.replies_len = need

    cdef void forget_spent(self, uint64_t seq) noexcept nogil:
        with gil:
            if self.spent.pop(seq, None) is not None:
                self.n_spent -= 1
                self.changes.acked(seq)
                self.note_settled(seq)

    def forget_spent_below(self, uint64_t seq, bint settle) -> None:
        """Forget the spent deliveries before `seq`."""
        for spent in [each for each in self.spent if each < seq]:
            del self.spent[spent]
            self.n_spent -= 1
            if settle:
                self.note_settled(spent)

    # -- deliveries ------------------------------------------------------------------------------------------------

    cdef bint has_demand(self) noexcept nogil:
        if self.paused_until > self.turn.now:
            return False
        if not self.push:
            return self.waiting.head != NULL
        return self.bound and (self.flow_window == 0 or self.flow_pending <= self.flow_window)

    cdef Stop deliver_some(self) noexcept nogil:
        cdef int64_t budget = PUMP_SIZE
        cdef uint32_t i
        self.hold_until = 0
        self.declined = False
        while self.has_demand():
            if self.hold_until:
                return STOP_HELD
            if self.declined:
                return STOP_END
            if budget <= 0:
                return STOP_BUDGET
            i = self.pending.lists[<uint32_t> IN_REDELIVER].head
            if i:
                self.deliver_again(i, &budget)
            elif self.max_ack_pending > 0 and self.pending.count >= <uint64_t> self.max_ack_pending:
                return STOP_FULL
            elif self.deliver_new(&budget) < 0:
                return STOP_END
            elif self.acks_by_flow and not self.flow_asked and self.pending.count >= <uint64_t> self.max_ack_pending:
                with gil:
                    self.ask_flow()
        return STOP_IDLE

    cdef void deliver_again(self, uint32_t i, int64_t* budget) noexcept nogil:
        """Deliver what is due again; what can not be any more is settled."""
        cdef Entry* e = &self.pending.entries[i]
        cdef Record r
        cdef int failed
        if self.max_deliver and e.count >= self.max_deliver:
            with gil:
                self.spend(i)
            return
        failed = self.store.load(e.seq, &r)
        if failed == -3:
            self.hold_until = self.turn.now + RETRY_NS
            return
        if failed < 0:
            with gil:
                self.lose(i, "Unacknowledged message was deleted")
            return
        self.turn.crowded = False
        if self.send(&r, e.count + 1, self.unread, budget) == 0:
            return
        if self.turn.crowded:
            self.hold_until = self.turn.now + CROWDED_NS
        self.delivered_cseq += 1
        self.pending.sent_again(i, self.turn.now)
        self.changes.put(REDELIVERED, r.seq, <uint64_t> self.turn.now)

    cdef int deliver_new(self, int64_t* budget) noexcept nogil:
        """Deliver the next match; -1: there is none."""
        cdef Record r
        cdef uint64_t seq
        cdef int failed
        self.refresh_unread()
        seq = self.find_next()
        if seq == 0 or self.pending.reserve() < 0:
            return -1
        failed = self.store.load(seq, &r)
        if failed == -3:
            self.hold_until = self.turn.now + RETRY_NS
            return 0
        if failed < 0:
            self.pass_by(seq)
            return 0
        if seq <= self.replay_to and self.is_early(r.ts):
            return 0
        if self.send(&r, 1, self.unread - 1 if self.unread else 0, budget) == 0:
            return 0
        if seq <= self.replay_to:
            self.note_replayed(r.ts)
        self.pass_by(seq)
        self.unread -= self.unread > 0
        self.delivered_cseq += 1
        self.delivered_seq = seq
        self.changes.delivered(seq, self.delivered_cseq, self.turn.now)
        if self.ack_policy == ACK_NONE:
            self.floor_seq, self.floor_cseq = seq, self.delivered_cseq
            self.note_settled(seq)
        else:
            self.pending.track(seq, self.delivered_cseq, self.turn.now)
        return 1

    cdef uint64_t find_next(self) noexcept nogil:
        """Return the sequence of the next first delivery, 0: none yet."""
        cdef uint64_t seq
        if self.skips.left:
            return self.skips.seq
        seq = self.store.catalogue.next_seq(self.next_seq, self.filter)
        self.end_seq = 0
        if seq == 0:
            self.end_seq = self.store.catalogue.last_seq
            if self.next_seq <= self.store.catalogue.last_seq:
                self.next_seq = self.store.catalogue.last_seq + 1
            self.unread = 0
        return seq

    cdef int64_t replay_due(self, int64_t ts) noexcept nogil:
        """Return when a message stored at `ts` is to be delivered: as long after the one before as it was stored."""
        if self.replay_ts == 0:
            return self.turn.now
        return self.replay_at + (ts - self.replay_ts if ts > self.replay_ts else 0)

    cdef bint is_early(self, int64_t ts) noexcept nogil:
        """Tell whether a message stored at `ts` has to wait, and note until when."""
        cdef int64_t due = self.replay_due(ts)
        if due <= self.turn.now + EARLY_NS:
            return False
        self.hold_until = due
        return True

    cdef void note_replayed(self, int64_t ts) noexcept nogil:
        """Let the next distance count from this delivery, whose small delays do not add up."""
        cdef int64_t due = self.replay_due(ts)
        self.replay_at = due if self.turn.now - due < LATE_NS else self.turn.now
        self.replay_ts = ts

    cdef bint take_rate(self, int64_t size) noexcept nogil:
        """Take `size` bytes out of the bucket of the rate limit; False: it does not hold them before `hold_until`."""
        cdef int64_t now = self.turn.now
        cdef double ns_per_byte = 8e9 / <double> self.rate_bps
        cdef int64_t spare = 0
        if size < self.burst_size:
            spare = <int64_t> (<double> (self.burst_size - size) * ns_per_byte)
        if self.burst_at - now > spare:
            self.hold_until = max(self.burst_at - spare, now + HOLD_MIN_NS)
            return False
        self.burst_at = (self.burst_at if self.burst_at > now else now) + <int64_t> (<double> size * ns_per_byte)
        return True

    cdef void pass_by(self, uint64_t seq) noexcept nogil:
        """Move the cursor behind `seq`."""
        self.next_seq = seq + 1
        if self.skips.left:
            self.skips.advance()
            if self.skips.left == 0:
                self.next_seq = self.skips_end + 1

    cdef void refresh_unread(self) noexcept nogil:
        """Let `unread` be the number of matches behind the cursor."""
        cdef uint64_t after = self.counted_to + 1
        if self.unread_stale:
            self.unread_stale = False
            self.unread = self.skips.left
            after = self.skips_end + 1 if self.skips.left else self.next_seq
        elif self.store.catalogue.last_seq <= self.counted_to:
            return
        elif after < self.next_seq:
            after = self.next_seq
        self.unread += self.store.catalogue.count_from(after, self.filter)
        self.counted_to = self.store.catalogue.last_seq
        # Drops that `dropped` has yet to hear of are not in this count: it must not take them off again.
        self.unread_stale = self.store.catalogue.drops.size != 0

    cdef int send(self, Record* r, uint32_t count, uint64_t unread, int64_t* budget) noexcept nogil:
        """Send one message to whoever is next; 0: nobody took it."""
        cdef Msg m
        self.compose(&m, r, count, unread)
        if self.headers_only and self.strip_payload(&m) < 0:
            return 0
        if self.rate_bps and not self.take_rate(<int64_t> m.subject_len + m.reply_len + m.size):
            return 0
        self.finish_line(&m)
        budget[0] -= m.size + 64
        if self.push:
            return self.send_push(&m)
        return self.send_pull(&m, <int64_t> m.subject_len + m.reply_len + m.size, unread)

    cdef void compose(self, Msg* m, Record* r, uint32_t count, uint64_t unread) noexcept nogil:
        m.subject = r.subject
        m.subject_len = r.subject_len
        m.body = r.body
        m.header_len = r.header_len
        m.size = r.size
        m.reply = self.line
        m.reply_len = self.prefix_len + <uint32_t> write_token(
            self.line + self.prefix_len, count, r.seq, self.delivered_cseq + 1, r.ts, unread)
        m.tail = self.line
        m.split = True
        m.aliased = True
        m.origin = m.whole = NULL

    cdef void finish_line(self, Msg* m) noexcept nogil:
        """Write "[hlen ]size" behind the reply."""
        cdef char* p = self.line + m.reply_len
        p[0] = c' '
        p += 1
        if m.header_len:
            p += write_digits(p, m.header_len)
            p[0] = c' '
            p += 1
        p += write_digits(p, m.size)
        memcpy(p, b"\r\n", 2)
        m.tail_len = p + 2 - self.line

    cdef int strip_payload(self, Msg* m) noexcept nogil:
        """Replace the payload by a header that tells its size."""
        cdef size_t kept = m.header_len - 2 if m.header_len else 10
        cdef char* p
        if kept + 48 > self.header_room:
            p = <char*> realloc(self.header_buf, kept + 256)
            if p == NULL:
                return -1
            self.header_buf = p
            self.header_room = kept + 256
        p = self.header_buf
        memcpy(p, m.body if m.header_len else <const char*> b"NATS/1.0\r\n", kept)
        p += kept
        memcpy(p, b"Nats-Msg-Size: ", 15)
        p += 15 + write_digits(p + 15, m.size - m.header_len)
        memcpy(p, b"\r\n\r\n", 4)
        m.body = self.header_buf
        m.header_len = m.size = <uint32_t> (p + 4 - self.header_buf)
        return 0

    cdef int send_pull(self, Msg* m, int64_t size, uint64_t unread) noexcept nogil:
        cdef Waiting* w
        cdef int64_t passed = 0
        cdef int served
        while self.waiting.head != NULL:
            w = self.waiting.head
            if w.expires_at and w.expires_at <= self.turn.now:
                with gil:
                    self.end_head(b"408 Request Timeout")
            elif self.priority == PRIORITY_PINNED and w.pin and w.pin != self.pin:
                with gil:
                    self.end_head(b"423 Nats-Wrong-Pin-Id")
            elif self.priority != PRIORITY_NONE and not self.may_have(w, unread):
                self.waiting.rotate()
                passed += 1
                if passed >= self.waiting.count:
                    self.declined = True
                    return 0
            elif 0 < w.bytes_left < size:
                with gil:
                    self.end_head(b"409 Message Size Exceeds MaxBytes")
            else:
                if self.priority == PRIORITY_PINNED:
                    served = self.publish_pinned(w, m)
                else:
                    served = self.account.publish_to(w.reply, w.reply_len, m)
                if served:
                    self.serve_head(size)
                    return 1
                self.waiting.drop_head()
        return 0

    cdef bint may_have(self, Waiting* w, uint64_t unread) noexcept nogil:
        """Tell whether the priority policy lets a request have the next message, `unread` being left behind it."""
        if self.priority == PRIORITY_PINNED:
            return self.pin == 0 or w.pin == self.pin
        if self.priority == PRIORITY_PRIORITIZED or (w.min_pending <= 0 and w.min_ack_pending <= 0):
            return True
        if w.min_pending > 0 and <uint64_t> w.min_pending <= unread + 1:
            return True
        return w.min_ack_pending > 0 and w.min_ack_pending <= <int64_t> self.pending.count

    cdef int publish_pinned(self, Waiting* w, Msg* m) noexcept nogil:
        """Send a message to the client that has the pin, or gets it now, with a header that tells it."""
        cdef Msg pinned = m[0]
        cdef size_t kept = m.header_len - 2 if m.header_len else 10
        cdef size_t payload = m.size - m.header_len
        cdef char* p
        if not self.account.interested(w.reply, w.reply_len):
            return 0
        if self.pin == 0 and w.grouped:
            with gil:
                self.assign_pin(w)
        if self.pin == 0:
            return self.account.publish_to(w.reply, w.reply_len, m)
        if kept + payload + 64 > self.pin_room:
            p = <char*> realloc(self.pin_buf, kept + payload + 1024)
            if p == NULL:
                return 0
            self.pin_buf = p
            self.pin_room = kept + payload + 1024
        p = self.pin_buf
        memcpy(p, m.body if m.header_len else <const char*> b"NATS/1.0\r\n", kept)
        p += kept
        memcpy(p, b"Nats-Pin-Id: ", 13)
        memcpy(p + 13, self.pin_text, PIN_SIZE)
        memcpy(p + 13 + PIN_SIZE, b"\r\n\r\n", 4)
        p += 13 + PIN_SIZE + 4
        memcpy(p, m.body + m.header_len, payload)
        pinned.body = self.pin_buf
        pinned.header_len = <uint32_t> (p - self.pin_buf)
        pinned.size = <uint32_t> (pinned.header_len + payload)
        self.finish_line(&pinned)
        return self.account.publish_to(w.reply, w.reply_len, &pinned)

    cdef void serve_head(self, int64_t size) noexcept nogil:
        """The first request got a message: count it, and let the next one be first."""
        cdef Waiting* w = self.waiting.head
        self.active_at = self.delivered_at = self.turn.now
        w.delivered += 1
        w.left -= 1
        if w.bytes_left > 0:
            w.bytes_left -= size
            if w.bytes_left == 0:
                w.left = 0
        if w.left > 0:
            if w.heartbeat_ns:
                w.heartbeat_at = self.turn.now + w.heartbeat_ns
            self.waiting.rotate()
        elif w.bytes_left > 0:
            with gil:
                self.end_head(b"409 Batch Completed")
        else:
            self.waiting.drop_head()

    cdef int send_push(self, Msg* m) noexcept nogil:
        cdef int64_t size = <int64_t> self.dest_len + m.reply_len + m.size
        if self.account.publish_to(self.dest, self.dest_len, m) == 0:
            self.bound = False
            self.interest_changed = True
            return 0
        self.delivered_at = self.sent_at = self.turn.now
        if self.flow_window:
            self.flow_pending += size
            if not self.flow_asked and self.flow_pending > self.flow_window // 2:
                with gil:
                    self.ask_flow()
            elif self.flow_asked and self.flow_pending - self.flow_sent >= self.flow_window:
                self.flow_sent += size
        return 1
