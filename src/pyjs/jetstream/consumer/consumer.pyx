"""A consumer: a stream's messages for those who ask, and the record of what they did with them.

`deliver` is an incoming ack: it settles the delivery at once, in memory. `pump`, called in the turn, has one order of
effects: deliver, record what changed in one small write, then answer acks, hand settled sequences to the stream and
tell events. `deliver_some` sends first what is due again, in sequence order, then the next matches of the filter, to
the waiting requests in turns or to the deliver subject, as long as somebody asks and max_ack_pending has room.

The parts have the state: the cursor what comes next, `acks` what is pending and the ack floor, `requests` the pull
requests and the pin, `push` the deliver subject, `flow` and `pacing` what holds deliveries back, `keeper` the file.
Here is what they do together. Knows the store, not the stream; nothing of API calls and files.

Long because a message, an ack and a deadline each touch most parts. Compiled: per message no object is made and no
Python called (benchmarks/: pull 500, push).
Source: nats.docs "Consumers", ADR-13, ADR-15; behaviour compared in tests/conformance.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer.acks.pending cimport IN_REDELIVER, IN_EXHAUSTED, Entry
from pyjs.jetstream.consumer.acks.queues cimport AckReplies, SettledQueue, send_ack_replies
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
    PUMP_SIZE = 262144              # bytes of one pump, a message counting 64 more
    CROWDED_NS = 10000000           # for which redeliveries wait when their receiver has much queued already
    RETRY_NS = 100000000            # after which a message is read again that could not be for want of descriptors
    SLACK_NS = 1000000              # what is due together expires together
    JITTER_NS = 100000000

POLICIES = {"none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_FLOW}
NEVER_NS = 1 << 62
GONE = "Unacknowledged message was deleted"


cdef inline void wake_by(int64_t* best, int64_t at) noexcept nogil:
    if at and (best[0] == 0 or at < best[0]):
        best[0] = at


cdef class Consumer(StreamConsumer):
    """One consumer; see the module's header."""

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
        self.settling = SettledQueue()
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
        """Whether it does nothing any more."""
        return self.life != LIVE

    # -- configuration ---------------------------------------------------------------------------------------------

    def configure(self, config) -> None:
        """Take over a configuration that the rules allow, new or changed."""
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
        """Take over what is for push consumers only."""
        config = self.config
        if self.push is None:
            self.push = PushSubject()
        heartbeat_ns = taken("idle_heartbeat", config.idle_heartbeat_ns)
        self.push.configure(config.deliver_subject.encode(), config.deliver_group.encode(), heartbeat_ns)

    def configure_pull(self) -> None:
        """Take over what is for pull consumers only."""
        config = self.config
        if self.requests is None:
            max_waiting = taken("max_waiting", config.max_waiting)
            self.requests = PullRequests(self.account, self.writer, self.rng, self.events, max_waiting)
        pin_wait_ns = taken("priority_timeout", config.priority_timeout_ns)
        self.requests.configure(config.priority_policy, config.priority_groups, pin_wait_ns)

    def update(self, config) -> None:
        """Change the configuration of a consumer at work."""
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
        """Take over until when deliveries are paused, by the clock of deadlines."""
        cdef int64_t until = taken("pause_until", self.config.pause_until_ns or 0)      # Go's zero time is before 0
        self.paused_until = until - self.turn.skew if 0 < until < NEVER_NS else until

    def clock_stepped(self) -> None:
        """End a pause by the wall clock as it is now, after it was set."""
        if self.paused_until:
            self.set_pause()
            self.arm_timer()
            self.mark_dirty()

    def tell_pause(self) -> None:
        """Have an advisory tell whether deliveries are paused."""
        until = as_json(self.config).get("pause_until", ZERO_TIME)
        self.events.note("pause", paused=self.paused_until > self.turn.now, pause_until=until)

    # -- life ------------------------------------------------------------------------------------------------------

    def begin(self, start, bint written=False) -> None:
        """Set the cursor of a new consumer; `written`: its file says so already.

        Raises:
            OSError, StoreFailed: its file could not be written.
        """
        self.cursor.begin(start.seq, Skips(start.skips), start.skips_end)
        self.acks.begin(start.seq)
        if self.keeper.file is not None and not written:
            self.keeper.rewrite(self)

    def start(self) -> None:
        """Listen to acks and requests, and begin to deliver."""
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
            self.push.look(account, self.turn.now)
        self.arm_timer()
        self.mark_dirty()

    def close(self) -> None:
        if self.life == LIVE:
            self.life = CLOSED

    def stop(self, str reason) -> None:
        """End: answer waiting requests, listen no more. `reason` is "deleted", "shutdown" or "fault".

        After a fault nothing is written: the state is not to be trusted.
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
            self.requests.end_all(reason == "deleted")
        self.timer.cancel()
        if reason == "shutdown":
            self.settle_turn()
        elif reason == "deleted" and not self.config.direct:
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
        """Take a message on the subject of pull requests; the consumer may have ended since it arrived."""
        if not request.reply:
            return
        if self.life != LIVE:
            self.refuse(request.reply, "409 Consumer Deleted")
            return
        try:
            self.request_next(request.reply, request.payload, request.headers)
        except Exception:
            self.refuse(request.reply, "500 Internal Server Error")
            raise

    def request_next(self, bytes reply, bytes body, bytes headers=b"") -> None:
        """Queue a pull request, or answer it with a status."""
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
        if request.no_wait and not self.serves_at_once(reply, request):
            return
        if self.requests.add(reply, request, self.turn.now):
            self.mark_dirty()
        elif not request.heartbeat_ns:
            self.refuse(reply, "409 Exceeded MaxWaiting")

    def serves_at_once(self, bytes reply, request) -> bool:
        """Refuse a request that does not wait if there are no messages for it; returns whether there are."""
        cdef uint64_t ready = self.cursor.num_pending() + self.acks.pending.n_queued
        if self.paused_until > self.turn.now:
            ready = 0
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
        """Let another client of `group` have the pin; `reason` is "admin" or "timeout"."""
        if self.requests is not None:
            self.requests.unpin(group, reason)
            self.mark_dirty()

    def refuse(self, bytes reply, str text) -> None:
        """Answer a request with a status at once."""
        self.account.send(reply, b"", consumer_status.status(text))

    def sweep_waiting(self, bint at_end=False) -> None:
        """End the pull requests that are over; `at_end`: there are no messages, and some do not wait for more."""
        self.requests.sweep(self.turn.now, at_end, self.heartbeat)

    def heartbeat(self) -> bytes:
        """Return the status that tells that this consumer lives and how far it is."""
        return consumer_status.idle_heartbeat(self.acks.delivered_cseq, self.cursor.next_seq - 1, self.flow.reply)

    # -- push ------------------------------------------------------------------------------------------------------

    def note_interest(self) -> None:
        """Subscriptions to the deliver subject changed; called from inside a SUB."""
        self.push.changed = True
        self.mark_dirty()

    cdef void ask_flow(self) noexcept:
        """Ask the subscriber to confirm what it got, so that no more than a window is on its way."""
        self.flow.ask(self.subjects.flow(random_token(self.rng, 4)))
        self.account.send(self.push.subject, b"", consumer_status.FLOW_CONTROL_REQUEST, self.flow.reply)

    def on_flow(self, request) -> None:
        """Take a confirmation: what it covers is no longer on its way, and the window grows."""
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
        """Settle a delivery; returns whether the ack may be answered."""
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
        elif self.acks.ack(token.seq):
            self.note_settled(token.seq)

    cdef void ack_all(self, uint64_t seq, uint64_t cseq) noexcept nogil:
        """Settle everything up to `seq`."""
        cdef uint32_t i = self.acks.pending.oldest
        while self.is_asked() and i and self.acks.pending.entries[i].seq <= seq:
            self.note_settled(self.acks.pending.entries[i].seq)
            i = self.acks.pending.entries[i].newer
        if self.acks.ack_to(seq, cseq) and self.acks.n_exhausted:
            with gil:
                for each in self.acks.take_exhausted(seq):
                    self.note_settled(each)

    cdef bint rare_ack(self, Msg* m, Verb verb, AckToken* token, bytes argument) noexcept:
        """Take an ack with an argument; returns whether it may be answered."""
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
            self.ack(token)
            reason = argument[1:].strip().decode("utf-8", "replace")
            self.events.note_terminated(token.seq, token.cseq, token.count, reason)
            return True
        except MemoryError:
            return False

    def nak(self, uint64_t seq, uint64_t cseq, uint64_t count, bytes argument) -> None:
        """Have a delivery go out again, at once or after the delay in `argument`."""
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
        """Have a metric tell of an ack, for the configured share of acks."""
        cdef uint32_t i = self.acks.pending.find(token.seq)
        if i == 0 or (self.sample_percent < 100 and self.rng.below(100) >= self.sample_percent):
            return
        took_ns = self.turn.now - self.acks.pending.entries[i].sent_at
        self.events.note("ack", consumer_seq=token.cseq, stream_seq=token.seq, ack_time=took_ns,
                         deliveries=token.count)

    cdef void note_settled(self, uint64_t seq) noexcept nogil:
        """Remember for the stream that this consumer needs `seq` no more."""
        if self.is_asked():
            self.settling.add(seq)

    cdef bint is_asked(self) noexcept nogil:
        """Whether the stream wants to know what is settled; not while the log is repeated."""
        return self.inbox is not None and self.inbox.asks

    cpdef list take_settled(self, size_t most):
        cdef list seqs = self.settling.take(most)
        if self.settling.count and self.inbox is not None:
            self.inbox.has_settled(self)
        return seqs

    # -- deliveries ------------------------------------------------------------------------------------------------

    cdef bint has_demand(self) noexcept nogil:
        if self.paused_until > self.turn.now:
            return False
        if self.push is None:
            return self.requests.queue.head != NULL
        return self.push.bound and self.flow.has_room()

    cdef Outcome deliver_some(self) noexcept nogil:
        """Deliver as much as one pump may; returns why it ends."""
        cdef int64_t budget = PUMP_SIZE
        cdef Outcome outcome
        cdef uint32_t i
        self.pacing.hold_until = 0
        while self.has_demand():
            if budget <= 0:
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
        """Deliver what is due again; what can not be any more is settled."""
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
        """Deliver the next match."""
        cdef Record r
        cdef Outcome outcome
        cdef uint64_t seq, unread
        cdef int failed
        self.cursor.refresh()
        seq = self.cursor.find()
        if seq == 0 or self.acks.pending.reserve() < 0:
            return AT_END
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
            self.note_settled(seq)
        return SENT

    cdef Outcome hold(self, int64_t until) noexcept nogil:
        """Deliver nothing before `until`."""
        self.pacing.hold_until = until
        return HELD

    cdef Outcome send(self, Record* r, uint32_t count, uint64_t unread, int64_t* budget) noexcept nogil:
        """Send one message to whoever is next."""
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
        """Send a message to the deliver subject."""
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
        """Give up a delivery that was sent as often as allowed: it stays unacknowledged."""
        seq = self.acks.pending.entries[i].seq
        count = self.acks.give_up(seq)
        self.events.note("max_deliver", stream_seq=seq, deliveries=count)

    cdef void lose(self, uint32_t i, str reason) noexcept:
        """Give up a delivery whose message is gone."""
        cdef Entry* e = &self.acks.pending.entries[i]
        seq, cseq, count = e.seq, e.cseq, e.count
        self.acks.settle(i)
        self.acked_at = self.turn.now
        self.acks.changes.acked(seq)
        self.events.note_terminated(seq, cseq, count, reason)

    # -- the turn --------------------------------------------------------------------------------------------------

    cpdef void wake(self, uint64_t seq) noexcept:
        """There are new messages; from where the last search ended to `seq` (unless that is 0) none is a match."""
        self.mark_dirty()
        self.cursor.woken(seq)

    def pump(self) -> None:
        """Deliver, record, answer: everything this consumer has to do in a turn."""
        cdef Outcome outcome
        self.dirty = False
        if self.life != LIVE or self.keeper.state == REWRITING:     # `resume` follows
            return
        if self.keeper.wants_rewrite():
            self.keeper.rewrite_later(self)
            return
        if self.replies.size or self.events.queued:
            self.settle_turn()
            if self.keeper.state == REWRITING:
                return
        if self.push is not None and self.push.changed:
            self.push.look(self.account, self.turn.now)
        if self.store.changing:                 # a purge is under way: what it removes is neither shown nor missed
            self.dirty = True
            self.turn.held.append(self)
            return
        if self.orders:
            orders, self.orders = self.orders, []
            for reply, body in orders:
                self.request_next(reply, body)
        outcome = self.deliver_some()
        if outcome == OUT_OF_BUDGET:
            self.mark_dirty()
        elif outcome == AT_END or outcome == DECLINED:
            self.caught_up()
        self.settle_turn()

    def caught_up(self) -> None:
        """No more messages: end the requests that do not wait, and ask to be woken for the others."""
        if self.requests is not None and self.requests.queue.no_wait:
            self.sweep_waiting(True)
        if self.inbox is not None and self.has_demand():
            self.inbox.caught_up(self)

    def settle_turn(self) -> None:
        """Record what changed, then let everybody know who waits for that."""
        cdef int64_t now = self.turn.now + self.turn.skew
        if not self.keeper.record(self):
            self.replies.size = 0
        if self.events.queued:
            self.events.send_queued(now, ("nak",))
        self.send_replies()
        if self.events.queued:
            self.events.send_queued(now)
        if self.settling.count and self.inbox is not None:
            self.inbox.has_settled(self)
        self.acks.pending.shrink()
        if self.life == LIVE:
            self.arm_timer()

    def send_replies(self) -> None:
        """Answer the acks that asked for it, or have that done when they are on the medium."""
        if self.replies.size and self.keeper.sync_always:
            self.keeper.file.when_synced(partial(self.confirm, self.replies.take()))
        elif self.replies.size:
            self.replies.send(self.account)

    def confirm(self, bytes replies, error) -> None:
        """Answer acks that have been synced; those that have not may be sent again, to a state kept anew."""
        if error is None:
            send_ack_replies(self.account, replies, len(replies))
            return
        self.keeper.log.error(f"JetStream consumer '{self.path}' state can not be synced: {error}")
        self.acks.changes.lost = True
        self.mark_dirty()

    # -- deadlines -------------------------------------------------------------------------------------------------

    def arm_timer(self) -> None:
        """Be called at the next deadline; a timer that is early enough stays."""
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
        if self.paused_until > now:
            wake_by(&best, self.paused_until)
        if self.pacing.hold_until > now:
            wake_by(&best, self.pacing.hold_until)
        if best and self.timer.is_later(best):
            self.timer.arm(max(best, now + 1), self.on_timer, self)

    def on_timer(self) -> None:
        """Look at every deadline that may have passed."""
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
        """End what pull requests waited for until now, and the pin of a client that did not ask again."""
        if self.requests.queue.wake_at and self.requests.queue.wake_at <= now:
            self.sweep_waiting(True)
        if self.requests.pin.number and self.requests.pin.until <= now:
            self.unpin(self.requests.pin.group, "timeout")

    def give_up_expired(self) -> None:
        """Give up what was delivered as often as allowed."""
        while self.acks.pending.lists[<uint32_t> IN_EXHAUSTED].head:
            self.give_up(self.acks.pending.lists[<uint32_t> IN_EXHAUSTED].head)

    def is_abandoned(self) -> bool:
        """Tell whether nobody has cared for longer than inactive_threshold, nor may still be at work."""
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
        """A message that the filters match is gone."""
        cdef uint32_t i = self.acks.pending.find(seq)
        if i:
            self.lose(i, GONE)
            self.mark_dirty()
        elif self.acks.n_exhausted == 0 or not self.acks.forget_exhausted(seq):
            self.cursor.dropped(seq)

    def on_purge(self, uint64_t first_seq) -> None:
        """Everything before `first_seq` is gone, and perhaps more."""
        before = self.summary()
        first_seq = max(first_seq, 1)           # 0 of a stream that never had a message
        self.cursor.purged(first_seq)
        if self.acks.purge(first_seq, self.store.catalogue):
            self.acked_at = self.turn.now
        if self.keeper.file is not None and before != self.summary():
            self.acks.changes.lost = True       # no change tells this: the next pump keeps the whole state
        self.mark_dirty()

    def summary(self) -> tuple:
        """Return what a purge may change of the state."""
        return self.cursor.next_seq, self.acks.floor_seq, self.acks.pending.count, self.acks.n_exhausted

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Tell whether the message is for this consumer and not settled yet."""
        if self.store.catalogue.next_seq(seq, self.cursor.filter) != seq:
            return False
        if seq >= self.cursor.next_seq or self.acks.is_unsettled(seq):
            return True
        return self.ack_policy != ACK_EXPLICIT and seq > self.acks.floor_seq

    # -- state -----------------------------------------------------------------------------------------------------

    def dump_state(self, pending=None) -> dict:
        """Return everything that replay.pyx needs to go on from here; `pending` stands for the deliveries."""
        return {
            "next_seq": self.cursor.next_seq,
            "delivered": [self.acks.delivered_cseq, self.acks.delivered_seq],
            "floor": [self.acks.floor_cseq, self.acks.floor_seq],
            "pending": self.acks.pending.dump() if pending is None else pending,
            "spent": list(self.acks.exhausted.items()),
            "skips": self.cursor.skips.state(),
            "skips_end": self.cursor.skips_end,
        }
