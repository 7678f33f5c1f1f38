"""One group on this node: the progress of its state machine, and the work that waits for it.

This module does not use the engine, other nodes or disks: a member receives committed entries and roles, and reads
payloads by key.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.errors import CorruptRecord, NotNow, PyjsError
from pyjs.consensus.descriptor import BRIEF, size_and_time
from pyjs.consensus.engine import EntryKind, Role
from pyjs.consensus.payloads import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyjs.consensus.payloads import Payloads
    from pyjs.consensus.seams import Machine

Committed: TypeAlias = tuple[int, int, int, bytes]  # index, term, kind, body

DATA, EMPTY = int(EntryKind.DATA), int(EntryKind.EMPTY)  # plain ints compare faster than enum members
ENTRY_COST = 64  # bytes of an entry in the log, in addition to its payload


class State(Enum):
    """The state of a member: RUNNING until its machine fails or its group is closed, then STOPPED."""

    RUNNING = "running"
    STOPPED = "stopped"


class Unreadable(PyjsError):
    """Raised if the payload of the next entry cannot be read. If `is_lasting` is False, a later read may succeed."""

    def __init__(self, cause: PyjsError) -> None:
        super().__init__(str(cause))
        self.is_lasting = not isinstance(cause, NotNow)


class Member:
    """One group of this node, with its state machine."""

    def __init__(self, group: int, name: str, peer: int, machine: Machine) -> None:
        self.group = group
        self.name = name
        self.peer = peer
        self.machine = machine
        self.state = State.RUNNING
        self.applied = 0  # index of the last applied entry
        self.queued = 0  # index of the last committed entry received; >= applied
        self.queue: deque[Committed] = deque()
        self.in_backlog = False  # whether the consensus will continue to apply `queue`
        self.time_ns = 0  # time of the newest entry in the log
        self.applied_time_ns = 0
        self.term = 0
        self.role = Role.FOLLOWER  # role according to the engine; `leads` becomes true later
        self.leader = 0  # number of the leader's node
        self.leads = False  # True: this node leads, and has applied all entries of earlier terms
        self.is_prompt = True  # whether followers learn at once about committed entries while this node leads
        self.voters: Collection[int] = ()  # the peers that elect the leader
        self.vote = (0, 0)  # term and vote, as written to the log
        self.log_size = 0  # approximate bytes in the log since its start
        self.compact_at = 0  # `log_size` at which the log is compacted
        self._pending: dict[int, tuple[int, object]] = {}  # index -> term and proposal
        self._applied_term = 0
        # index that must be applied before the read, and the function to call then
        self._reads: list[tuple[int, Callable[[], None]]] = []
        self._steps: Iterator[None] | None = None  # the rest of an `install`

    def __str__(self) -> str:
        return f'group {self.group} ("{self.name}")'

    # -- proposals and reads -----------------------------------------------------------------------------------

    @property
    def proposals(self) -> int:
        """The number of proposals of this node that have no result yet."""
        return len(self._pending)

    def next_time_ns(self, wall_ns: int) -> int:
        """Return the time for the next entry in ns since the epoch; it is later than that of the previous entry."""
        return max(self.time_ns + 1, wall_ns)

    def proposed(self, index: int, term: int, time_ns: int, proposal: object) -> None:
        """Record an entry that this node has proposed."""
        self.time_ns = time_ns
        if proposal is not None:
            self._pending[index] = (term, proposal)

    def wants_read(self, index: int, done: Callable[[], None]) -> None:
        """Call `done` when entry `index` has been applied, now or later.

        If the group stops before that, `done` is not called.
        """
        if self.state is State.STOPPED:
            return
        if self.applied >= index and self._steps is None:
            done()
        else:
            self._reads.append((index, done))

    def take_role(self, term: int, role: Role, leader: int) -> None:
        """Store the role that the engine reports, and drop all proposals whose attribute `is_patient` is not true.

        The machine gets the role LEADER when all entries of earlier terms are applied, and other roles at once.
        """
        self.term, self.role, self.leader = term, role, leader
        self.leads = False
        self._drop_impatient()
        if role != Role.LEADER:
            self.machine.role(term, role, leader)

    def drop_proposals(self) -> None:
        """Report all proposals that are not applied yet as dropped; their entries may still be committed."""
        pending, self._pending = self._pending, {}
        for _, proposal in pending.values():
            self.machine.dropped(proposal)

    def _drop_impatient(self) -> None:
        """Drop the proposals without `is_patient`, because the term or the role of this node has changed."""
        for index, (_, proposal) in list(self._pending.items()):
            if not getattr(proposal, "is_patient", False):
                del self._pending[index]
                self.machine.dropped(proposal)

    def _enter_term(self, term: int) -> None:
        """Drop the proposals of terms before `term`, because their entries can no longer be committed."""
        self._applied_term = term
        for index, (proposed_in, proposal) in list(self._pending.items()):
            if proposed_in < term:
                del self._pending[index]
                self.machine.dropped(proposal)

    # -- applying ----------------------------------------------------------------------------------------------

    def take(self, committed: Committed) -> None:
        """Queue a committed entry, unless it was received before or the machine has stopped."""
        index = committed[0]
        if index > self.queued and self.state is State.RUNNING:
            assert index == self.queued + 1
            self.queued = index
            self.queue.append(committed)

    def apply_some(self, payloads: Payloads, count: int, size: int) -> tuple[int, int]:
        """Apply committed entries; return the number of applied entries and the bytes of their payloads.

        At most `count` entries are applied, and none after the payloads have reached `size` bytes. If a state is
        being installed, one step of the installation is run instead, and (1, `size`) is returned.

        Raises:
            Unreadable: the payload of the next entry cannot be read. The entry remains queued.
            Exception: raised by the machine, which must not get more entries.
        """
        done = used = 0
        queue = self.queue
        if self._steps is not None:
            self._install_some(self._steps)
            return 1, size  # end the work of this turn
        while queue and done < count and used < size:
            index, term, kind, body = queue[0]
            if term != self._applied_term:
                self._enter_term(term)
            if kind == DATA:
                used += self._apply(payloads, index, term, body)
            else:
                queue.popleft()
                if kind == EMPTY and term == self.term and self.role == Role.LEADER:
                    self._lead()
            self.applied = index
            done += 1
        if self._reads:
            self._release_reads()
        return done, used

    @property
    def is_installing(self) -> bool:
        """Whether a snapshot is being installed in the machine; `apply_some` continues the installation."""
        return self._steps is not None

    @property
    def has_work(self) -> bool:
        """Whether `apply_some` has work."""
        return bool(self.queue) or self._steps is not None

    def _install_some(self, steps: Iterator[None]) -> None:
        for _ in steps:
            return
        self._steps = None
        self._release_reads()

    def _apply(self, payloads: Payloads, index: int, term: int, body: bytes) -> int:
        size: int
        size, time_ns = BRIEF.unpack_from(body)
        try:
            payload = payloads.get((self.group, index, term)) if size else b""
        except (NotNow, CorruptRecord, Gone) as error:
            raise Unreadable(error) from error
        self.queue.popleft()  # before the machine is called, since it may close the group
        self.applied_time_ns = time_ns
        proposal = self.proposal_of(index, term) if self._pending else None
        try:
            self.machine.apply(index, term, time_ns, payload, proposal)
        except Exception:
            if proposal is not None:
                self.machine.dropped(proposal)
            raise
        return size

    def proposal_of(self, index: int, term: int) -> object | None:
        """Remove and return the proposal of an entry, or return None if there is none.

        A proposal of another term for this index is dropped.
        """
        proposed_in, proposal = self._pending.pop(index, (term, None))
        if proposed_in != term:
            self.machine.dropped(proposal)
            return None
        return proposal

    def _lead(self) -> None:
        self.leads = True
        # Entries that were dropped from the log may have had later times. No replica has applied them.
        self.time_ns = self.applied_time_ns or self.time_ns
        self.machine.role(self.term, Role.LEADER, self.leader)

    def _release_reads(self) -> None:
        if not self._reads or self._reads[0][0] > self.applied:
            return
        reads, self._reads = self._reads, []
        for index, done in reads:
            if index <= self.applied:
                done()
            else:
                self._reads.append((index, done))

    def await_start(self, index: int) -> None:
        """Apply no entry until `note_start`, because a snapshot will replace the start of the log."""
        self.queue.clear()
        self.queued = index

    def note_start(self, index: int) -> None:
        """Continue after `index`, where the log now begins; the position of a stopped machine does not change."""
        self.queue.clear()
        self.log_size = 0
        if self.state is State.RUNNING:
            self.applied = self.queued = index

    def note_entries(self, entries: Sequence[tuple[int, int, bytes]]) -> None:
        """Add the sizes of new entries to `log_size`, and update the time of the newest entry."""
        size = len(entries) * ENTRY_COST
        for _, kind, body in entries:
            if kind == DATA:
                payload_size, time_ns = BRIEF.unpack_from(body)
                size += payload_size
                if time_ns > self.time_ns:
                    self.time_ns = time_ns
        self.log_size += size

    def cut_end(self) -> int:
        """Return the index of the last entry that the machine no longer needs in the log; 0 if it is stopped."""
        return min(self.machine.durable(), self.applied) if self.state is State.RUNNING else 0

    def applied_size(self) -> int:
        """Return the approximate size of the log up to the last applied entry, in bytes."""
        sizes = (size_and_time(body)[0] for _, _, kind, body in self.queue if kind == DATA)
        return max(0, self.log_size - len(self.queue) * ENTRY_COST - sum(sizes))

    def note_cut(self, size: int) -> None:
        """Reduce `log_size` by `size`, the number of bytes that were removed at the start of the log."""
        self.log_size = max(0, self.log_size - size)

    def install(self, index: int, time_ns: int, data: bytes) -> None:
        """Drop all proposals, and begin to replace the machine's state with `data`, the state after entry `index`.

        Nothing happens if the machine has stopped. The caller must have called `note_start`.
        """
        if self.state is State.STOPPED:
            return
        self.drop_proposals()
        self.applied_time_ns = time_ns
        self.time_ns = max(self.time_ns, time_ns)
        self._steps = None
        self._steps = self.machine.install(index, data)
        if self._steps is None:
            self._release_reads()

    def stop(self) -> None:
        """Stop applying entries, and drop all reads and proposals. The log continues without the machine."""
        self.state = State.STOPPED
        self.leads = False
        self.queue.clear()
        self._steps = None
        self._reads.clear()
        self.drop_proposals()
