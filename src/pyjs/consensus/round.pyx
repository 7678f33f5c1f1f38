"""The frequent half of a turn of consensus: the engine's output is sent, written to the log, and applied.

The rare half (consensus.py) is called for what most turns do not have: changes of roles and memberships, snapshots,
reads, groups that are opened again, and damage.

Compiled because each replicated entry passes it on three servers (benchmarks/: r3-sync-1).
"""
from libc.stdint cimport int64_t, uint64_t

from pyjs.consensus.descriptor cimport describe
from pyjs.consensus.log.durability cimport Due, Durability
from pyjs.consensus.member cimport Member, size_of
from pyjs.consensus.outbox cimport Outbox
from pyjs.consensus.payloads cimport Payloads
from pyjs.core.sink cimport Turn

from collections import deque

from pyjs.base.errors import CorruptRecord
from pyjs.consensus.batch import PAYLOAD_MAX
from pyjs.consensus.log.durability import Waits
from pyjs.consensus.engine import EntryKind
from pyjs.consensus.member import State, Unreadable
from pyjs.consensus.snapshots import PartialWrite

cdef enum:
    ROUNDS = 2          # of the engine in one turn: entries written in the first may be committed in the second
    APPLIES = 64        # maximum number of entries applied in one turn
    APPLY_SIZE = 262144  # maximum bytes of payloads applied in one turn
    FAIR_APPLIES = 16   # entries of one group that are applied before those of another group
    # A follower applies this many small entries at once, or fewer at the next tick, if nothing waits for them.
    LATER_MAX = 16
    SMALL = 4096        # bytes of a payload

cdef int DATA = EntryKind.DATA
STORED, STOPPED = Waits.STORED, State.STOPPED
cdef Py_ssize_t PAYLOAD_SIZE_MAX = PAYLOAD_MAX


