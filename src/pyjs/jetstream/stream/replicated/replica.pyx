"""One replica of a stream, which proposes messages while it is the leader, and applies committed entries.

A replicated stream ingests a message when its entry is applied, on every replica in the same order and with the
entry's time. So the store has only committed messages, and followers run the same code as the leader. Before the
leader proposes, it makes the checks that depend on the node: limits of account and server, bytes in flight, and
whether the server is stopping.

On the leader, `deliver` adds a message to the payload of this turn; `offer`, called by the stream's commit, proposes
the payload. Reply subjects stay with the proposal, and answers are sent after the entry is applied and written.
Followers have no reply subjects and send no answers. A lost proposal is dropped, since its result is unknown. Only
the replica that proposed a message republishes it, so a copy is sent at most once, and not again when entries are
replayed after a restart.

The leader stages an atomic batch; the last message of the batch proposes it as a whole. Each operation has its own
entry (operations.py). While an operation runs in steps, later entries wait.

Evictions happen at the end of each entry, not of each turn, since turns differ between replicas.

The time of an entry is that of its leader's clock, but never earlier than the time of the entry before it. If the
clock of a leader was ahead, the time of entries stays constant until the clock of the next leader has reached it.
Until then, messages expire late and ids count longer. In nats-server, each message has its leader's time, so the time
can go backwards. If the clock of a leader has advanced since the previous entry by more than the elapsed time, the
leader first proposes the difference as a clock step (leader_clock.pyx), so that no id is forgotten early.

If an entry cannot be applied, or the store fails, this replica stops: it is then behind the others, but never
different. Compiled because it handles every message of a replicated stream (benchmarks/replica.py). Long because
leader and followers share one path from a payload to the store.
"""
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.jetstream.stream.features.batches cimport AtomicBatch
from pyjs.jetstream.stream.features.special cimport SpecialPublishes
from pyjs.jetstream.stream.copies cimport keep_copy
from pyjs.jetstream.stream.limits cimport AWAITS_REPLICA, SCHEDULES, SEALED
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.replicated.gaps cimport Gaps
from pyjs.jetstream.stream.replicated.leader_clock cimport LeaderClock, note_step
from pyjs.jetstream.stream.replicated.payload cimport (
    COPY_TAIL_SIZE, ITEM_BATCH, ITEM_CLOCK_STEP, ITEM_HEADER_SIZE, ITEM_MESSAGE, ITEM_MIRRORED,
    ITEM_SOURCED, PAYLOAD_HEADER_SIZE, PAYLOAD_SIZE_MAX, first_kind, is_operation, next_item, payload_fault,
    payload_items,
)
from pyjs.subjects.routes cimport Target
from pyjs.wire.compose cimport compose

from array import array
from collections import deque

from pyjs.base.errors import PyjsError
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError, LeaderChanged
from pyjs.jetstream.stream.relearn import schedule_steps
from pyjs.jetstream.stream.replicated.consumers import ReplicatedConsumers
from pyjs.jetstream.stream.replicated.durable import durable_steps
from pyjs.jetstream.stream.replicated.operations import apply_operation
from pyjs.jetstream.stream.replicated.payload import ITEM_NAMES, KINDS, BrokenEntry, items_of, operation
from pyjs.jetstream.stream.replicated.proposal import Outcome

cdef extern from "string.h" nogil:
    void* memmem(const void* text, size_t n, const void* part, size_t part_n)

cdef int64_t RETRY_NS = 1000000000      # ns to wait before an expiry that was not accepted is proposed again

cdef enum:
    COLLECTED_MAX = 262144      # bytes of a payload; with more, a turn is requested
    IN_FLIGHT_MAX = 67108864
    SUBJECT_SIZE_MAX = 65535
    SUBJECT_TOO_LONG = 4        # as in stream.pyx
    RECORD_OVERHEAD = 48        # maximum bytes of a stored record in addition to its item
    DRAINED_PER_STEP = 262144   # bytes of waiting entries applied in one step
    ENTRY_COST = 2048           # bytes that an entry counts in addition to its size


