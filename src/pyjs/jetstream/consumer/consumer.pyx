"""A consumer delivers the messages of a stream, and stores which of them were acknowledged.

`deliver` handles an incoming ack: it acknowledges the delivery at once, in memory. `pump`, called in the turn, always
works in this order: it delivers messages, writes the changes with one small write, answers acks, publishes
advisories, and passes acknowledged sequences to the stream. `deliver_some` first sends due redeliveries, in sequence
order, and then the next matches of the filter: to the waiting requests, round robin, or to the deliver subject.

The parts hold the state: `cursor` has the next message, `acks` has the pending deliveries and the ack floor,
`requests` has the pull requests and the pin, `push` has the deliver subject, `flow` and `pacing` have the limits on
the rate, and `keeper` has the file. This module combines them. It uses the store, but no stream, API calls or files.

Invariant of a written state (replay.pyx): every pending sequence <= delivered_seq < next_seq.

Long because a message, an ack and a deadline each use most parts. Compiled: per message no object is created and no
Python function is called (benchmarks/: pull 500, push).
Source: nats.docs "Consumers", ADR-13, ADR-15; behaviour compared in tests/conformance.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer.acks.pending cimport IN_REDELIVER, IN_EXHAUSTED, Entry
from pyjs.jetstream.consumer.acks.queues cimport AckReplies, AcknowledgedQueue, send_ack_replies
from pyjs.jetstream.consumer.acks.state cimport AckState
from pyjs.jetstream.consumer.acks.log cimport StateLog
from pyjs.jetstream.consumer.delivery.cursor cimport DeliveryCursor, Skips
from pyjs.jetstream.consumer.delivery.outcome cimport ACK_PENDING_FULL, AT_END, DECLINED, HELD, NO_DEMAND, NOT_TAKEN
from pyjs.jetstream.consumer.delivery.outcome cimport OUT_OF_BUDGET, SENT, Outcome
from pyjs.jetstream.consumer.delivery.pacing cimport Pacing
from pyjs.jetstream.consumer.delivery.pull_requests cimport PullRequests
from pyjs.jetstream.consumer.delivery.push cimport FLOW_ASKED, FLOW_OFF, FlowControl, PushSubject
from pyjs.jetstream.consumer.delivery.writer cimport VERB_ACK, VERB_NAK, VERB_NEXT, VERB_OTHER, VERB_PROGRESS
from pyjs.jetstream.consumer.delivery.writer cimport AckToken, DeliveryWriter, Verb, parse_verb
from pyjs.jetstream.consumer.state_keeper cimport REWRITING, StateKeeper
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer
from pyjs.jetstream.consumer.wake_timer cimport WakeTimer
from pyjs.store.store cimport Record
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from functools import partial

from pyjs.base.bounds import taken
from pyjs.base.gotext import ZERO_TIME
from pyjs.base.nuid import token as random_token
from pyjs.jetstream.consumer.delivery import status as consumer_status
from pyjs.jetstream.consumer.advisories import ConsumerEvents
from pyjs.jetstream.consumer.arguments import read_delay_ns, read_percent
from pyjs.jetstream.consumer.subjects import ConsumerSubjects
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.consumer.delivery.pull_request import RefusedPull, check_pull, read_pull

cdef enum:
    PUMP_SIZE = 262144              # maximum bytes of one pump, in which each message counts as 64 bytes more
    JAMMED_NS = 1000000             # ns that deliveries wait while much output is queued for another server
    CROWDED_NS = 10000000           # ns that redeliveries wait while much output is queued for their receiver
    RETRY_NS = 100000000            # ns until a message is read again after file descriptors were short
    SLACK_NS = 1000000              # ns: deadlines this close together expire together
    JITTER_NS = 100000000

POLICIES = {"none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_FLOW}
NEVER_NS = 1 << 62
GONE = "Unacknowledged message was deleted"


cdef inline void wake_by(int64_t* best, int64_t at) noexcept nogil:
    if at and (best[0] == 0 or at < best[0]):
        best[0] = at


cdef class Consumer(StreamConsumer):
    """A consumer of a stream, which delivers messages and tracks their acknowledgements."""

    def __init__(self, resources, config, str name, int64_t created_ns, file=None):
        changes = StateLog(file is not None)
        self.stream_name = resources.stream_name
        self.name = name
        self.created_ns = created_ns
        self.account = resources.account
        self.turn = resources.account.turn
        self.store = resources.store
        self.rng = resources.rng
        self.subjects = ConsumerSubjects(
            resources.account.name, resources.stream_name, name, resources.domain, resources.ack_v2
        )
        self.subscriptions = []
        self.events = ConsumerEvents(resources.account, resources.rng, resources.stream_name, name, resources.domain)
        self.timer = WakeTimer(resources.timers)
        self.keeper = StateKeeper(file, changes, resources.metadata, resources.log, resources.sync_always)
        self.cursor = DeliveryCursor(resources.store)
        self.acks = AckState(changes)
        self.flow = FlowControl()
        self.pacing = Pacing(resources.burst_size)
        self.writer = DeliveryWriter(*self.subjects.ack_prefixes())
        self.replies = AckReplies()
        self.acknowledged = AcknowledgedQueue()
        self.orders = []
        self.configure(config)

    def __str__(self) -> str:
        return f"consumer '{self.path}'"

    @property
    def path(self) -> str:
        """The names of account, stream and consumer, for the log."""
        return f"{self.account.name} > {self.stream_name} > {self.name}"

    @property
    def closed(self) -> bool:
        """Whether the consumer is closed."""
        return self.life != LIVE

    # -- configuration ---------------------------------------------------------------------------------------------

    def configure(self, config) -> None:
        """Apply a new or updated configuration that the rules have checked."""
        self.config = config
        self.filters = tuple([subject.encode() for subject in config.filters])
        self.cursor.set_filters(self.filters)
        self.writer.headers_only = config.headers_only
        self.ack_policy = POLICIES[config.ack_policy]
        self.max_ack_pending = config.max_ack_pending
        self.max_deliver = taken("max_deliver", config.max_deliver)
        self.sample_percent = read_percent(config.sample_freq)
        self.flow.switch(config.flow_control)
        self.pacing.set_rate(taken("rate_limit_bps", config.rate_limit_bps))
        waits = [taken("backoff", each) for each in config.backoff_ns] or [taken("ack_wait", config.ack_wait_ns)]
        self.acks.pending.set_waits([NEVER_NS] if self.ack_policy == ACK_FLOW else waits)
        self.set_pause()
        self.threshold = taken("inactive_threshold", config.inactive_threshold_ns)
        if self.threshold and not config.push:
            self.threshold += JITTER_NS * (1 + self.rng.below(10))
        if config.push:
            self.configure_push()
        else:
            self.configure_pull()

    def configure_push(self) -> None:
        """Apply the options of push consumers."""
        config = self.config
        if self.push is None:
            self.push = PushSubject()
        heartbeat_ns = taken("idle_heartbeat", config.idle_heartbeat_ns)
        self.push.configure(config.deliver_subject.encode(), config.deliver_group.encode(), heartbeat_ns)

    def configure_pull(self) -> None:
        """Apply the options of pull consumers."""
        config = self.config
        if self.requests is None:
            max_waiting = taken("max_waiting", config.max_waiting)
            self.requests = PullRequests(self.account, self.writer, self.rng, self.events, max_waiting)
        pin_wait_ns = taken("priority_timeout", config.priority_timeout_ns)
        self.requests.configure(config.priority_policy, config.priority_groups, pin_wait_ns)

    def update(self, config) -> None:
        """Apply an updated configuration to a running consumer."""
        moved = self.config.deliver_subject != config.deliver_subject
        paused = self.config.pause_until_ns != config.pause_until_ns
        if moved:
            self.account.unwatch_interest(self.push.subject, self.note_interest)
            self.acks.requeue_all()
        self.configure(config)
        if moved:
            self.account.watch_interest(self.push.subject, self.note_interest)
            self.push.changed = True
        if paused or self.paused_until > self.turn.now:
            self.tell_pause()
        self.active_at = self.turn.now
        self.mark_dirty()

    def set_pause(self) -> None:
        """Take the end of the pause from the configuration, and convert it from wall clock to clock of deadlines."""
        cdef int64_t until = taken("pause_until", self.config.pause_until_ns or 0)      # Go's zero time is before 0
        self.paused_until = until - self.turn.skew if 0 < until < NEVER_NS else until

    def clock_stepped(self) -> None:
        """Recompute the end of a pause after the wall clock has been set."""
        if self.paused_until:
            self.set_pause()
            self.arm_timer()
            self.mark_dirty()

    def tell_pause(self) -> None:
        """Queue the advisory about the beginning or the end of a pause."""
        until = as_json(self.config).get("pause_until", ZERO_TIME)
        self.events.note("pause", paused=self.paused_until > self.turn.now, pause_until=until)

    # -- life ------------------------------------------------------------------------------------------------------

    def begin(self, start, bint written=False) -> None:
        """Set the position of a new consumer. Unless `written`, write the state, or raise OSError or StoreFailed."""
        self.cursor.begin(start.seq, Skips(start.skips), start.skips_end)
        self.acks.begin(start.seq)
        if self.keeper.file is not None and not written:
            self.keeper.rewrite(self)

    def start(self) -> None:
        """Subscribe to acks and requests, and begin to deliver."""
        account = self.account
        subscriptions = [account.subscribe_handler(subject, self.on_next) for subject in self.subjects.pulls()]
        if self.ack_policy != ACK_NONE and self.ack_policy != ACK_FLOW:
            subscriptions += [account.subscribe(subject, self) for subject in self.subjects.acks()]
        if self.config.flow_control:
            subscriptions.append(account.subscribe_handler(self.subjects.flow("*"), self.on_flow))
        self.subscriptions = subscriptions
        self.active_at = self.turn.now
        if self.config.replay_policy == "original":
            self.pacing.replay_to = self.store.catalogue.last_seq
        if self.push is not None:
            self.push.unbound_at = self.push.sent_at = self.turn.now
            account.watch_interest(self.push.subject, self.note_interest)
            self.push.update_bound(account, self.turn.now)
        self.arm_timer()
        self.mark_dirty()

    def close(self) -> None:
        if self.life == LIVE:
            self.life = CLOSED

    def stop(self, str reason) -> None:
        """Stop the consumer: remove all its subscriptions, and end the waiting pull requests.

        `reason` is "deleted", "shutdown", "leadership" or "fault"; the state is written only for "shutdown".
        """
        if self.life == STOPPED:
            return
        self.life = STOPPED
        for subscription in self.subscriptions:
            self.account.unsubscribe(subscription)
        self.subscriptions = []
        if self.push is not None:
            self.account.unwatch_interest(self.push.subject, self.note_interest)
        else:
            self.requests.end_all(reason)
        self.timer.cancel()
        if reason == "shutdown":
            self.finish_turn()
        elif reason == "deleted":
            self.events.send("deleted", self.turn.now + self.turn.skew, action="delete")

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = True
            with gil:
                self.turn.consumers.append(self)

    def resume(self) -> None:
        self.mark_dirty()

    # -- requests --------------------------------------------------------------------------------------------------

    def on_next(self, request) -> None:
        """Handle a pull request; the consumer may have stopped since the request arrived."""
        if not request.reply:
            return
        if self.life != LIVE and self.requests is not None:
            self.requests.refuse_late(request.reply)
            return
        try:
            self.request_next(request.reply, request.payload, request.headers)
        except Exception:
            self.refuse(request.reply, "500 Internal Server Error")
            raise

    def request_next(self, bytes reply, bytes body, bytes headers=b"") -> None:
        """Queue a pull request, or answer it with a status. If the queue is full, drop a request with heartbeat."""
        if self.requests is None:
            self.refuse(reply, "409 Consumer is push based")
            return
        if headers and needs_higher_level(headers):
            self.refuse(reply, "412 Required Api Level")
            return
        self.active_at = self.turn.now
        try:
            request = read_pull(body)
            check_pull(request, self.config)
        except RefusedPull as refused:
            self.refuse(reply, str(refused))
            return
        if self.requests.names_wrong_pin(request, self.turn.now):
            self.refuse(reply, "423 Nats-Pin-Id mismatch")
            return
        if self.requests.queue.count >= self.requests.queue.max:
            self.sweep_waiting()
        if request.no_wait and not self.cursor.count_some():
            if len(self.orders) >= self.requests.queue.max:
                self.refuse(reply, "409 Exceeded MaxWaiting")
            else:
                self.orders.append((reply, body))       # handled when all messages are counted
                self.mark_dirty()
            return
        if request.no_wait and not self.serves_at_once(reply, request):
            return
        if self.requests.add(reply, request, self.turn.now):
            self.mark_dirty()
        elif not request.heartbeat_ns:
            self.refuse(reply, "409 Exceeded MaxWaiting")

    def serves_at_once(self, bytes reply, request) -> bool:
        """Return whether a `no_wait` request can be queued; if not, answer it with status 404 or 408."""
        cdef uint64_t ready = self.cursor.num_pending() + self.acks.pending.n_queued
        if ready == 0 and not request.expires_ns:
            self.refuse(reply, "404 No Messages")
            return False
        if ready and self.requests.queue.count:
            self.sweep_waiting()
            if ready < <uint64_t> self.requests.queue.wanted():
                self.refuse(reply, "408 Requests Pending")
                return False
        return True

    def unpin(self, str group, str reason) -> None:
        """End the pin of `group`, so that another client can get it; `reason` is "admin" or "timeout"."""
        if self.requests is not None:
            self.requests.unpin(group, reason)
            self.mark_dirty()

    def refuse(self, bytes reply, str text) -> None:
        """Answer a request at once with the status `text`."""
        self.account.send(reply, b"", consumer_status.status(text))

    def sweep_waiting(self, bint at_end=False) -> None:
        """End requests that expired, lost their interest or (if `at_end`) have `no_wait`; send due heartbeats."""
        self.requests.sweep(self.turn.now, at_end, self.heartbeat)

    def heartbeat(self) -> bytes:
        """Return the status of an idle heartbeat, with the current position of the consumer."""
        return consumer_status.idle_heartbeat(self.acks.delivered_cseq, self.cursor.next_seq - 1, self.flow.reply)

    # -- push ------------------------------------------------------------------------------------------------------

    def note_interest(self) -> None:
        """After SUB or UNSUB, record that subscriptions to the deliver subject may have changed."""
        self.push.changed = True
        self.mark_dirty()

    cdef void ask_flow(self) noexcept:
        """Send a flow control request to the subscriber."""
        self.flow.ask(self.subjects.flow(random_token(self.rng, 4)))
        self.account.send(self.push.subject, b"", consumer_status.FLOW_CONTROL_REQUEST, self.flow.reply)

    def on_flow(self, request) -> None:
        """Handle the answer to a flow control request; with ack policy flow_control, the answer is also an ack."""
        if not self.flow.confirm(request.subject):
            return
        if self.ack_policy == ACK_FLOW:
            seq, cseq = consumer_status.read_progress(request.headers)
            if self.acks.floor_seq < seq < self.cursor.next_seq and cseq > self.acks.floor_cseq:
                self.acked_at = self.turn.now
                self.ack_all(seq, min(cseq, self.acks.delivered_cseq))
        self.mark_dirty()

    # -- acks ------------------------------------------------------------------------------------------------------

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef AckToken token
        cdef const char* payload = m.body + m.header_len
        cdef size_t n = m.size - m.header_len
        cdef Verb verb
        cdef bint answer = True
        if t.sub.closed or self.life != LIVE or self.writer.read_ack(m, &token) < 0:
            return 0
        verb = parse_verb(payload, n)
        self.active_at = self.turn.now
        if verb == VERB_ACK:
            answer = self.take_ack(&token)
        elif verb == VERB_PROGRESS:
            self.acks.in_progress(token.seq, self.turn.now)
        elif verb != VERB_OTHER:
            with gil:
                answer = self.rare_ack(m, verb, &token, payload[4:n])
        if answer and m.reply_len and token.seq:
            self.replies.add(m.reply, m.reply_len)
        self.mark_dirty()
        return 1

    cdef bint take_ack(self, AckToken* token) noexcept nogil:
        """Acknowledge a delivery; return whether the ack should be answered."""
        if token.seq >= self.cursor.next_seq and self.flow.state == FLOW_OFF:
            return False
        self.acked_at = self.turn.now
        if self.sample_percent and self.ack_policy == ACK_EXPLICIT:
            with gil:
                self.sample(token)
        self.ack(token)
        return True

    cdef void ack(self, AckToken* token) noexcept nogil:
        if self.ack_policy == ACK_ALL:
            self.ack_all(token.seq, token.cseq)
        elif self.acks.ack(token.seq) or self.cursor.covers(token.seq):     # a reset may have skipped the message
            self.note_acknowledged(token.seq)

    cdef void ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil:
        """Acknowledge all deliveries up to `seq`, except those that wait for their dead letters."""
        cdef uint32_t i = self.acks.pending.oldest
        cdef bint spares = self.acks.n_exhausted != 0 and self.letters is not None
        while self.is_asked() and i and self.acks.pending.entries[i].seq <= seq:
            self.note_acknowledged(self.acks.pending.entries[i].seq)
            i = self.acks.pending.entries[i].newer
        if self.acks.ack_to(seq, cseq, spares) and self.acks.n_exhausted and not spares:
            with gil:
                for each in self.acks.take_exhausted(seq):
                    self.note_acknowledged(each)

    cdef bint rare_ack(self, Msg* m, Verb verb, AckToken* token, bytes argument) noexcept:
        """Handle a nak, a termination, or an ack with a pull request; return whether to answer it now."""
        try:
            if verb == VERB_NEXT:
                self.take_ack(token)
                self.orders.append((m.reply[:m.reply_len], argument))
                return False
            if verb == VERB_NAK:
                self.nak(token.seq, token.cseq, token.count, argument)
                return True
            if token.seq >= self.cursor.next_seq:
                return False
            self.acked_at = self.turn.now
            reason = argument[1:].strip().decode("utf-8", "replace")
            if self.letters is None or not self.letters.term(token.seq, token.cseq, reason):
                self.ack(token)
            self.events.note_terminated(token.seq, token.cseq, token.count, reason)
            return True
        except MemoryError:
            return False

    def nak(self, uint64_t seq, uint64_t cseq, uint64_t count, bytes argument) -> None:
        """Queue a pending delivery for redelivery, at once or after the delay in `argument`."""
        cdef int64_t delay_ns
        if not self.acks.pending.find(seq) or cseq <= self.acks.floor_cseq or cseq > self.acks.delivered_cseq + 1:
            return
        self.events.note("nak", consumer_seq=cseq, stream_seq=seq, deliveries=count)
        try:
            delay_ns = read_delay_ns(argument)
        except ValueError:
            self.keeper.log.warn(f"JetStream consumer '{self.path}' bad NAK delay value: {argument!r}")
            delay_ns = -1
        self.acks.nak(seq, self.turn.now + delay_ns if delay_ns >= 0 else 0)

    cdef void sample(self, AckToken* token) noexcept:
        """Queue the metric of an ack, with a probability of `sample_percent` percent."""
        cdef uint32_t i = self.acks.pending.find(token.seq)
        if i == 0 or (self.sample_percent < 100 and self.rng.below(100) >= self.sample_percent):
            return
        took_ns = self.turn.now - self.acks.pending.entries[i].sent_at
        self.events.note("ack", consumer_seq=token.cseq, stream_seq=token.seq, ack_time=took_ns,
                         deliveries=token.count)

    cdef void note_acknowledged(self, uint64_t seq) noexcept nogil:
        """Queue the acknowledged `seq` for the stream, which may remove the message."""
        if self.is_asked():
            self.acknowledged.add(seq)

    cdef bint is_asked(self) noexcept nogil:
        """Return whether the stream reads the acknowledged sequences. During a replay, the result is False."""
        return self.inbox is not None and self.inbox.asks

    cpdef list take_acknowledged(self, size_t most):
        cdef list seqs = self.acknowledged.take(most)
        if self.acknowledged.count and self.inbox is not None:
            self.inbox.has_acknowledged(self)
        return seqs

    # -- deliveries ------------------------------------------------------------------------------------------------

    cdef bint has_demand(self) noexcept nogil:
        if self.paused_until > self.turn.now:
            return False
        if self.push is None:
            return self.requests.queue.head != NULL
        return self.push.bound and self.flow.has_room()

    cdef Outcome deliver_some(self) noexcept nogil:
        """Deliver messages until a limit of one pump is reached or no delivery is possible; return the reason."""
        cdef int64_t budget = PUMP_SIZE
        cdef Outcome outcome
        cdef uint32_t i
        self.pacing.hold_until = 0
        self.turn.jammed = False
        while self.has_demand():
            if budget <= 0 or not self.cursor.count_some():     # each message has num_pending in its reply subject
                return OUT_OF_BUDGET
            i = self.acks.pending.lists[<uint32_t> IN_REDELIVER].head
            if i:
                outcome = self.deliver_again(i, &budget)
            elif self.max_ack_pending > 0 and self.acks.pending.count >= <uint64_t> self.max_ack_pending:
                return ACK_PENDING_FULL
            else:
                outcome = self.deliver_new(&budget)
                if (self.ack_policy == ACK_FLOW and outcome != AT_END and self.flow.state != FLOW_ASKED
                        and self.acks.pending.count >= <uint64_t> self.max_ack_pending):
                    with gil:
                        self.ask_flow()
            if outcome != SENT and outcome != NOT_TAKEN:
                return outcome
        return NO_DEMAND

    cdef Outcome deliver_again(self, uint32_t i, int64_t* budget) noexcept nogil:
        """Redeliver a due message; return SENT, or the reason why it was not sent.

        A message that was delivered `max_deliver` times is given up instead, and a removed message is acknowledged.
        In both cases, the result is SENT.
        """
        cdef Entry* e = &self.acks.pending.entries[i]
        cdef Outcome outcome
        cdef Record r
        cdef int failed
        if self.max_deliver and e.count >= self.max_deliver:
            with gil:
                self.give_up(i)
            return SENT
        failed = self.store.load(e.seq, &r)
        if failed == -3:
            return self.hold(self.turn.now + RETRY_NS)
        if failed < 0:
            with gil:
                self.lose(i, GONE)
            return SENT
        self.turn.crowded = False
        outcome = self.send(&r, e.count + 1, self.cursor.unread, budget)
        if outcome == SENT:
            self.acks.sent_again(i, self.turn.now)
            if self.turn.crowded:
                return self.hold(self.turn.now + CROWDED_NS)
        return outcome

    cdef Outcome deliver_new(self, int64_t* budget) noexcept nogil:
        """Deliver the next message that matches the filters; return SENT, or the reason why nothing was sent."""
        cdef Record r
        cdef Outcome outcome
        cdef uint64_t seq = self.cursor.find_some(), unread
        cdef int failed
        if seq == 0 or self.acks.pending.reserve() < 0:
            return OUT_OF_BUDGET if self.cursor.searching else AT_END
        failed = self.store.load(seq, &r)
        if failed == -3:
            return self.hold(self.turn.now + RETRY_NS)
        if failed < 0:
            self.cursor.pass_by(seq)
            return NOT_TAKEN
        if seq <= self.pacing.replay_to and self.pacing.is_early(r.ts, self.turn.now):
            return HELD
        unread = self.cursor.unread - 1 if self.cursor.unread else 0
        outcome = self.send(&r, 1, unread, budget)
        if outcome != SENT:
            return outcome
        if seq <= self.pacing.replay_to:
            self.pacing.note_replayed(r.ts, self.turn.now)
        self.cursor.pass_by(seq)
        self.acks.delivered(seq, self.turn.now, self.ack_policy == ACK_NONE)
        if self.ack_policy == ACK_NONE:
            self.note_acknowledged(seq)
        return self.hold(self.turn.now + JAMMED_NS) if self.turn.jammed else SENT

    cdef Outcome hold(self, int64_t until) noexcept nogil:
        """Hold deliveries until the time `until` (ns); return HELD."""
        self.pacing.hold_until = until
        return HELD

    cdef Outcome send(self, Record* r, uint32_t count, uint64_t unread, int64_t* budget) noexcept nogil:
        """Send a message to the next request or the deliver subject; return SENT, or the reason why it was not sent.

        `count` is the number of deliveries of the message, including this one. `unread` is num_pending after this
        delivery. The cost of the delivery is subtracted from `budget`.
        """
        cdef Msg m
        cdef Outcome outcome
        cdef int64_t size
        if self.writer.write(&m, r, count, self.acks.delivered_cseq + 1, unread) < 0:
            return self.hold(self.turn.now + RETRY_NS)
        size = <int64_t> m.subject_len + m.reply_len + m.size
        if self.pacing.rate_bps and not self.pacing.take_rate(size, self.turn.now):
            return HELD
        self.writer.finish(&m)
        budget[0] -= m.size + 64
        if self.push is not None:
            return self.send_push(&m)
        outcome = self.requests.send(&m, size, unread, self.acks.pending.count, self.turn.now)
        if outcome == SENT:
            self.active_at = self.delivered_at = self.turn.now
        return outcome

    cdef Outcome send_push(self, Msg* m) noexcept nogil:
        """Send a message to the deliver subject; return SENT, or NOT_TAKEN if no client received it."""
        cdef int64_t size = <int64_t> self.push.length + m.reply_len + m.size
        if self.account.publish_to(self.push.text, self.push.length, m) == 0:
            self.push.bound = False
            self.push.changed = True
            return NOT_TAKEN
        self.delivered_at = self.push.sent_at = self.turn.now
        if self.flow.note_sent(size):
            with gil:
                self.ask_flow()
        return SENT

    cdef void give_up(self, uint32_t i) noexcept:
        """Give up a delivery after max_deliver attempts; the message stays unacknowledged."""
        seq = self.acks.pending.entries[i].seq
        count = self.acks.give_up(seq)
        self.events.note("max_deliver", stream_seq=seq, deliveries=count)

    cdef void lose(self, uint32_t i, str reason) noexcept:
        """Acknowledge a delivery whose message was removed, and queue the advisory about its end."""
        cdef Entry* e = &self.acks.pending.entries[i]
        seq, cseq, count = e.seq, e.cseq, e.count
        self.acks.acknowledge(i)
        self.acked_at = self.turn.now
        self.acks.changes.acked(seq)
        self.events.note_terminated(seq, cseq, count, reason)

    # -- the turn --------------------------------------------------------------------------------------------------

    cpdef void wake(self, uint64_t seq) noexcept:
        """Queue the consumer for the turn. New matches begin at `seq`; if `seq` is 0, they may begin anywhere."""
        self.mark_dirty()
        self.cursor.woken(seq)

    def pump(self) -> None:
        """Do all work of this consumer in a turn: deliver messages, write the state, send answers."""
        cdef Outcome outcome
        self.dirty = False
        if self.life != LIVE or self.keeper.state == REWRITING:     # `resume` will be called later
            return
        if self.keeper.wants_rewrite():
            self.keeper.rewrite_later(self)
            return
        if self.replies.size or self.events.queued:
            self.finish_turn()
            if self.keeper.state == REWRITING:
                return
        if self.push is not None and self.push.changed:
            self.push.update_bound(self.account, self.turn.now)
        if self.store.changing:                 # a purge is running, and purged messages must not be delivered
            self.dirty = True
            self.turn.held.append(self)
            return
        if self.orders and self.cursor.count_some():
            orders, self.orders = self.orders, []
            for reply, body in orders:
                self.request_next(reply, body)
        elif self.orders:
            self.mark_dirty()
        outcome = self.deliver_some()
        if outcome == OUT_OF_BUDGET:
            self.mark_dirty()
        elif outcome == AT_END or outcome == DECLINED or self.paused_until > self.turn.now:
            self.caught_up()
        self.finish_turn()

    def caught_up(self) -> None:
        """Handle the end of the stream, or a pause: end `no_wait` requests, then wait for new messages."""
        if self.requests is not None and self.requests.queue.no_wait:
            self.sweep_waiting(True)
        if self.inbox is not None and self.has_demand():
            self.inbox.caught_up(self)

    def finish_turn(self) -> None:
        """Write the changes, then send answers, advisories and acknowledged sequences."""
        cdef int64_t now = self.turn.now + self.turn.skew
        assert self.acks.delivered_seq < self.cursor.next_seq
        assert self.acks.pending.newest_seq() <= self.acks.delivered_seq
        if not self.keeper.record(self):
            self.replies.size = 0
        elif self.letters is not None and self.acks.n_exhausted:
            self.letters.wake()
        if self.events.queued:
            self.events.send_queued(now, ("nak",))
        self.send_replies()
        if self.events.queued:
            self.events.send_queued(now)
        if self.acknowledged.count and self.inbox is not None:
            self.inbox.has_acknowledged(self)
        self.acks.pending.shrink()
        if self.life == LIVE:
            self.arm_timer()

    def send_replies(self) -> None:
        """Answer the acks that have a reply subject; with sync_always, answer them only after the sync."""
        if self.replies.size and self.keeper.sync_always:
            self.keeper.file.when_synced(partial(self.confirm, self.replies.take()))
        elif self.replies.size:
            self.replies.send(self.account)

    def confirm(self, bytes replies, error) -> None:
        """Answer acks after their sync. If the sync failed, no ack is answered, so clients send the acks again."""
        if error is None:
            send_ack_replies(self.account, replies, len(replies))
            return
        self.keeper.log.error(f"JetStream consumer '{self.path}' state can not be synced: {error}")
        self.acks.changes.lost = True
        self.mark_dirty()

    # -- deadlines -------------------------------------------------------------------------------------------------

    def arm_timer(self) -> None:
        """Set the timer to the next deadline, unless the timer already fires at that time or earlier."""
        cdef int64_t now = self.turn.now, best = 0, due = self.acks.pending.next_due()
        wake_by(&best, due + SLACK_NS if due else 0)
        if self.push is None:
            wake_by(&best, self.requests.queue.wake_at)
            wake_by(&best, self.requests.pin.until if self.requests.pin.number else 0)
            wake_by(&best, self.active_at + self.threshold if self.threshold else 0)
        elif self.push.bound:
            wake_by(&best, self.push.sent_at + self.push.heartbeat_ns if self.push.heartbeat_ns else 0)
        else:
            wake_by(&best, self.push.unbound_at + self.threshold if self.threshold else 0)
        wake_by(&best, self.paused_until if self.paused_until > now else 0)
        wake_by(&best, self.pacing.hold_until if self.pacing.hold_until > now else 0)
        if best and self.timer.is_later(best):
            self.timer.arm(max(best, now + 1), self.on_timer, self)

    def on_timer(self) -> None:
        """Handle every deadline that may have passed."""
        cdef int64_t now = self.turn.now
        self.timer.fired()
        if self.life != LIVE:
            return
        if self.acks.pending.expire(now, self.max_deliver):
            self.give_up_expired()
        if self.push is None:
            self.end_waits(now)
        elif self.push.bound and self.push.heartbeat_ns and now - self.push.sent_at >= self.push.heartbeat_ns:
            self.push.sent_at = now
            self.account.send(self.push.subject, b"", self.heartbeat())
            if self.ack_policy == ACK_FLOW and self.acks.pending.count and self.flow.state != FLOW_ASKED:
                self.ask_flow()
        if self.timer.due_ns == self.paused_until:
            self.tell_pause()
        if self.threshold and self.is_abandoned():
            self.turn.expired.append(self)
            return
        self.mark_dirty()

    def end_waits(self, int64_t now) -> None:
        """End expired pull requests, and the pin of a client that did not send a request in time."""
        if self.requests.queue.wake_at and self.requests.queue.wake_at <= now:
            self.sweep_waiting(True)
        if self.requests.pin.number and self.requests.pin.until <= now:
            self.unpin(self.requests.pin.group, "timeout")

    def give_up_expired(self) -> None:
        """Give up deliveries that have reached max_deliver."""
        while self.acks.pending.lists[<uint32_t> IN_EXHAUSTED].head:
            self.give_up(self.acks.pending.lists[<uint32_t> IN_EXHAUSTED].head)

    def is_abandoned(self) -> bool:
        """Return whether the consumer had no interest, requests or pending acks for at least `threshold` ns."""
        cdef int64_t now = self.turn.now, busy_until
        if self.push is not None:
            return not self.push.bound and now - self.push.unbound_at >= self.threshold
        if now - self.active_at < self.threshold:
            return False
        self.sweep_waiting()
        if self.requests.queue.count:
            self.active_at = now
            return False
        busy_until = self.acks.pending.last_deadline() + SLACK_NS
        if busy_until + self.threshold > now:
            self.active_at = busy_until
            return False
        return True

    # -- removals from the stream ----------------------------------------------------------------------------------

    cpdef void dropped(self, uint64_t seq) noexcept:
        """Handle the removal of a message that matches the filters."""
        cdef uint32_t i = self.acks.pending.find(seq)
        if i:
            self.lose(i, GONE)
            self.mark_dirty()
        elif self.acks.n_exhausted == 0 or not self.acks.forget_exhausted(seq):
            self.cursor.dropped(seq)

    def on_purge(self, uint64_t first_seq) -> None:
        """Handle a purge, after which no message below `first_seq` matches the filters; see Interest.concerned."""
        before = self.summary()
        first_seq = max(first_seq, 1)           # 0 if the stream never had a message
        self.cursor.purged(first_seq)
        if self.acks.purge(first_seq, self.store.catalogue, self.ack_policy == ACK_ALL):
            self.acked_at = self.turn.now
        if self.keeper.file is not None and before != self.summary():
            self.acks.changes.lost = True  # a delta cannot express a purge, so the next pump must write a snapshot
        self.mark_dirty()

    def summary(self) -> tuple:
        """Return a tuple of those values of the state that a purge may change."""
        return self.cursor.next_seq, self.acks.floor_seq, self.acks.pending.count, self.acks.n_exhausted

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Return whether message `seq` is in the stream, matches the filters, and is not acknowledged."""
        if not self.cursor.covers(seq):
            return False
        if seq >= self.cursor.next_seq or self.acks.is_unacknowledged(seq):
            return True
        return self.ack_policy != ACK_EXPLICIT and self.letters is None and seq > self.acks.floor_seq

    # -- state -----------------------------------------------------------------------------------------------------

    def dump_state(self, pending=None) -> dict:
        """Return the state for replay.pyx as JSON values; a `pending` that is not None replaces the deliveries."""
        return self.cursor.dump() | self.acks.dump(pending)