cdef class Round:
    """The groups of one node, as the frequent half of a turn needs them."""

    def __init__(self, owner, Turn turn not None, engine, log, Outbox outbox not None, Payloads payloads not None,
                 Durability durability not None, faults, list installs not None, tuple chores not None) -> None:
        self.owner, self.log, self.outbox, self.faults = owner, log, outbox, faults
        # bound once: looking up a method takes as long as calling it
        self.engine_ready, self.engine_stored, self.engine_step = engine.ready, engine.stored, engine.step
        self.engine_propose, self.engine_has_ready = engine.propose, engine.has_ready
        self.engine_quarantined, self.engine_counts = engine.quarantined, engine.counts
        self.payloads, self.durability = payloads, durability
        self.turn_state = turn
        self.installs, self.chores = installs, chores
        self.members = {}
        self.backlog = deque()
        self.rests = True
        self.later = []

    # -- work --------------------------------------------------------------------------------------------------

    cpdef queue(self):
        """Request a turn."""
        if not self.is_queued and not self.is_over:
            self.is_queued = True
            self.turn_state.consensus.append(self)

    def end(self) -> None:
        """Request no more turns."""
        self.is_over = True
        self.backlog.clear()
        self.later.clear()

    cpdef continue_with(self, Member member):
        """Apply the entries of a member, or install its snapshot, if it has any."""
        if not member.in_backlog and member.has_work:
            member.in_backlog = True
            self.backlog.append(member)

    def take_later(self) -> bool:
        """Apply the entries that wait for a tick; return whether there are any."""
        cdef Member member
        later, self.later = self.later, []
        for member in later:
            member.is_late = False
            self.continue_with(member)
        return len(later) > 0

    cpdef mark(self):
        """Request a turn, and tick at the short interval again, since groups may have work."""
        self.queue()
        if self.rests:
            self.owner.wake()

    cpdef bint propose(self, uint64_t group, bytes payload, proposal) except -1:
        """Propose an entry; see `Consensus.propose`."""
        cdef Member member = self.members.get(group)
        cdef uint64_t index, term
        cdef int64_t time_ns
        if member is None or not member.leads or len(payload) > PAYLOAD_SIZE_MAX:
            return False
        time_ns = member.next_time_ns(self.turn_state.now + self.turn_state.skew)
        place = self.engine_propose([(group, describe(payload, time_ns))])[0]
        if place is None:
            return False
        index, term = place
        self.payloads.stage((group, index, term), payload)
        member.proposed(index, term, time_ns, proposal)
        self.mark()
        return True

    cpdef step(self, bytes frames, list payloads):
        """Pass frames of another node to the engine, after staging the payloads of their entries."""
        for key, payload in payloads:
            self.payloads.stage(key, payload)
        self.engine_step(frames)
        if self.rests and self.engine_counts()[1]:      # the frames have woken a group
            self.owner.wake()
        if not self.is_queued and self.engine_has_ready():
            self.queue()

    # -- the turn ----------------------------------------------------------------------------------------------

    cpdef turn(self):
        """Do the work of this turn; the remaining work waits for the next turn."""
        self.is_queued = False
        if self.is_over:
            return
        try:
            self.agree()
            if self.backlog:
                self.apply_some()
            if self.is_staged or self.has_chores():
                self.owner.do_chores()
        except Exception as error:
            self.owner.failed(error)

    cdef bint has_chores(self) except -1:
        for work in self.chores:
            if work:
                return True
        return False

    cdef agree(self):
        """Report durable writes to the engine, and handle the engine's output in at most ROUNDS rounds."""
        cdef bint has_vote
        cdef uint64_t token
        cdef list frames, writes
        if self.durability.queue:
            self.report_durable()
        installs = self.owner.stage_installs() if self.installs else []
        for _ in range(ROUNDS):
            ready = self.engine_ready()
            frames, writes = ready.frames, ready.writes
            if frames:
                self.outbox.send(frames)
            has_vote = len(writes) > 0 and self.stage(writes)
            if self.payloads.staged:
                self.payloads.forget_staged()
            if self.is_staged:
                self.is_staged = False
                self.log.flush()
                self.durability.wrote()
            token = self.durability.stored(ready.token, has_vote)
            while installs:
                self.durability.add(installs.pop(0), True)
            self.take(ready, writes)
            if token:
                frames = self.engine_stored(token)
                if frames:
                    self.outbox.send(frames)
            if self.durability.queue:
                self.report_durable()
            if not self.engine_has_ready():
                break       # the writes committed nothing
        else:
            self.queue()
        self.durability.begin()
        if self.outbox.damaged or self.engine_quarantined():
            self.owner.find_lost()

    cdef report_durable(self):
        """Do the queued work whose writes are durable, and send the frames that waited for these writes."""
        cdef Due due = self.durability.take()
        while due is not None:
            if due.kind is STORED:
                self.outbox.send(self.engine_stored(due.token))
            else:
                self.owner.continue_durable(due)
            due = self.durability.take()

    cdef bint stage(self, list writes) except -1:
        """Stage the writes in the log; return whether they change a vote or a term."""
        cdef bint has_vote = False
        cdef uint64_t group, index, term
        cdef int kind
        cdef list entries, payloads
        cdef Member member
        for write in writes:
            group, hard, entries = write.group, write.hard, write.entries
            if not entries and hard is None:
                continue
            member = self.members[group]
            payloads = []
            index = write.first
            for term, kind, _ in entries:
                payloads.append(self.payloads.take((group, index, term)) if kind == DATA else b"")
                index += 1
            part = write
            if entries and write.snapshot is not None:
                self.owner.keep_for_snapshot(write, payloads)
                part, payloads, entries = PartialWrite(group, hard), [], []
            try:
                self.is_staged |= self.log.write(part, payloads)
            except CorruptRecord as error:
                self.owner.lose_damaged(member, error)
                continue
            if hard is not None:
                term, vote, _ = hard
                if (term, vote) != member.vote:
                    member.vote = (term, vote)
                    has_vote = True
            if entries:
                member.note_entries(entries)
                if member.state is STOPPED:
                    self.owner.check_size(member)
        return has_vote

    cdef take(self, ready, list writes):
        """Queue the committed entries, and pass the rest of the engine's output on."""
        cdef uint64_t group
        cdef int kind
        cdef bytes body
        cdef Member member
        cdef bint has_snapshot = False
        roles, confs = ready.roles, ready.confs
        if roles or confs:
            self.owner.take_roles(roles, confs)
        for group, index, term, kind, body in ready.committed:
            member = self.members.get(group)
            if member is not None:
                member.take((index, term, kind, body))
                self.queue_entries(member, kind == DATA and size_of(body) <= SMALL)
        for write in writes:
            has_snapshot |= write.snapshot is not None
        if has_snapshot or ready.reads or ready.wanted or ready.snapshots:
            self.owner.take_rest(ready, writes)

    cdef queue_entries(self, Member member, bint is_small):
        """Apply the entries of a member in this turn, or later if they are few and nothing waits for them."""
        if member.in_backlog or not member.queue:
            return
        if is_small and member.may_wait() and len(member.queue) < LATER_MAX:
            if not member.is_late:
                member.is_late = True
                self.later.append(member)
            return
        member.in_backlog = True
        self.backlog.append(member)

    cdef apply_some(self):
        """Apply committed entries within a share of the turn, in fair order over the groups."""
        cdef Py_ssize_t count = APPLIES, done
        cdef int64_t size = APPLY_SIZE, used
        cdef Member member
        backlog = self.backlog
        while backlog and count > 0 and size > 0:
            member = backlog.popleft()
            try:
                done, used = member.apply_some(self.payloads, min(count, <Py_ssize_t> FAIR_APPLIES), size)
            except Unreadable as error:
                self.owner.cannot_read(member, error)
                continue
            except Exception as error:      # raised by a machine; the other groups continue
                self.faults.stop(member, error)
                done = used = 0
            count -= max(done, <Py_ssize_t> 1)
            size -= used
            member.in_backlog = member.has_work
            if member.in_backlog:
                backlog.append(member)
            if member.log_size > member.compact_at:
                self.owner.check_size(member)
        if backlog:
            self.queue()
