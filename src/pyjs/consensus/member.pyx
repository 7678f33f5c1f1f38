"""One group on this node: the progress of its state machine, and the work that waits for it.

This module does not use the engine, other nodes or disks: a member receives committed entries and roles, and reads
payloads by key.

Compiled because each replicated entry is applied on three servers (benchmarks/: r3-sync-1).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from collections import deque
from enum import Enum
from typing import TypeAlias

from pyjs.consensus.payloads cimport Payloads

from pyjs.base.errors import CorruptRecord, NotNow, PyjsError
from pyjs.consensus.engine import EntryKind, Role
from pyjs.consensus.payloads import Gone

Committed: TypeAlias = tuple[int, int, int, bytes]  # index, term, kind, body

ENTRY_COST = 64     # bytes of an entry in the log, in addition to its payload

cdef enum:
    COST = 64                   # ENTRY_COST
    TIME_AT = 8                 # offset of the time in a descriptor

cdef int DATA = EntryKind.DATA, EMPTY = EntryKind.EMPTY, FOLLOWER = Role.FOLLOWER, LEADER = Role.LEADER


class State(Enum):
    """The state of a member: RUNNING until its machine fails or its group is closed, then STOPPED."""

    RUNNING = "running"
    STOPPED = "stopped"


RUNNING, STOPPED = State.RUNNING, State.STOPPED


class Unreadable(PyjsError):
    """Raised if the payload of the next entry cannot be read. If `is_lasting` is False, a later read may succeed."""

    def __init__(self, cause: PyjsError) -> None:
        super().__init__(str(cause))
        self.is_lasting = not isinstance(cause, NotNow)


cdef class Member:
    """One group of this node, with its state machine."""

    def __init__(self, uint64_t group, str name not None, uint64_t peer, machine) -> None:
        self.group, self.name, self.peer = group, name, peer
        self.machine = machine
        self.state = RUNNING
        self.queue = deque()
        self.role = Role.FOLLOWER
        self.is_prompt = self.follows = True
        self.voters = ()
        self.vote = (0, 0)
        self.pending = {}
        self.reads = []

    def __str__(self) -> str:
        return f'group {self.group} ("{self.name}")'

    # -- proposals and reads -----------------------------------------------------------------------------------

    @property
    def proposals(self) -> int:
        """The number of proposals of this node that have no result yet."""
        return len(self.pending)

    cpdef int64_t next_time_ns(self, int64_t wall_ns) except? -1:
        """Return the time for the next entry in ns since the epoch; it is later than that of the previous entry."""
        return max(self.time_ns + 1, wall_ns)

    cpdef proposed(self, uint64_t index, uint64_t term, int64_t time_ns, proposal):
        """Record an entry that this node has proposed."""
        self.time_ns = time_ns
        if proposal is not None:
            self.pending[index] = (term, proposal)

    def wants_read(self, uint64_t index, done) -> None:
        """Call `done` when entry `index` has been applied, now or later.

        If the group stops before that, `done` is not called.
        """
        if self.state is STOPPED:
            return
        if self.applied >= index and self.steps is None:
            done()
        else:
            self.reads.append((index, done))

    def take_role(self, uint64_t term, role, uint64_t leader) -> None:
        """Store the role that the engine reports, and drop all proposals whose attribute `is_patient` is not true.

        The machine gets the role LEADER when all entries of earlier terms are applied, and other roles at once.
        """
        self.term, self.role, self.leader = term, role, leader
        self.leads, self.follows = False, role == FOLLOWER
        self.drop_impatient()
        if role != LEADER:
            self.machine.role(term, role, leader)

    def drop_proposals(self) -> None:
        """Report all proposals that are not applied yet as dropped; their entries may still be committed."""
        pending, self.pending = self.pending, {}
        for _, proposal in pending.values():
            self.machine.dropped(proposal)

    def drop_impatient(self) -> None:
        """Drop the proposals without `is_patient`, because the term or the role of this node has changed."""
        for index, (_, proposal) in list(self.pending.items()):
            if not getattr(proposal, "is_patient", False):
                del self.pending[index]
                self.machine.dropped(proposal)

    def enter_term(self, uint64_t term) -> None:
        """Drop the proposals of terms before `term`, because their entries can no longer be committed."""
        self.applied_term = term
        for index, (proposed_in, proposal) in list(self.pending.items()):
            if proposed_in < term:
                del self.pending[index]
                self.machine.dropped(proposal)

    # -- applying ----------------------------------------------------------------------------------------------

    cpdef take(self, tuple committed):
        """Queue a committed entry, unless it was received before or the machine has stopped."""
        cdef uint64_t index = committed[0]
        if index > self.queued and self.state is RUNNING:
            assert index == self.queued + 1
            self.queued = index
            self.queue.append(committed)

    cdef bint may_wait(self) noexcept:
        """Return whether nothing on this node waits for the committed entries to be applied."""
        return self.follows and not self.is_prompt and not self.reads and self.steps is None

    cpdef tuple apply_some(self, Payloads payloads, Py_ssize_t count, int64_t size):
        """Apply committed entries; return the number of applied entries and the bytes of their payloads.

        At most `count` entries are applied, and none after the payloads have reached `size` bytes. If a state is
        being installed, one step of the installation is run instead, and (1, `size`) is returned.

        Raises:
            Unreadable: the payload of the next entry cannot be read. The entry remains queued.
            Exception: raised by the machine, which must not get more entries.
        """
        cdef Py_ssize_t done = 0
        cdef int64_t used = 0
        cdef uint64_t index, term
        cdef int kind
        cdef bytes body
        queue = self.queue
        if self.steps is not None:
            self.install_some(self.steps)
            return 1, size      # end the work of this turn
        while queue and done < count and used < size:
            index, term, kind, body = queue[0]
            if term != self.applied_term:
                self.enter_term(term)
            if kind == DATA:
                used += self.apply(payloads, index, term, body)
            else:
                queue.popleft()
                if kind == EMPTY and term == self.term and self.role == LEADER:
                    self.lead()
            self.applied = index
            done += 1
        if self.reads:
            self.release_reads()
        return done, used

    @property
    def is_installing(self) -> bool:
        """Whether a snapshot is being installed in the machine; `apply_some` continues the installation."""
        return self.steps is not None

    @property
    def has_work(self) -> bool:
        """Whether `apply_some` has work."""
        return self.steps is not None or len(self.queue) > 0

    cdef install_some(self, steps):
        for _ in steps:
            return
        self.steps = None
        self.release_reads()

    cdef uint32_t apply(self, Payloads payloads, uint64_t index, uint64_t term, bytes body) except? 0:
        cdef uint32_t size = size_of(body)
        cdef int64_t time_ns = time_of(body)
        cdef bytes payload = b""
        proposal = None
        if size:
            try:
                payload = payloads.get((self.group, index, term))
            except (NotNow, CorruptRecord, Gone) as error:
                raise Unreadable(error) from error
        self.queue.popleft()    # before the machine is called, since it may close the group
        self.applied_time_ns = time_ns
        if self.pending:
            proposal = self.proposal_of(index, term)
        try:
            self.machine.apply(index, term, time_ns, payload, proposal)
        except Exception:
            if proposal is not None:
                self.machine.dropped(proposal)
            raise
        return size

    def proposal_of(self, uint64_t index, uint64_t term) -> object | None:
        """Remove and return the proposal of an entry, or return None if there is none.

        A proposal of another term for this index is dropped.
        """
        proposed_in, proposal = self.pending.pop(index, (term, None))
        if proposed_in != term:
            self.machine.dropped(proposal)
            return None
        return proposal

    cdef lead(self):
        self.leads = True
        # Entries that were dropped from the log may have had later times. No replica has applied them.
        self.time_ns = self.applied_time_ns or self.time_ns
        self.machine.role(self.term, Role.LEADER, self.leader)

    cdef release_reads(self):
        if not self.reads or self.reads[0][0] > self.applied:
            return
        reads, self.reads = self.reads, []
        for index, done in reads:
            if index <= self.applied:
                done()
            else:
                self.reads.append((index, done))

    def await_start(self, uint64_t index) -> None:
        """Apply no entry until `note_start`, because a snapshot will replace the start of the log."""
        self.queue.clear()
        self.queued = index

    def note_start(self, uint64_t index) -> None:
        """Continue after `index`, where the log now begins; the position of a stopped machine does not change."""
        self.queue.clear()
        self.log_size = 0
        if self.state is RUNNING:
            self.applied = self.queued = index

    cpdef note_entries(self, list entries):
        """Add the sizes of new entries to `log_size`, and update the time of the newest entry."""
        cdef int kind
        cdef bytes body
        self.log_size += <int64_t> len(entries) * COST
        for _, kind, body in entries:
            if kind == DATA:
                self.log_size += size_of(body)
                self.time_ns = max(self.time_ns, time_of(body))

    def cut_end(self) -> int:
        """Return the index of the last entry that the machine no longer needs in the log; 0 if it is stopped."""
        return min(self.machine.durable(), self.applied) if self.state is RUNNING else 0

    def applied_size(self) -> int:
        """Return the approximate size of the log up to the last applied entry, in bytes."""
        cdef int64_t size = self.log_size - <int64_t> len(self.queue) * COST
        for _, _, kind, body in self.queue:
            if kind == DATA:
                size -= size_of(body)
        return max(0, size)

    def note_cut(self, int64_t size) -> None:
        """Reduce `log_size` by `size`, the number of bytes that were removed at the start of the log."""
        self.log_size = max(0, self.log_size - size)

    def install(self, uint64_t index, int64_t time_ns, data) -> None:
        """Drop all proposals, and begin to replace the machine's state with `data`, the state after entry `index`.

        Nothing happens if the machine has stopped. The caller must have called `note_start`.
        """
        if self.state is STOPPED:
            return
        self.drop_proposals()
        self.applied_time_ns = time_ns
        self.time_ns = max(self.time_ns, time_ns)
        self.steps = None
        self.steps = self.machine.install(index, data)
        if self.steps is None:
            self.release_reads()

    def stop(self) -> None:
        """Stop applying entries, and drop all reads and proposals. The log continues without the machine."""
        self.state = STOPPED
        self.leads = False
        self.queue.clear()
        self.steps = None
        self.reads.clear()
        self.drop_proposals()


cdef inline int64_t time_of(bytes body) except? -1:
    """Return the time in a descriptor."""
    cdef int64_t time_ns = 0
    assert len(body) == DESCRIPTOR_SIZE
    memcpy(&time_ns, <const char*> body + TIME_AT, sizeof(time_ns))
    return time_ns