cdef class Replica(Sink):
    def __init__(self, Stream stream not None, group, owner=None) -> None:
        """Attach to a stream that `relearn.replica_steps` has recovered.

        The replica continues after the last entry that the store has applied.
        """
        self.stream = stream
        self.account, self.server = stream.usage.account, stream.usage.server
        self.group = group
        self.owner = owner
        self.buffer = PayloadBuffer()
        self.proposal, self.taken = Proposal(), InFlight()
        self.in_flight_max = IN_FLIGHT_MAX
        self.waiting, self.removals = deque(), []
        self.index, self.term = stream.store.applied_index, stream.store.applied_term
        stream.entry_ns = max(stream.store.applied_ns, 1)
        self.clock, self.previous_ns = LeaderClock(), stream.entry_ns
        if self.index:
            self.clock.entry_came(stream.entry_ns, stream.turn.now)
        stream.sync_always = False  # acknowledged entries are durable in the log of the group, so no sync is needed
        self.consumers = ReplicatedConsumers(stream)
        stream.replica = self
        stream.limits.features &= ~<unsigned int> AWAITS_REPLICA

    @property
    def may_expire(self) -> bool:
        """Whether this replica may set the expiry timer: it leads, and no expiry that it proposed is in flight.

        After a refused proposal, `settle` sets the timer.
        """
        return self.leads and self.stream.turn.now >= self.expiry_ns

    @property
    def is_working(self) -> bool:
        """Whether committed entries are applied in later turns, since an operation takes several steps."""
        return self.working or len(self.waiting) > 0

    # -- the leader --------------------------------------------------------------------------------------------
    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if not self.leads or self.stopping:
            return 0
        t.sub.delivered += 1
        if not self.stream.dirty:
            self.stream.mark_dirty()
        if self.stream.transform is None:
            self.collect(m)
        else:
            with gil:
                self.collect_transformed(m)
        if self.buffer.used > COLLECTED_MAX:
            self.stream.turn.pressure = True
        return 1

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        # The trace ends here, since the result is known only when the entry is applied.
        trace.enter_stream(self.stream.name)
        return 1 if trace.only else self.deliver(m, t)

    cdef void collect_transformed(self, Msg* m) noexcept:
        """Collect a message under its transformed subject.

        Only the leader transforms subjects, since a transform may choose at random.
        """
        cdef bytes subject = self.stream.transform.apply(m.subject[:m.subject_len])
        cdef Msg renamed = m[0]
        if subject is not None:
            renamed.subject = subject
            renamed.subject_len = <uint32_t> len(subject)
        self.collect(&renamed)

    cdef bint collect(self, Msg* m) noexcept nogil:
        """Add a message to this turn's payload and return True, or stage or refuse the message and return False."""
        cdef size_t replies = self.proposal.used
        if self.refused(m):
            return False
        if m.header_len and self.is_batched(m):
            with gil:
                self.collect_batched(m)
            return False
        if self.gaps is not None and self.depends(m):
            return not self.refuse_dependent(m)
        if self.proposal.add_reply(m) == 0 \
                and self.buffer.add(ITEM_MESSAGE, m.subject, m.subject_len, m.body, m.header_len, m.size) == 0:
            self.taken.add(self.stream, self.proposal, m.subject, m.subject_len)
            return True
        self.proposal.used = replies        # otherwise this reply would be used for the next message
        return not self.stream.refuse(m, 10023, 0)

    cdef bint collect_copy(self, Msg* m, bint mirrored, uint64_t seq, int64_t ts) noexcept nogil:
        """Add a copy of another stream's message to the payload of this turn; return False if that is impossible now.

        `seq` and `ts` are the sequence and the time (ns) of the message in the origin.
        """
        cdef uint64_t size = ITEM_HEADER_SIZE + m.subject_len + m.size + COPY_TAIL_SIZE
        cdef int failed
        if not self.leads or self.stopping or PAYLOAD_HEADER_SIZE + size > PAYLOAD_SIZE_MAX or self.is_full(size) \
                or (self.server.max >= 0 and self.server.used > self.server.max) \
                or self.taken.refuses(self.stream, m, mirrored, self.in_flight + self.buffer.used):
            return False
        if self.gaps is not None and not self.gaps.decides_copy(m, mirrored, self.least_ns(), self.taken.messages):
            return False
        if self.account.max >= 0 \
                and self.account.used + <int64_t> (self.in_flight + self.buffer.used + size) > self.account.max:
            return False
        if mirrored:
            failed = self.buffer.add_mirrored(m.subject, m.subject_len, m.body, m.header_len, m.size, seq, ts)
        else:
            failed = self.buffer.add(ITEM_SOURCED, m.subject, m.subject_len, m.body, m.header_len, m.size)
        if failed != 0:
            return False
        self.proposal.copies = True
        self.taken.add(self.stream, self.proposal, m.subject, m.subject_len)
        if self.buffer.used > COLLECTED_MAX:
            self.stream.turn.pressure = True
        return True

    cdef bint refused(self, Msg* m) noexcept nogil:
        """Return whether this node cannot accept the message; if so, answer it with an error."""
        cdef uint64_t size = ITEM_HEADER_SIZE + m.subject_len + m.size
        if PAYLOAD_HEADER_SIZE + size > PAYLOAD_SIZE_MAX:
            return self.stream.refuse(m, 10054, 0)
        if self.is_full(size) or (self.server.max >= 0 and self.server.used > self.server.max):
            return self.stream.refuse(m, 10023, 0)
        if self.account.max >= 0 \
                and self.account.used + <int64_t> (self.in_flight + self.buffer.used + size) > self.account.max:
            return self.stream.refuse(m, 10002, 0)
        if m.subject_len > SUBJECT_SIZE_MAX:
            return self.stream.refuse(m, 10077, SUBJECT_TOO_LONG)
        if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            with gil:
                return self.stream.refuse_with(m, errcodes.BATCH_PUBLISH_DISABLED.error())
        return False

    cdef bint depends(self, Msg* m) noexcept nogil:
        """Return whether the outcome of a publish may depend on lost messages."""
        return not self.gaps.decides(m, self.least_ns(), self.taken.messages, self.taken.operations or self.working)

    cdef int64_t least_ns(self) noexcept nogil:
        """Return a lower bound for the times of entries proposed from now on, without steps of the clock."""
        cdef int64_t skew = self.stream.turn.skew
        if self.clock.in_flight or self.clock.step(skew):   # the entry comes after a step, so less time has elapsed
            return self.stream.entry_ns
        return max(self.stream.entry_ns, self.stream.turn.now + skew)

    cdef bint refuse_dependent(self, Msg* m) noexcept nogil:
        with gil:
            return self.stream.refuse_with(m, errcodes.STREAM_MESSAGES_LOST.error())

    cdef bint is_full(self, uint64_t size) noexcept nogil:
        """Return whether `size` more bytes would exceed the limit on bytes in flight; False if none are in flight."""
        cdef uint64_t others = self.in_flight + self.buffer.used
        return others != 0 and others + size > self.in_flight_max

    cdef bint is_batched(self, Msg* m) noexcept nogil:
        """Return whether the message has a batch id."""
        cdef PubHeaders h
        if memmem(m.body, m.header_len, b"\nNats-Batch-Id:", 15) == NULL:
            return False
        scan_pub_headers(m.body, m.header_len, &h)
        return h.batch_id.n != 0

    cdef void collect_batched(self, Msg* m) noexcept:
        """Stage a message of an atomic batch. The last message adds the whole batch to the payload."""
        cdef AtomicBatch batch
        try:
            batch = (<SpecialPublishes?> self.stream.special).collect(m)
            if batch is not None:
                (<SpecialPublishes?> self.stream.special).commits.check_room(batch)
                self.add_batch(m, batch)
        except ApiError as error:
            self.stream.refuse_with(m, error)
        except BaseException as error:      # the stream's state may be half changed
            self.stream.turn.faulted.append((self.stream, error))

    cdef void add_batch(self, Msg* m, AtomicBatch batch) except *:
        """Add a whole batch, whose last message is `m`, to the payload.

        Raises:
            ApiError: there is no room, or the outcome may depend on lost messages; nothing was added.
        """
        cdef size_t used = self.buffer.used, replies = self.proposal.used
        cdef uint32_t items = self.buffer.items
        cdef uint64_t size = PAYLOAD_HEADER_SIZE + ITEM_HEADER_SIZE + batch.id_len
        cdef size_t i
        cdef Msg each
        for i in range(batch.n):
            size += ITEM_HEADER_SIZE + batch.messages[i].subject_len + batch.messages[i].size
            batch.view(i, &each)
            if self.gaps is not None and self.depends(&each):
                raise errcodes.STREAM_MESSAGES_LOST.error()
        errcodes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.raise_if(size > PAYLOAD_SIZE_MAX)
        if self.is_full(size) or self.fill_batch(m, batch) != 0:
            self.buffer.used, self.buffer.items, self.proposal.used = used, items, replies
            raise errcodes.INSUFFICIENT_RESOURCES.error()
        for i in range(batch.n):
            batch.view(i, &each)
            self.taken.add(self.stream, self.proposal, each.subject, each.subject_len)

    cdef int fill_batch(self, Msg* m, AtomicBatch batch) noexcept nogil:
        """Add the items of a batch and its reply. Return -1 if there is no room; a part may have been added."""
        cdef size_t i, at = 0
        cdef Msg each
        if self.proposal.add_reply(m) != 0 or self.buffer.begin_batch(batch.id_text, batch.id_len, &at) != 0:
            return -1
        for i in range(batch.n):
            batch.view(i, &each)
            if self.buffer.add(ITEM_MESSAGE, each.subject, each.subject_len, each.body, each.header_len,
                               each.size) != 0:
                return -1
        self.buffer.end_batch(at)
        return 0

    def offer(self) -> bool:
        """Propose the collected messages; return whether the stream may commit applied entries."""
        cdef Proposal proposal
        if self.leads and self.stream.inflow is not None:
            self.stream.inflow.offering()       # adds the positions after the copies in this payload
        if self.buffer.used:
            payload, proposal = self.buffer.take(), self.proposal
            self.proposal = Proposal()
            self.propose(payload, proposal)
        if self.removals:
            self.propose_removals()
        return self.stopped is None

    def propose(self, bytes payload, Proposal proposal not None) -> bool:
        """Propose a payload; return False if it is not accepted, for example because this replica does not lead.

        In that case, `proposal` is dropped.
        """
        proposal.size = len(payload)
        self.in_flight += proposal.size
        if is_operation(payload):
            self.taken.add_operation(proposal)
        if is_operation(payload) and payload_fault(payload):
            self.dropped(proposal, errcodes.INSUFFICIENT_RESOURCES.error())
        elif self.leads and self.stopped is None and self.report_step() and self.group.propose(payload, proposal):
            return True
        else:
            self.dropped(proposal, LeaderChanged())
        return False

    cdef bint report_step(self) except -1:
        """Propose the step of the clock since the previous entry, if there is one; return False if refused."""
        cdef int64_t skew = self.stream.turn.skew, step = self.clock.step(skew)
        cdef Proposal proposal
        if step == 0 or self.stream.dedupe.window_ns == 0:
            return True
        payload, proposal = operation("clock step", step.to_bytes(8, "little")), Proposal()
        if not self.group.propose(payload, proposal):
            return False
        proposal.step_ns = step
        self.clock.proposed(skew)
        return True

    def dropped(self, Proposal proposal not None, error=None) -> None:
        """Handle a proposal that was refused with `error` or, if `error` is None, a proposal that is lost.

        A lost proposal gets no answer, since its outcome is unknown.
        """
        self.in_flight -= min(proposal.size, self.in_flight)
        self.taken.remove(proposal)
        proposal.size = 0
        if proposal.step_ns:
            self.clock.ended(proposal.step_ns, self.leads)
            proposal.step_ns = 0
        if self.leads:
            self.consumers.lost(proposal.changed)
            if proposal.copies and self.stream.inflow is not None:
                self.stream.inflow.lost()
        if proposal.outcome is not None:
            proposal.outcome.settle(None, error or LeaderChanged(is_unknown=True))

    def operate(self, bytes payload):
        """Propose an operation or the state of a consumer; return the result when it is applied and written.

        Raises:
            ApiError: this replica does not lead, the operation is invalid or refused, or its result is unknown.
        """
        fault = payload_fault(payload)
        if fault is not None:
            raise errcodes.BAD_REQUEST.detailed(fault)
        cdef Proposal proposal = Proposal()
        outcome = proposal.outcome = Outcome(self.stream.turn)
        self.offer()                    # earlier messages must be proposed first
        self.propose(payload, proposal)
        while not outcome.settled:
            yield outcome.park
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    # -- decisions of the leader by time or for consumers ----------------------------------------------------------
    def add_changes(self, str kind, bytes name, bytes body) -> None:
        """Add changes of a consumer to the payload of this turn; see ProposedState."""
        cdef const char* text = body
        if self.buffer.add(KINDS[kind], name, len(name), text, 0, len(body)) != 0:
            self.offer()                # the payload is full
            if self.buffer.add(KINDS[kind], name, len(name), text, 0, len(body)) != 0:
                raise MemoryError
        self.proposal.changed.add(name.decode())
        self.stream.note_change()

    def when_applied(self, done) -> None:
        """Call `done` with None when the payload of this turn is applied.

        If it stays unknown whether the payload is applied, `done` is never called.
        """
        self.proposal.calls.append(done)

    @property
    def collects(self) -> bool:
        """Whether the payload of this turn is not empty."""
        return self.buffer.used != 0

    def propose_expiry(self) -> None:
        """Propose an entry that removes the messages expired at the time of that entry. Called by the timer."""
        cdef Proposal proposal = Proposal()
        if self.gaps is not None and self.stream.limits.marker_ttl_ns:
            self.settle(None, LeaderChanged())      # with lost messages, other subjects may get markers
            return
        proposal.outcome = self
        self.expiry_ns = INT64_MAX
        self.propose(operation("expiry"), proposal)

    def settle(self, more, error=None) -> None:
        """Handle the end of a proposed expiry: if `more` is true, propose again; otherwise a commit sets the timer.

        If the expiry was not accepted, it is proposed again after a delay.
        """
        cdef Stream stream = self.stream
        self.expiry_ns = 0
        if not self.leads:
            return
        if error is not None:
            self.expiry_ns = stream.turn.now + RETRY_NS
            stream.expiry.arm(stream, self.expiry_ns, stream.turn.now)
        elif more:
            self.propose_expiry()
        else:
            stream.note_change()

    def remove(self, uint64_t seq) -> None:
        """Propose to remove a message that no consumer needs any more, with the next commit."""
        if self.leads:
            self.removals.append(seq)

    def propose_removals(self) -> None:
        """Propose the removals collected by `remove`."""
        removals, self.removals = self.removals, []
        is_proposed = self.propose(operation("removal", array("Q", removals).tobytes()), Proposal())
        if self.leads and not is_proposed:
            self.removals = removals + self.removals    # try again with the next commit

    def propose_firing(self, list due) -> bool:
        """Propose to fire the schedules `due`, a list of (sequence, due time in ns).

        Return False if this replica does not lead or has lost messages.
        """
        if self.gaps is not None:
            return False
        body = b"".join(seq.to_bytes(8, "little") + at_ns.to_bytes(8, "little", signed=True) for seq, at_ns in due)
        return self.propose(operation("schedules", body), Proposal())

    # -- roles -------------------------------------------------------------------------------------------------
    def lead(self) -> None:
        """Accept messages and propose from now on; all earlier committed entries must have been applied."""
        self.leads, self.expiry_ns = True, 0
        self.clock.lead(self.stream.turn.skew)
        if self.stream.limits.features & SCHEDULES:
            self.stream.special.scheduling.begin_learning()
            self.stream.turn.go_on(schedule_steps(self.stream))
        self.stream.turn.go_on(self.consumers.lead_steps())
        self.stream.note_change()       # the commit sets the timer for expiry

    def follow(self) -> None:
        """Stop proposing, and drop collected messages that are not proposed yet."""
        self.leads = False
        self.buffer.clear()
        self.taken.remove(self.proposal)
        self.proposal, self.removals = Proposal(), []
        self.consumers.follow()
        self.stream.expiry.cancel()

    def stop(self, error) -> None:
        """Stop applying entries, since this replica would differ from the others. Waiting answers are not sent.

        Chores that wait for an operation get an error, although it may still be applied: after a restart, or on
        another replica.
        """
        if self.stopped is None:
            self.stopped = error
            self.follow()
            waiting, self.waiting = self.waiting, deque()
            for *_, proposal in waiting:
                if proposal is not None:
                    self.dropped(proposal)
            self.end_running(None, LeaderChanged(is_unknown=True))
            self.stream.answers.detach()
            if self.owner is not None:
                self.owner.stopped(error)

    def cancel(self) -> None:
        """Stop together with the stream; entries committed later are applied when the stream is reopened."""
        self.stop(PyjsError(f"{self.stream} is closed"))

    # -- lost messages -----------------------------------------------------------------------------------------
    def note_gaps(self, list lost not None, uint64_t ids_upto) -> None:
        """Refuse, from now on, each publish whose outcome may depend on the messages `lost`; see gaps.Gaps."""
        self.gaps = Gaps(self.stream, lost, ids_upto)

    def accept_gaps(self) -> None:
        """Decide everything as if the lost messages had been removed."""
        self.gaps = None

    def can_decide(self, uint64_t index, int64_t time_ns, bytes payload not None) -> bool:
        """Return True if a committed entry is applied already, or its outcome does not depend on lost messages."""
        cdef const char* p = payload
        cdef size_t n = len(payload), at = PAYLOAD_HEADER_SIZE
        cdef int64_t now_ns = self.stream.entry_ns
        if self.gaps is None or index <= self.index or payload_fault(payload) is not None:
            return True
        if is_operation(payload):
            return self.gaps.decides_operation(p[PAYLOAD_HEADER_SIZE + 4], p, n)
        if not self.waiting:            # one of these may be a step of the clock: then less time has elapsed
            now_ns = max(time_ns, now_ns)
        return self.decides_items(p, n, &at, now_ns)

    cdef bint decides_items(self, const char* p, size_t n, size_t* at, int64_t now_ns) noexcept nogil:
        cdef uint64_t more = 0
        cdef size_t inner
        cdef Item item
        cdef Msg m
        while next_item(p, n, at, &item):
            compose(&m, item.subject, item.subject_len, item.body, item.header_len, item.size)
            inner = 0
            if item.kind == ITEM_BATCH and not self.decides_items(item.body, item.size, &inner, now_ns):
                return False
            if item.kind == ITEM_MESSAGE and not self.gaps.decides(&m, now_ns, more, self.working):
                return False
            if item.kind == ITEM_SOURCED and not self.gaps.decides_copy(&m, False, now_ns, more):
                return False
            more += 1
        return True

    # -- every replica -----------------------------------------------------------------------------------------
    cpdef apply(self, uint64_t index, uint64_t term, int64_t time_ns, bytes payload, Proposal proposal=None):
        """Apply a committed entry; an entry that was already applied has no effect.

        Raises:
            BrokenEntry: the entry cannot be applied; this replica has stopped.
        """
        if self.stopped is None and (self.working or self.waiting):
            self.waiting.append((index, term, time_ns, payload, proposal))
        else:
            self.apply_next(index, term, time_ns, payload, proposal)

    def restart_at(self, uint64_t index, uint64_t term, int64_t time_ns) -> None:
        """Record that the store has the state after the given entry, whatever was applied before.

        If the store cannot commit, stop the replica.
        """
        if self.stream.store.commit() != 0:
            self.stop(self.stream.store.error)
            return
        self.begin_entry(0, 0, self.stream.entry_ns)    # no step of the clock precedes it, so no time has elapsed
        self.index, self.term = index, term
        self.end_entry(time_ns)
        self.stream.note_change()

    cdef void apply_next(self, uint64_t index, uint64_t term, int64_t time_ns, bytes payload,
                         Proposal proposal) except *:
        """Apply the next entry, or begin to apply it if it is an operation.

        If the store already has the entry, only its items about consumers and positions are applied.

        Raises:
            BrokenEntry: the entry is damaged or could not be applied; this replica has stopped.
        """
        if self.stopped is not None or self.stream.closed or index <= self.index:
            if self.stopped is None and not self.stream.closed and payload_fault(payload) is None:
                self.consumers.apply_again(index, payload)
            if proposal is not None:
                self.dropped(proposal)
            return
        fault = None if proposal is not None else payload_fault(payload)
        if fault is None and time_ns <= 0:
            fault = f"its time is {time_ns}"
        if fault is not None:
            error = BrokenEntry(str(self.stream), index, fault)
            self.stop(error)
            if proposal is not None:
                self.dropped(proposal)
            raise error
        if proposal is not None:
            self.in_flight -= min(proposal.size, self.in_flight)
            self.taken.remove(proposal)
            proposal.size = 0
            if proposal.step_ns:
                self.clock.ended(proposal.step_ns, False)
                proposal.step_ns = 0
        self.proposed = proposal is not None
        self.consumers.begin(index)
        self.stream.note_change()
        if is_operation(payload):
            self.index, self.term = index, term
            self.running = None if proposal is None else proposal.outcome
            self.begin_operation(time_ns, payload)
            return
        if first_kind(payload) == ITEM_CLOCK_STEP:
            self.stream.store.expect_step()
        self.begin_entry(len(payload), payload_items(payload), time_ns)
        try:
            self.apply_items(payload, proposal)
        except Exception as fault:          # a part of the entry is in memory, and no mark may cover it
            error = BrokenEntry(str(self.stream), index, repr(fault))
            self.stop(error)
            raise error from fault
        self.index, self.term = index, term
        self.end_entry(time_ns)
        if proposal is not None:
            self.tell_applied(proposal)

    def tell_applied(self, Proposal proposal not None) -> None:
        """Call the callbacks of an applied payload, and settle its outcome."""
        for done in proposal.calls:
            done(None)
        if proposal.outcome is not None:
            proposal.outcome.settle(None)

    cdef void begin_entry(self, size_t size, size_t items, int64_t time_ns) except *:
        self.previous_ns = self.stream.entry_ns
        self.stream.entry_ns = max(time_ns, self.previous_ns)
        if not self.leads:
            self.clock.entry_came(self.stream.entry_ns, self.stream.turn.now)
        self.stream.store.begin_entry(size + items * RECORD_OVERHEAD)

    cdef void end_entry(self, int64_t time_ns) except *:
        """End an entry: remove replaced messages, and mark the entry as applied with the next commit."""
        cdef Stream stream = self.stream
        stream.evict()
        self.mark_applied()
        if stream.store.failed:
            self.stop(stream.store.error)

    cdef void apply_items(self, bytes payload, Proposal proposal) except *:
        """Apply the items of a payload. If an item fails, raise its error."""
        cdef const char* p = payload
        cdef size_t n = len(payload)
        cdef list faulted = self.stream.turn.faulted
        cdef size_t faults = len(faulted)
        with nogil:
            self.apply_messages(p, n, proposal)
        if len(faulted) > faults:
            raise faulted[faults][1]

    cdef int apply_messages(self, const char* p, size_t n, Proposal proposal) except -1 nogil:
        cdef size_t at = PAYLOAD_HEADER_SIZE
        cdef Item item
        cdef Msg m
        while next_item(p, n, &at, &item):
            if item.kind == ITEM_MIRRORED or item.kind == ITEM_SOURCED:
                self.apply_copy(&item)
                continue
            if item.kind != ITEM_MESSAGE:
                with gil:
                    if item.kind == ITEM_BATCH:
                        self.apply_batch(&item, proposal)
                    else:
                        self.apply_change(&item)
                continue
            compose(&m, item.subject, item.subject_len, item.body, item.header_len, item.size)
            if proposal is not None:
                proposal.next_reply(&m)
            self.stream.ingest(&m)
        return 0

    cdef void apply_copy(self, Item* item) noexcept nogil:
        """Store a copy for a mirror or source, unless the stream is sealed or already has the message."""
        cdef bint mirrored = item.kind == ITEM_MIRRORED
        cdef uint32_t size = item.size - (COPY_TAIL_SIZE if mirrored else 0)
        cdef uint64_t seq = 0
        cdef int64_t ts = 0
        cdef Msg m
        if mirrored:
            memcpy(&seq, item.body + size, 8)
            memcpy(&ts, item.body + size + 8, 8)
            if self.stream.limits.features & SEALED or seq <= self.stream.store.catalogue.last_seq \
                    or self.stream.store.skip_to(seq - 1) != 0:
                return                          # sealed, or copied already: an earlier leader proposed the same copy
        compose(&m, item.subject, item.subject_len, item.body, item.header_len, size)
        self.stream.stamp = ts
        keep_copy(self.stream, &m, mirrored, True)
        self.stream.stamp = 0

    cdef int apply_change(self, Item* item) except -1:
        """Apply changes of a consumer, positions of sources, or a step of the clock."""
        if item.kind == ITEM_CLOCK_STEP:
            note_step(self.stream, self.previous_ns, item)
            return 0
        self.consumers.apply(ITEM_NAMES[item.kind], item.subject[:item.subject_len], item.body[:item.size])
        return 0

    cdef int apply_batch(self, Item* item, Proposal proposal) except -1:
        """Store an atomic batch, or refuse it as a whole."""
        cdef SpecialPublishes special = <SpecialPublishes?> self.stream.special
        cdef AtomicBatch batch = AtomicBatch(item.subject[:item.subject_len])
        cdef size_t at = 0
        cdef Item each
        cdef Msg m
        while next_item(item.body, item.size, &at, &each):
            compose(&m, each.subject, each.subject_len, each.body, each.header_len, each.size)
            special.restage(batch, &m)
        compose(&m, NULL, 0, NULL, 0, 0)
        if proposal is not None:
            proposal.next_reply(&m)
        special.commit_staged(&m, batch)
        return 0

    # -- operations --------------------------------------------------------------------------------------------
    def mark_applied(self) -> None:
        """Record entry `index` as applied, with the next write."""
        cdef Stream stream = self.stream
        stream.store.ids_from = max(stream.store.ids_from, stream.dedupe.horizon(stream.entry_ns))
        stream.store.steps.drop_until(stream.store.ids_from)
        stream.store.has_ids = stream.dedupe.newest != stream.dedupe.oldest
        stream.store.end_entry(self.index, self.term, stream.entry_ns, stream.dedupe.last_msg_id)

    def config_steps(self, config):
        """Make a configuration durable, in steps, before it is applied to the stream.

        Earlier entries are made durable first; otherwise a restart would apply them again under the new
        configuration.
        """
        if self.owner is None:
            return
        yield from durable_steps(self.stream)
        if self.stream.store.failed:
            self.stop(self.stream.store.error)
            yield None                      # the replica has stopped, so until_stopped ends the steps here
        yield from self.owner.keep_steps(config)

    def configured(self, old) -> None:
        """Handle a change of the stream's configuration, which was `old` before."""
        if self.owner is not None:
            self.owner.configured(old)

    def begin_operation(self, int64_t time_ns, bytes payload) -> None:
        """Apply an operation: a short one now, the steps of a long one in the next turns."""
        cdef Stream stream = self.stream
        if stream.store.commit() != 0:  # records all earlier entries as applied
            self.stop(stream.store.error)
            return
        self.begin_entry(0, 0, time_ns)
        self.working = True
        steps = self.operation_steps(time_ns, payload)
        for step in steps:
            stream.turn.go_on(self.go_on(step, steps))
            return

    def operation_steps(self, int64_t time_ns, bytes payload):
        """Apply an operation in steps, commit its changes, and settle its outcome."""
        cdef Stream stream = self.stream
        result = error = None
        try:
            (kind, subject, _, body), = items_of(payload)
            result = yield from self.until_stopped(apply_operation(self, kind, subject, body))
        except ApiError as refused:
            error = refused
        except Exception as fault:
            self.stop(BrokenEntry(str(stream), self.index, repr(fault)))
            raise
        finally:
            self.working = False
        if self.stopped is not None:
            return
        self.end_entry(time_ns)
        if stream.store.commit() != 0:
            self.stop(stream.store.error)
        self.end_running(result, error)
        stream.note_change()

    def go_on(self, first, steps):
        """Continue an operation after its first step, then apply the entries that waited for it."""
        yield first
        yield from steps
        yield from self.drain_steps()

    def until_stopped(self, steps):
        """Run the steps of an operation and return its result; end the steps early if this replica stops."""
        while self.stopped is None:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            yield step
        steps.close()

    def end_running(self, result, error) -> None:
        """Store the result of the running operation, if a chore is waiting for it."""
        outcome, self.running = self.running, None
        if outcome is not None:
            outcome.settle(result, error)

    def drain_steps(self):
        """Apply the waiting entries, some in each step, up to the next operation that takes several steps."""
        cdef int64_t left = DRAINED_PER_STEP
        while self.waiting and not self.working:
            if left <= 0:
                left = DRAINED_PER_STEP
                yield None
                continue                # the replica may have stopped since the last step
            index, term, time_ns, payload, proposal = self.waiting.popleft()
            left -= ENTRY_COST + len(payload)
            try:
                self.apply_next(index, term, time_ns, payload, proposal)
            except Exception:
                if proposal is not None:
                    self.dropped(proposal)
                raise
