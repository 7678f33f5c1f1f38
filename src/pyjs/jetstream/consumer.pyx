"""A consumer: a stream's messages for those who ask, and the record of what they did with them.

Adds to the message path (consumer_core.pyx) all that happens around it: requests, the turn, deadlines, interest,
removals, recovery. `pump`, called in the turn, has one order of effects: deliver, record what changed in one small
write, then answer acks, hand settled sequences to the stream and tell events.

Knows the store, not the stream; nothing of API calls and files (`file` keeps what consumer_record.py gives it).
Nothing here runs per message; compiled because it shares its state with the message path (benchmarks/: pull 500).
Long because one consumer's requests, turn and recovery change one state.

Source: nats.docs "Consumers", ADR-13, ADR-15; behaviour compared in tests/conformance.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.jetstream.consumer_core cimport (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    PRIORITY_NONE,
    PRIORITY_OVERFLOW,
    PRIORITY_PINNED,
    PRIORITY_PRIORITIZED,
    SETTLED_PER_PUMP,
    STOP_BUDGET,
    STOP_END,
    ConsumerCore,
    Stop,
)
from pyjs.jetstream.consumer_log cimport NAKED, SPENT, StateLog
from pyjs.jetstream.pending cimport IN_SPENT, Entry, PendingAcks
from pyjs.jetstream.skips cimport Skips
from pyjs.jetstream.waiting cimport Waiting, WaitingQueue
from pyjs.store.index cimport index_live
from pyjs.wire.ops cimport Msg

from functools import partial

from pyjs.base.bounds import taken
from pyjs.base.gotext import ZERO_TIME
from pyjs.base.nuid import nuid, short_hash
from pyjs.base.nuid import token as random_token
from pyjs.jetstream import consumer_record, consumer_status
from pyjs.jetstream.consumer_advisories import ConsumerEvents
from pyjs.jetstream.consumer_orders import read_percent
from pyjs.jetstream.level import needs_higher_level
from pyjs.jetstream.pull_request import RefusedPull, check_pull, read_pull
from pyjs.jetstream.state_change import StateChange

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    LINE_ROOM = 160                 # behind the ack prefix: token, header length, size
    FLOW_WINDOW_FIRST = 2097152     # bytes
    FLOW_WINDOW_LAST = 33554432
    SLACK_NS = 1000000              # what is due together expires together
    JITTER_NS = 100000000
    NO_PIN = 0xffffffff             # the number of pins that are not there any more

POLICIES = {"none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_ALL}
PRIORITIES = {
    "none": PRIORITY_NONE,
    "overflow": PRIORITY_OVERFLOW,
    "pinned_client": PRIORITY_PINNED,
    "prioritized": PRIORITY_PRIORITIZED,
}
NEVER_NS = 1 << 62
GONE = "Unacknowledged message was deleted"


cdef class Consumer(ConsumerCore):
    """One consumer; see the module's header."""

    def __init__(self, seat, config, str name, int64_t created_ns, file=None):
        cdef bytes prefix
        account_hash = short_hash(seat.account.name)
        self.stream_name = seat.stream_name
        self.name = name
        self.path = f"{seat.account.name} > {seat.stream_name} > {name}"
        self.created_ns = created_ns
        self.account = seat.account
        self.turn = seat.account.turn
        self.store = seat.store
        self.timers = seat.timers
        self.rng = seat.rng
        self.log = seat.log
        self.file = file
        self.sync_always = seat.sync_always and file is not None
        self.metadata = seat.metadata
        self.events = ConsumerEvents(seat.account, seat.rng, seat.stream_name, name, seat.domain)
        self.changes = StateLog(file is not None)
        self.burst_size = seat.burst_size
        self.subscriptions = []
        self.flow_id = self.pin_id = b""
        self.pin_group = ""
        self.names = (
            f"{seat.stream_name}.{name}",
            f"{seat.domain or '_'}.{account_hash}.{seat.stream_name}.{name}",
        )
        self.domain = seat.domain
        self.shown_names = self.names[seat.ack_v2]
        prefix = f"$JS.ACK.{self.shown_names}.".encode()
        self.prefix2 = f"$JS.ACK.{self.names[not seat.ack_v2]}.".encode()
        self.prefix2_len = <uint32_t> len(self.prefix2)
        self.prefix_len = <uint32_t> len(prefix)
        self.line = <char*> malloc(self.prefix_len + LINE_ROOM)
        if self.line == NULL:
            raise MemoryError
        memcpy(self.line, <const char*> prefix, self.prefix_len)
        self.pending = PendingAcks()
        self.configure(config)

    def __str__(self) -> str:
        return f"consumer '{self.path}'"

    # -- configuration ---------------------------------------------------------------------------------------------

    def configure(self, config) -> None:
        """Take over a configuration that the rules allow, new or changed."""
        self.config = config
        self.filters = tuple([subject.encode() for subject in config.filters])
        self.filter = self.store.make_filter(self.filters)
        self.push = config.push
        self.headers_only = config.headers_only
        self.ack_policy = POLICIES[config.ack_policy]
        self.acks_by_flow = config.ack_policy == "flow_control"
        self.max_ack_pending = config.max_ack_pending
        self.max_deliver = taken("max_deliver", config.max_deliver)
        self.sample_percent = read_percent(config.sample_freq)
        self.deliver_subject = config.deliver_subject.encode()
        self.dest = self.deliver_subject
        self.dest_len = <uint32_t> len(self.deliver_subject)
        self.flow_window = (self.flow_window or FLOW_WINDOW_FIRST) if config.flow_control else 0
        rate_bps = taken("rate_limit_bps", config.rate_limit_bps)
        if self.rate_bps != rate_bps:
            self.rate_bps, self.burst_at = rate_bps, 0
        waits = [taken("backoff", each) for each in config.backoff_ns] or [taken("ack_wait", config.ack_wait_ns)]
        self.pending.set_waits([NEVER_NS] if self.acks_by_flow else waits)
        self.set_pause()
        self.heartbeat_ns = taken("idle_heartbeat", config.idle_heartbeat_ns)
        self.pin_wait_ns = taken("priority_timeout", config.priority_timeout_ns)
        self.threshold = taken("inactive_threshold", config.inactive_threshold_ns)
        if self.threshold and not self.push:
            self.threshold += JITTER_NS * (1 + self.rng.below(10))
        if self.waiting is None and not self.push:
            self.waiting = WaitingQueue(taken("max_waiting", config.max_waiting))
        self.priority = PRIORITIES[config.priority_policy]
        if self.priority != PRIORITY_PINNED:
            self.pin, self.pin_id, self.pinned_at = 0, b"", 0
        if self.waiting is not None:
            self.waiting.by_priority = self.priority == PRIORITY_PRIORITIZED
        self.unread_stale = True
        self.end_seq = 0

    def update(self, config) -> None:
        """Change the configuration of a consumer at work."""
        moved = self.config.deliver_subject != config.deliver_subject
        paused = self.config.pause_until_ns != config.pause_until_ns
        if moved:
            self.account.unwatch_interest(self.deliver_subject, self.note_interest)
            self.requeue_all()
        self.configure(config)
        if moved:
            self.account.watch_interest(self.deliver_subject, self.note_interest)
            self.interest_changed = True
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

    def requeue_all(self) -> None:
        """Have every pending delivery go out again."""
        for seq, *_ in self.pending.dump():
            self.pending.requeue(self.pending.find(seq))
            self.changes.put(NAKED, seq, 0)

    def tell_pause(self) -> None:
        """Have an advisory tell whether deliveries are paused."""
        until = self.config.as_json().get("pause_until", ZERO_TIME)
        self.advisories.append(("pause", {"paused": self.paused_until > self.turn.now, "pause_until": until}))

    # -- life ------------------------------------------------------------------------------------------------------

    def begin(self, start, bint written=False) -> None:
        """Set the cursor of a new consumer; `written`: its file says so already."""
        self.next_seq = start.seq
        self.delivered_seq = self.floor_seq = start.seq - 1
        self.skips, self.skips_end = Skips(start.skips), start.skips_end
        if self.file is not None and not written:
            consumer_record.rewrite(self)

    def take_count(self, uint64_t unread, uint64_t counted_to) -> None:
        """Believe that `unread` matches lie between the cursor, which is at the first message, and `counted_to`.

        Whoever counted saw nothing removed since; what is removed but not told yet was not there any more.
        """
        if self.next_seq <= self.store.catalogue.first_seq and self.store.catalogue.drops.size == 0 \
                and self.skips.left == 0:
            self.unread, self.counted_to, self.unread_stale = unread, counted_to, False

    def start(self) -> None:
        """Listen to acks and requests, and begin to deliver."""
        account = self.account
        subscriptions = []
        for api in ("$JS.API", f"$JS.{self.domain}.API") if self.domain else ("$JS.API",):
            subject = f"{api}.CONSUMER.MSG.NEXT.{self.names[0]}".encode()
            subscriptions.append(account.subscribe_handler(subject, self.on_next))
        if self.ack_policy != ACK_NONE and not self.acks_by_flow:
            subscriptions += [account.subscribe(f"$JS.ACK.{names}.>".encode(), self) for names in self.names]
        if self.config.flow_control:
            subscriptions.append(account.subscribe_handler(f"$JS.FC.{self.shown_names}.*".encode(), self.on_flow))
        self.subscriptions = subscriptions
        self.active_at = self.unbound_at = self.sent_at = self.turn.now
        if self.config.replay_policy == "original":
            self.replay_to = self.store.catalogue.last_seq
        if self.push:
            account.watch_interest(self.deliver_subject, self.note_interest)
            self.check_interest()
        self.arm_timer()
        self.mark_dirty()

    def close(self) -> None:
        self.closed = True

    def stop(self, str reason) -> None:
        """End: answer waiting requests, listen no more. `reason` is "deleted", "shutdown" or "fault".

        After a fault nothing is written: the state is not to be trusted.
        """
        if self.left:
            return
        self.left = self.closed = True
        self.expired = None                     # it holds this consumer
        for subscription in self.subscriptions:
            self.account.unsubscribe(subscription)
        self.subscriptions = []
        if self.push:
            self.account.unwatch_interest(self.deliver_subject, self.note_interest)
        while self.waiting is not None and self.waiting.head != NULL:
            if reason == "deleted":
                self.account.send(self.head_reply(), b"", consumer_status.status(b"409 Consumer Deleted"))
                self.waiting.drop_head()
            else:
                self.end_head(b"409 Server Shutdown")
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if reason == "shutdown":
            self.settle_turn()
        elif reason == "deleted" and not self.config.direct:
            self.events.send("deleted", self.turn.now + self.turn.skew, action="delete")

    # -- requests --------------------------------------------------------------------------------------------------

    def on_next(self, request) -> None:
        """Take a message on the subject of pull requests; the consumer may have ended since it arrived."""
        if not request.reply:
            return
        if self.closed:
            self.refuse(request.reply, "409 Consumer Deleted")
            return
        try:
            self.request_next(request.reply, request.payload, request.headers)
        except Exception:
            self.refuse(request.reply, "500 Internal Server Error")
            raise

    def request_next(self, bytes reply, bytes body, bytes headers=b"") -> None:
        """Queue a pull request, or answer it with a status."""
        cdef uint64_t ready
        if self.push:
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
        if self.pin and request.pin_id:
            if request.pin_id != self.pin_id.decode():
                self.refuse(reply, "423 Nats-Pin-Id mismatch")
                return
            self.pin_until = self.turn.now + self.pin_wait_ns
        if self.waiting.count >= self.waiting.max:
            self.sweep_waiting()
        if request.no_wait:
            ready = self.num_pending() + self.pending.n_queued
            if self.paused_until > self.turn.now:
                ready = 0
            if ready == 0 and not request.expires_ns:
                self.refuse(reply, "404 No Messages")
                return
            if ready and self.waiting.count:
                self.sweep_waiting()
                if ready < <uint64_t> self.waiting.wanted():
                    self.refuse(reply, "408 Requests Pending")
                    return
        if self.waiting.add(reply, request.batch, request.max_bytes, request.no_wait, self.turn.now,
                            request.expires_ns, request.heartbeat_ns, request.priority):
            if self.priority == PRIORITY_OVERFLOW or self.priority == PRIORITY_PINNED:
                self.join_group(request)
            self.mark_dirty()
        elif not request.heartbeat_ns:
            self.refuse(reply, "409 Exceeded MaxWaiting")

    def join_group(self, request) -> None:
        """Note under which conditions the request queued last is served."""
        cdef Waiting* w = self.waiting.tail
        w.grouped = bool(request.group)
        w.min_pending, w.min_ack_pending = request.min_pending, request.min_ack_pending
        if request.pin_id:
            w.pin = self.pin if self.pin else NO_PIN

    cdef void assign_pin(self, Waiting* w) noexcept:
        self.pins += 1
        self.pin = w.pin = self.pins
        self.pin_id = nuid(self.rng).encode()
        memcpy(self.pin_text, <const char*> self.pin_id, sizeof(self.pin_text))
        self.pin_group = self.config.priority_groups[0]
        self.pinned_at = self.turn.now
        self.pin_until = self.turn.now + self.pin_wait_ns
        fields = {"account": self.account.name, "group": self.pin_group, "pinned_id": self.pin_id.decode()}
        self.advisories.append(("pinned", fields))

    def unpin(self, str group, str reason) -> None:
        """Let another client of `group` have the pin; `reason` is "admin" or "timeout"."""
        self.pin = 0
        self.pin_id = b""
        self.pinned_at = 0
        self.advisories.append(("unpinned", {"account": self.account.name, "group": group, "reason": reason}))
        self.mark_dirty()

    def refuse(self, bytes reply, str text) -> None:
        """Answer a request with a status at once."""
        self.account.send(reply, b"", consumer_status.status(text))

    cdef bytes head_reply(self):
        return self.waiting.head.reply[:self.waiting.head.reply_len]

    cdef void end_head(self, bytes text) noexcept:
        """End the first waiting request with a status that tells what it did not get."""
        cdef Waiting* w = self.waiting.head
        reply = self.head_reply()
        body = consumer_status.ended(text, w.left, w.bytes_left)
        self.waiting.drop_head()
        self.account.send(reply, b"", body)

    def sweep_waiting(self, bint at_end=False) -> None:
        """Drop requests that expired or that nobody listens for any more; send heartbeats that are due.

        `at_end`: there are no messages, which ends the requests that do not wait for more.
        """
        cdef Waiting* before = NULL
        cdef Waiting* w = self.waiting.head
        cdef Waiting* after
        cdef int64_t now = self.turn.now
        self.waiting.wake_at = 0
        while w != NULL:
            after = w.next
            reply, last = w.reply[:w.reply_len], b""
            if w.expires_at and w.expires_at <= now:
                last = consumer_status.ended(b"408 Request Timeout", w.left, w.bytes_left)
            elif at_end and w.no_wait and (w.expires_at == 0 or w.delivered > 0):
                last = consumer_status.NO_MESSAGES
            if last or not self.account.has_interest(reply):
                self.waiting.remove(before, w)
                if last:
                    self.account.send(reply, b"", last)
            else:
                if w.heartbeat_at and w.heartbeat_at <= now:
                    w.heartbeat_at = now + w.heartbeat_ns
                    self.send_heartbeat(reply)
                self.waiting.note_time(w)
                before = w
            w = after

    def send_heartbeat(self, bytes dest) -> None:
        """Tell a receiver that this consumer lives and how far it is."""
        body = consumer_status.idle_heartbeat(self.delivered_cseq, self.next_seq - 1, self.flow_id)
        self.account.send(dest, b"", body)

    # -- push ------------------------------------------------------------------------------------------------------

    def note_interest(self) -> None:
        """Subscriptions to the deliver subject changed; called from inside a SUB."""
        self.interest_changed = True
        self.mark_dirty()

    def check_interest(self) -> None:
        """Find out whether anybody listens on the deliver subject: a wildcard that matches it does not count."""
        self.interest_changed = False
        group = self.config.deliver_group.encode()
        was, self.bound = self.bound, False
        for subscription in self.account.subs.match(self.deliver_subject):
            if subscription.subject == self.deliver_subject and subscription.queue == group:
                self.bound = True
        if was and not self.bound:
            self.unbound_at = self.turn.now
        elif self.bound and not was:
            self.sent_at = self.turn.now

    cdef void ask_flow(self) noexcept:
        """Ask the subscriber to confirm what it got, so that no more than a window is on its way."""
        suffix = random_token(self.rng, 4)
        self.flow_id = f"$JS.FC.{self.shown_names}.{suffix}".encode()
        self.flow_asked = True
        self.flow_sent = self.flow_pending
        self.account.send(self.deliver_subject, b"", consumer_status.FLOW_CONTROL_REQUEST, self.flow_id)

    def on_flow(self, request) -> None:
        """Take a confirmation: what it covers is no longer on its way, and the window grows."""
        if request.subject != self.flow_id:
            return
        self.flow_window = min(self.flow_window * 2, FLOW_WINDOW_LAST)
        self.flow_pending = max(self.flow_pending - self.flow_sent, 0)
        self.flow_id, self.flow_sent, self.flow_asked = b"", 0, False
        if self.acks_by_flow:
            seq, cseq = consumer_status.read_progress(request.headers)
            if self.floor_seq < seq < self.next_seq and cseq > self.floor_cseq:
                self.acked_at = self.turn.now
                self.ack_all(seq, min(cseq, self.delivered_cseq))
        self.mark_dirty()

    # -- the turn --------------------------------------------------------------------------------------------------

    cpdef void wake(self, uint64_t seq) noexcept:
        """There are new messages; from where the last search ended to `seq` (unless that is 0) none is a match."""
        self.waits = False
        self.mark_dirty()
        if seq == 0 or self.end_seq == 0 or self.end_seq + 1 != self.next_seq or self.skips.left:
            return
        if seq > self.next_seq:
            self.next_seq = seq
            if self.unread == 0 and not self.unread_stale:
                self.counted_to = max(self.counted_to, seq - 1)

    def pump(self) -> None:
        """Deliver, record, answer: everything this consumer has to do in a turn."""
        cdef Stop stop
        self.dirty = False
        if self.closed or self.keeping:         # `kept` calls again
            return
        if self.changes.lost and self.file is not None and self.metadata is not None and not self.kept_badly:
            self.keep_whole()                   # before anything else happens that the state does not say
            return
        if self.replies_len or self.advisories:
            self.settle_turn()
            if self.keeping:
                return
        if self.interest_changed:
            self.check_interest()
        if self.store.changing:                 # a purge is under way: what it removes is neither shown nor missed
            self.dirty = True
            self.turn.held.append(self)
            return
        orders, self.orders = self.orders, []
        for reply, body in orders:
            self.request_next(reply, body)
        stop = self.deliver_some()
        if stop == STOP_BUDGET:
            self.mark_dirty()
        elif stop == STOP_END:
            self.caught_up()
        self.settle_turn()

    def caught_up(self) -> None:
        """No more messages: end the requests that do not wait, and ask to be woken for the others."""
        if self.waiting is not None and self.waiting.no_wait:
            self.sweep_waiting(True)
        if not self.waits and self.wait is not None and self.has_demand():
            self.waits = True
            self.wait()

    def settle_turn(self) -> None:
        """Record what changed, then let everybody know who waits for that."""
        if self.file is not None and not self.write_state():
            self.replies_len = 0
        self.tell(("nak",))
        self.send_replies()
        self.tell(())
        if self.n_settling:
            self.hand_over(SETTLED_PER_PUMP)
        self.pending.shrink()
        if not self.closed:
            self.arm_timer()

    def tell(self, tuple kinds) -> None:
        """Publish the events of `kinds`, of all kinds when there are none."""
        if not self.advisories:
            return
        events = [event for event in self.advisories if not kinds or event[0] in kinds]
        self.advisories = [event for event in self.advisories if kinds and event[0] not in kinds]
        for kind, fields in events:
            self.events.send(kind, self.turn.now + self.turn.skew, **fields)

    def keep_whole(self) -> None:
        """Start a rewrite of the whole state; deliver, settle and answer nothing until it ends.

        Raises:
            OSError: it cannot be.
        """
        if self.metadata is None or self.kept_badly:
            consumer_record.rewrite(self)
            return
        state = self.file.next_state(consumer_record.snapshot_of(self))
        self.changes.take()
        self.changes.lost = False               # what comes now goes behind the new state
        self.keeping = True
        self.metadata.submit(StateChange(state), partial(self.kept, state))

    def kept(self, state, failure) -> None:
        """Go on behind the new state; if it is not durable the next one is written at once."""
        self.keeping = False
        if self.closed:
            return
        if failure is None:
            self.file.took(state)
        else:
            self.log.error(f"JetStream consumer '{self.path}' state can not be written: {failure}")
            self.changes.lost = self.kept_badly = True
        self.mark_dirty()

    def write_state(self) -> bool:
        """Keep what changed; False: it could not be written."""
        if self.keeping:                        # the server ends without waiting for it
            return False
        try:
            consumer_record.record(self)
        except (OSError, consumer_record.StoreFailed) as error:
            self.log.error(f"JetStream consumer '{self.path}' state can not be written: {error}")
            return False
        self.kept_badly = False
        return True

    def send_replies(self) -> None:
        """Answer the acks that asked for it, or have that done when they are on the medium."""
        if self.replies_len and self.sync_always:
            self.file.when_synced(partial(self.confirm, self.replies[:self.replies_len]))
        elif self.replies_len:
            self.publish_replies(self.replies, self.replies_len)
        self.replies_len = 0

    def confirm(self, bytes replies, error) -> None:
        """Answer acks that have been synced; those that have not may be sent again, to a state kept anew."""
        if error is None:
            self.publish_replies(replies, len(replies))
            return
        self.log.error(f"JetStream consumer '{self.path}' state can not be synced: {error}")
        self.changes.lost = True
        self.mark_dirty()

    cdef void publish_replies(self, const char* replies, size_t end) noexcept:
        cdef size_t at = 0
        cdef uint32_t n = 0
        cdef Msg m
        m.reply, m.reply_len, m.header_len, m.size = NULL, 0, 0, 0
        m.body = m.tail = b"0\r\n"
        m.tail_len = 3
        m.split, m.aliased, m.origin, m.whole = True, False, NULL, NULL
        while at < end:
            memcpy(&n, replies + at, sizeof(uint32_t))
            m.subject, m.subject_len = replies + at + sizeof(uint32_t), n
            self.account.publish(&m)
            at += sizeof(uint32_t) + n

    # -- deadlines -------------------------------------------------------------------------------------------------

    cdef void wake_by(self, int64_t* best, int64_t at) noexcept nogil:
        if at and (best[0] == 0 or at < best[0]):
            best[0] = at

    def arm_timer(self) -> None:
        """Be called at the next deadline; a timer that is early enough stays."""
        cdef int64_t best = 0, due = self.pending.next_due()
        self.wake_by(&best, due + SLACK_NS if due else 0)
        if self.waiting is not None:
            self.wake_by(&best, self.waiting.wake_at)
        elif self.bound and self.heartbeat_ns:
            self.wake_by(&best, self.sent_at + self.heartbeat_ns)
        if self.threshold and not (self.push and self.bound):
            self.wake_by(&best, (self.unbound_at if self.push else self.active_at) + self.threshold)
        if self.paused_until > self.turn.now:
            self.wake_by(&best, self.paused_until)
        if self.hold_until > self.turn.now:
            self.wake_by(&best, self.hold_until)
        if self.pin:
            self.wake_by(&best, self.pin_until)
        if best == 0 or (self.timer is not None and self.timer_at <= best):
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = max(best, self.turn.now + 1)
        self.timer = self.timers.at(self.timer_at, self.on_timer, self)

    def on_timer(self) -> None:
        """Look at every deadline that may have passed."""
        cdef int64_t now = self.turn.now
        self.timer = None
        if self.closed:
            return
        if self.pending.expire(now, self.max_deliver):
            self.spend_expired()
        if self.waiting is not None:
            if self.waiting.wake_at and self.waiting.wake_at <= now:
                self.sweep_waiting(True)
        elif self.bound and self.heartbeat_ns and now - self.sent_at >= self.heartbeat_ns:
            self.sent_at = now
            self.send_heartbeat(self.deliver_subject)
            if self.acks_by_flow and self.pending.count and not self.flow_asked:
                self.ask_flow()
        if self.pin and self.pin_until <= now:
            self.unpin(self.pin_group, "timeout")
        if self.timer_at == self.paused_until:
            self.tell_pause()
        if self.threshold and self.is_abandoned():
            self.expired()
            return
        self.mark_dirty()

    def is_abandoned(self) -> bool:
        """Tell whether nobody has cared for longer than inactive_threshold, nor may still be at work."""
        cdef int64_t now = self.turn.now, busy_until = 0
        cdef uint32_t i
        if self.push:
            return not self.bound and now - self.unbound_at >= self.threshold
        if now - self.active_at < self.threshold:
            return False
        self.sweep_waiting()
        if self.waiting.count:
            self.active_at = now
            return False
        i = self.pending.oldest
        while i:
            busy_until = max(busy_until, self.pending.deadline(i) + SLACK_NS)
            i = self.pending.entries[i].newer
        if busy_until + self.threshold > now:
            self.active_at = busy_until
            return False
        return True

    def spend_expired(self) -> None:
        """Give up what was delivered as often as allowed."""
        cdef uint32_t i = self.pending.lists[<uint32_t> IN_SPENT].head
        while i:
            self.spend(i)
            i = self.pending.lists[<uint32_t> IN_SPENT].head

    cdef void spend(self, uint32_t i) noexcept:
        """Give up a delivery for good: it stays unacknowledged, and the floors stay where they are."""
        cdef Entry* e = &self.pending.entries[i]
        seq, count = e.seq, e.count
        self.pending.remove(i)
        self.spent[seq] = count
        self.n_spent = <uint32_t> len(self.spent)
        self.changes.put(SPENT, seq, 0)
        self.advisories.append(("max_deliver", {"stream_seq": seq, "deliveries": count}))

    # -- removals from the stream ----------------------------------------------------------------------------------

    cdef void lose(self, uint32_t i, str reason) noexcept:
        """Give up a delivery whose message is gone."""
        cdef Entry* e = &self.pending.entries[i]
        seq, cseq, count = e.seq, e.cseq, e.count
        self.settle_entry(i)
        self.acked_at = self.turn.now
        self.changes.acked(seq)
        self.note_terminated(seq, cseq, count, reason)

    cpdef void dropped(self, uint64_t seq) noexcept:
        """A message that the filters match is gone."""
        cdef uint32_t i = self.pending.find(seq)
        if i:
            self.lose(i, GONE)
            self.mark_dirty()
        elif self.n_spent and self.spent.pop(seq, None) is not None:
            self.n_spent -= 1
        elif seq >= self.next_seq and not self.unread_stale and seq <= self.counted_to:
            if self.skips.left:
                self.unread_stale = True
            elif self.unread:
                self.unread -= 1

    def on_purge(self, uint64_t first_seq) -> None:
        """Everything before `first_seq` is gone, and perhaps more."""
        cdef uint32_t i = self.pending.oldest, newer
        cdef tuple before = (self.next_seq, self.floor_seq, self.pending.count, self.n_spent)
        self.unread_stale = True
        first_seq = max(first_seq, 1)           # 0 of a stream that never had a message
        self.next_seq = max(self.next_seq, first_seq)
        while i:
            newer = self.pending.entries[i].newer
            if index_live(&self.store.catalogue.index, self.pending.entries[i].seq) == NULL:
                self.pending.remove(i)
                self.acked_at = self.turn.now
            i = newer
        self.spent = {seq: count for seq, count in self.spent.items() if seq >= first_seq}
        self.n_spent = <uint32_t> len(self.spent)
        if self.pending.count == 0:
            self.delivered_seq = max(self.delivered_seq, first_seq - 1)
            self.floor_seq, self.floor_cseq = self.delivered_seq, self.delivered_cseq
        elif self.floor_seq < first_seq - 1:
            self.floor_seq = first_seq - 1
            self.floor_cseq = max(self.floor_cseq, self.pending.entries[self.pending.oldest].cseq - 1)
        if self.file is not None and before != (self.next_seq, self.floor_seq, self.pending.count, self.n_spent):
            self.changes.lost = True            # no change tells this: the next pump keeps the whole state
        self.mark_dirty()

    cpdef bint needs(self, uint64_t seq) noexcept:
        """Tell whether the message is for this consumer and not settled yet."""
        if self.store.catalogue.next_seq(seq, self.filter) != seq:
            return False
        if seq >= self.next_seq or self.pending.find(seq) or (self.n_spent and seq in self.spent):
            return True
        return self.ack_policy != ACK_EXPLICIT and seq > self.floor_seq

    # -- state -----------------------------------------------------------------------------------------------------

    def num_pending(self) -> int:
        """Return how many messages are still to be delivered for the first time."""
        self.refresh_unread()
        return self.unread if self.next_seq <= self.store.catalogue.last_seq or self.skips.left else 0

    def dump_state(self, pending=None) -> dict:
        """Return everything that `load_state` needs to go on from here; `pending` stands for the deliveries."""
        return {
            "next_seq": self.next_seq,
            "delivered": [self.delivered_cseq, self.delivered_seq],
            "floor": [self.floor_cseq, self.floor_seq],
            "pending": self.pending.dump() if pending is None else pending,
            "spent": list(self.spent.items()),
            "skips": self.skips.state(),
            "skips_end": self.skips_end,
        }

    def load_state(self, dict state) -> None:
        """Take over what `dump_state` returned."""
        self.next_seq = state["next_seq"]
        self.delivered_cseq, self.delivered_seq = state["delivered"]
        self.floor_cseq, self.floor_seq = state["floor"]
        self.pending.restore(state["pending"])
        self.spent = {int(seq): int(count) for seq, count in state["spent"]}
        self.n_spent = <uint32_t> len(self.spent)
        self.skips, self.skips_end = Skips.from_state(state["skips"]), state["skips_end"]

    def clamp(self) -> bool:
        """Fit the state to a stream that lost or dropped messages while this consumer was not there.

        Returns whether it was ahead of the stream, which uses the sequences behind its last one again: the files
        must not say any more that they are settled.
        """
        cdef uint64_t last = max(self.store.catalogue.last_seq, max(<uint64_t> self.config.opt_start_seq, 1) - 1)
        cdef bint ahead = self.next_seq > last + 1 or self.delivered_seq > last or self.skips_end > last
        cdef uint32_t i, newer
        if self.delivered_seq > last:
            self.log.warn(f"JetStream consumer '{self.path}' delivered sequence {self.delivered_seq} past last"
                          f" stream sequence of {last}")
        self.delivered_seq = min(self.delivered_seq, last)
        self.next_seq = min(self.next_seq, last + 1)
        self.skips_end = min(self.skips_end, last)
        i = self.pending.oldest
        while i:
            newer = self.pending.entries[i].newer
            if index_live(&self.store.catalogue.index, self.pending.entries[i].seq) == NULL:
                self.settle_entry(i)
            i = newer
        self.floor_seq = min(self.floor_seq, last)
        for seq in [each for each in self.spent if index_live(&self.store.catalogue.index, each) == NULL]:
            del self.spent[seq]
        self.n_spent = <uint32_t> len(self.spent)
        self.next_seq = max(self.next_seq, self.store.catalogue.first_seq)
        return ahead
