"""The consensus of one node: the engine of all its replicated groups, their log, payloads and state machines.

A turn, in the order of its effects:

1. durable writes are reported to the engine, and the frames that waited for them are sent;
2. the ready output of the engine's groups is taken: frames are sent, changes are written to the log at once, a sync
   begins;
3. committed entries are applied, some in each turn, in fair order over the groups;
4. reads whose index has been applied are answered, full logs are compacted, snapshots continue.

A group whose machine raises stops on this node; one whose engine panics is closed and logged. If the log fails, the
node takes part in no group any more and sends nothing, so that no other node relies on a promise that it cannot keep.

Knows no sockets, disks and clocks: the log and the peers are seams, the time is that of the node's turn. Long because
everything that calls the engine is here.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.errors import CorruptRecord, NotNow, StoreFailed
from pyjs.consensus import batch, descriptor
from pyjs.consensus.batch import Fetch, Frames, Part
from pyjs.consensus.durability import Due, Durability, Waits
from pyjs.consensus.engine import (
    Conf,
    EntryKind,
    Groups,
    Quarantined,
    RaftError,
    Refused,
    Role,
    UnknownGroup,
    incarnation_of,
    node_of,
    peer_id,
)
from pyjs.consensus.member import Member, State, Unreadable
from pyjs.consensus.outbox import Outbox
from pyjs.consensus.payloads import Payloads
from pyjs.consensus.snapshots import Snapshots
from pyjs.consensus.status import GroupStatus, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyjs.base.timers import Timer
    from pyjs.consensus.engine import Point, Ready, Write
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.log.records import Membership
    from pyjs.consensus.seams import Machine, Peers
    from pyjs.core.host import Host

TICK_NS = 10 * NS_PER_MS
LATE_TICKS = 3  # a node that was stopped does not make up for more ticks at once
REST_NS = NS_PER_S  # between two looks at groups that all sleep
ROUNDS = 2  # of the engine in one turn: what is stored at once may be committed at once
APPLIES = 64  # entries applied in one turn, and
APPLY_SIZE = 256 << 10  # bytes of payloads
FAIR_APPLIES = 16  # entries of one group before another one has its turn
PATIENCE = 4  # a log may grow to so many times its size for a replica that is behind
DATA = int(EntryKind.DATA)
READ_NS = 10 * NS_PER_S  # after which an unanswered read is forgotten


@dataclass(frozen=True, slots=True)
class Tuning:
    """The options of consensus."""

    sync_interval_ns: int = 0  # 0: always
    election_ticks: int = 20
    heartbeat_ticks: int = 5
    log_size_max: int = 8 << 20  # bytes of one group's log, about, after which it is cut


@dataclass(frozen=True, slots=True)
class PartialWrite:
    """A part of the changes of a group that the engine wants to be written."""

    group: int
    hard: tuple[int, int, int] | None = None
    first: int = 0
    entries: Sequence[tuple[int, int, bytes]] = ()


class Condition(Enum):
    """RUNNING -> STOPPED by `stop`, or -> FAILED by the log or a fault in here."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


class Consensus:
    """All replicated groups of one node."""

    durability_class: type[Durability] = Durability  # tests put flaws in
    member_class: type[Member] = Member

    def __init__(
        self, host: Host, node: int, log: NodeLog, peers: Peers, tuning: Tuning | None = None
    ) -> None:
        tuning = tuning or Tuning()
        self.node = node
        self.condition = Condition.RUNNING
        self._host = host
        self._turn = host.turn_state
        self._log = log
        self._peers = peers
        self._log_size_max = tuning.log_size_max
        self._handing_ns = tuning.election_ticks * TICK_NS  # after which the engine forgets a transfer
        self._engine = Groups(
            node,
            seed=int.from_bytes(host.rng.randbytes(7), "little"),
            boot=log.boot,
            heartbeat_ticks=tuning.heartbeat_ticks,
            election_ticks=tuning.election_ticks,
        )
        self._payloads = Payloads(log)
        self._outbox = Outbox(peers, self._payloads, host.log)
        self._durability = self.durability_class(
            log, host.turn_state, host.timers, tuning.sync_interval_ns, self._sync_ended
        )
        self._snapshots = Snapshots(peers)
        self._members: dict[int, Member] = {}
        self._backlog: deque[Member] = deque()  # members with entries to apply, in fair order
        self._waiting: list[Member] = []  # whose entry cannot be read now: until the next tick
        self._late: list[Due] = []  # groups whose log cannot be read now: until the next tick
        self._full: dict[int, None] = {}  # groups whose log has grown too large
        self._reads: dict[
            tuple[int, int], tuple[int, Callable[[], None]]
        ] = {}  # -> when it is forgotten, done
        # Entries that came with a snapshot, and their payloads, by group: written when its data is here.
        self._after_snapshot: dict[int, tuple[PartialWrite, list[bytes]]] = {}
        self._wanted: dict[int, None] = {}  # groups whose state is needed by another replica
        self._silent: set[int] = set()  # nodes
        # Groups that lead without a machine: how often another replica was asked to lead, when the next one is.
        self._unfit: dict[int, tuple[int, int]] = {}
        self._is_staged = False  # the log has something that is not written
        self._queued = False  # in Turn.consensus
        self._timer: Timer | None = None
        self._rests = False  # the timer is for groups that all sleep
        self._ticked_ns = host.turn_state.now

    # -- groups ------------------------------------------------------------------------------------------------

    def open(
        self, group: int, name: str, machine: Machine, conf: Conf | None = None, incarnation: int = 1
    ) -> None:
        """Open a group: a new one with `conf` (empty: it waits for a snapshot), or the one that the log has.

        The machine of a stored group gets `install` with the state at the start of the log, then the entries after
        it. `incarnation` must be higher than that of every earlier replica of the group on this node; the caller must
        ensure this if the log cannot (`lost_unknown`).
        """
        assert group not in self._members
        stored = self._log.groups.get(group)
        if conf is None and stored is not None and stored.is_damaged:
            conf, incarnation = Conf(), incarnation_of(stored.peer) + 1
            self._host.log.error(
                f'The replica of group {group} ("{name}") has lost a part of its log: it begins again empty,'
                f" as replica {incarnation} of this server, and never votes with what is left"
            )
        if conf is not None:
            start = 1 if conf.voters else 0
            self._log.create(group, name, peer_id(self.node, incarnation), conf, start, start)
            self._is_staged = True
        member = self.member_class(group, name, self._log.groups[group].peer, machine)
        member.compact_at = self._log_size_max
        self._members[group] = member
        if self._durability.is_idle or conf is not None:
            self._begin(member)
        else:  # its last life may have written what is not durable yet
            self._durability.add(Due(Waits.REOPEN, member=member), needs_sync=self._durability.is_always)
        self._mark()

    def _begin(self, member: Member) -> None:
        """Open a group in the engine with its stored state and entries."""
        stored = self._log.groups[member.group]
        term, vote, commit = stored.hard
        entries = list(self._log.entries(member.group))
        if stored.start > member.applied:
            member.note_start(stored.start)
            if stored.state:
                state = descriptor.read(stored.state[: descriptor.SIZE])
                data = stored.state[descriptor.SIZE :]
                self._guard(member, partial(member.install, stored.start, state.time_ns, data))
        self._engine.open(
            member.group,
            member.name,
            member.peer,
            _conf_of(stored.conf),
            term=term,
            vote=vote,
            commit=commit,
            start=stored.start,
            start_term=stored.start_term,
            entries=entries,
        )
        member.vote = (term, vote)
        member.take_role(term, Role.FOLLOWER, 0)
        member.log_size = 0
        member.note_entries(entries)

    def close(self, group: int) -> None:
        """Close a group; its log stays."""
        self._forget(group)
        with suppress(UnknownGroup):  # it waits to begin again
            self._engine.close(group)

    def _reopen(self, member: Member) -> None:
        """Open a group again from the log, as after a restart."""
        with suppress(UnknownGroup):
            self._engine.close(member.group)
        self._snapshots.finish(member.group)
        self._after_snapshot.pop(member.group, None)
        try:
            self._begin(member)
        except NotNow:
            self._late.append(Due(Waits.REOPEN, member=member))
        except CorruptRecord as error:
            self._lose_damaged(member, error)

    def _forget(self, group: int) -> None:
        member = self._members.pop(group)
        member.stop()
        self._payloads.forget(group)
        self._snapshots.forget(group)
        self._after_snapshot.pop(group, None)
        self._reads = {key: read for key, read in self._reads.items() if key[0] != group}
        if member in self._waiting:
            self._waiting.remove(member)

    def remove(self, group: int) -> None:
        """Close a group, and remove its log."""
        self.close(group)
        self._log.remove(group)
        self._is_staged = True
        self._mark()

    def stop(self) -> None:
        """Take part in no group any more; the log stays."""
        if self.condition is Condition.RUNNING:
            self._end(Condition.STOPPED, "Server Shutdown")

    # -- what the owner of a group asks for --------------------------------------------------------------------

    def propose(self, group: int, payload: bytes, proposal: object = None) -> bool:
        """Propose an entry; return False if this node does not lead the group.

        The machine gets `proposal` back with the entry, or in a call of `dropped`.
        """
        member = self._members.get(group)
        if member is None or not member.leads or len(payload) > batch.PAYLOAD_MAX:
            return False
        time_ns = member.next_time_ns(self._turn.now + self._turn.skew)
        (place,) = self._engine.propose([(group, descriptor.describe(payload, time_ns))])
        if place is None:
            return False
        self._payloads.stage((group, *place), payload)
        member.proposed(*place, time_ns, proposal)
        self._mark()
        return True

    def read_index(self, group: int, done: Callable[[], None]) -> bool:
        """Call `done` when everything that was committed before this call has been applied here.

        Returns False if no leader is known, or the group has stopped here. `done` is never called if the leader
        changes meanwhile.
        """
        member = self._members.get(group)
        if member is None or member.state is State.STOPPED:
            return False
        try:
            number = self._engine.read_index(group)
        except (Refused, UnknownGroup, Quarantined):
            return False
        self._reads[group, number] = (self._turn.now + READ_NS, done)
        self._mark()
        return True

    def transfer(self, group: int, node: int) -> None:
        """Transfer the leadership to the replica on another node.

        Raises:
            Refused: this node does not lead, or there is no voter on that node.
        """
        conf = self._engine.status(group).conf
        peer = next((peer for peer in conf.voters if node_of(peer) == node), 0)
        self._engine.transfer(group, peer)
        self._mark()

    def change(self, group: int, changes: Sequence[tuple[int, int]]) -> None:
        """Propose changes of the membership as (Change, peer); several changes use joint consensus.

        Raises:
            Refused: this node does not lead, or another change is under way.
        """
        self._engine.change(group, list(changes))
        self._mark()

    def campaign(self, group: int) -> None:
        """Start an election now, as a candidate.

        Raises:
            Refused: the state of this node is not durable yet.
        """
        self._engine.campaign(group)
        self._mark()

    def status(self, group: int) -> GroupStatus:
        """Return the current status of a group."""
        return status_of(self._members[group], self._engine.status(group))

    # -- other nodes -------------------------------------------------------------------------------------------

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch from another node.

        Raises:
            BadBatch: the batch is damaged, and no part of it was used.
        """
        if self.condition is not Condition.RUNNING:
            return
        found = batch.read(data)
        if isinstance(found, Frames):
            for key, payload in found.payloads:
                self._payloads.stage(key, payload)
            self._engine.step(found.frames)
        elif isinstance(found, Fetch):
            self._snapshots.asked(node, found, self._turn.now)
        elif isinstance(found, Part):
            self._snapshots.came(node, found, self._turn.now)
        else:
            self._snapshots.ends(node, found)
        self._mark()

    def node_silent(self, node: int) -> None:
        """Handle a silent node or the end of its connection: groups that it leads elect a new leader at once."""
        self._silent.add(node)
        self._engine.node_silent(node)
        self._snapshots.lost(node)
        self._mark()

    def node_heard(self, node: int) -> None:
        """Note that a node answers again."""
        self._silent.discard(node)
        self._engine.node_heard(node)
        self._mark()

    # -- the turn ----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do the ready work; the rest waits for the next turn."""
        self._queued = False
        if self.condition is not Condition.RUNNING:
            return
        try:
            self._agree()
            self._apply_some()
            self._go_on()
        except StoreFailed as error:
            self._fail(f"the log of replicated groups cannot be written: {error}")
        except Exception:
            self._fail("of an unexpected failure")
            raise
        if self._backlog:
            self._queue()

    def _agree(self) -> None:
        """Report durable writes to the engine and take its output, until there is no more for now."""
        self._report_durable()
        installs = self._stage_installs()
        for _ in range(ROUNDS):
            ready = self._engine.ready()
            self._outbox.send(ready.frames)
            writes = ready.writes
            has_vote = bool(writes) and self._stage(writes)
            self._payloads.forget_staged()
            self._flush()
            if ready.token:
                needs_sync = has_vote or self._durability.is_always
                self._durability.add(Due(Waits.STORED, ready.token), needs_sync=needs_sync)
            for due in installs:
                self._durability.add(due, needs_sync=True)
            installs = []
            self._take(ready, writes)
            self._report_durable()
            if not ready.token:
                break  # nothing was stored, so nothing new can be ready
        self._durability.begin()
        self._find_lost()

    def _stage(self, writes: Sequence[Write]) -> bool:
        """Stage the writes in the log; return whether they include a vote or a term."""
        has_vote = False
        for write in writes:
            group, hard, entries = write.group, write.hard, write.entries
            if not entries and hard is None:
                continue
            member = self._members[group]
            payloads = [
                self._payloads.take((group, index, term)) if kind == DATA else b""
                for index, (term, kind, _) in enumerate(entries, write.first)
            ]
            part: Write | PartialWrite = write
            if write.snapshot is not None and entries:
                self._after_snapshot[group] = PartialWrite(group, None, write.first, entries), payloads
                part, payloads = PartialWrite(group, hard), []
                entries = []
            try:
                self._log.write(part, payloads)
            except CorruptRecord as error:
                self._lose_damaged(member, error)
                continue
            self._is_staged = True
            if hard is not None and hard[:2] != member.vote:
                member.vote = hard[:2]
                has_vote = True
            if entries:
                member.note_entries(entries)
        return has_vote

    def _flush(self) -> None:
        if self._is_staged:
            self._is_staged = False
            self._log.flush()
            self._durability.wrote()

    def _take(self, ready: Ready, writes: Sequence[Write]) -> None:
        """Handle the output of the engine: roles, committed entries, reads."""
        for group, term, role, leader in ready.roles:
            member = self._members.get(group)
            if member is None:  # closed in this turn
                continue
            self._guard(member, partial(member.take_role, term, Role(role), node_of(leader)))
            if _is_unfit(member):
                self._hand_over(member)
        for group, index, term, kind, body in ready.committed:
            member = self._members.get(group)
            if member is None:
                continue
            member.take((index, term, kind, body))
            if not member.in_backlog and member.queue:
                member.in_backlog = True
                self._backlog.append(member)
        for group, number, index in ready.reads:
            _, done = self._reads.pop((group, number), (0, None))
            member = self._members.get(group)
            if done is not None and member is not None:
                self._guard(member, partial(member.wants_read, index, done))
        for write in writes:
            if write.snapshot is not None:
                self._fetch(write.group, write.snapshot)
        for group, _ in ready.wanted:
            self._wanted[group] = None
        for group, peer, index in ready.snapshots:
            self._snapshots.sent(group, peer, index, self._turn.now)

    def _report_durable(self) -> None:
        """Report durable writes to the engine, and send the frames that waited for them."""
        for due in self._durability.take():
            if due.kind is Waits.STORED:
                self._outbox.send(self._engine.stored(due.token))
                continue
            member = due.member
            if member is not None and self._members.get(member.group) is member:
                if due.kind is Waits.REOPEN:
                    self._reopen(member)
                else:
                    self._installed(member, due.index)

    def _sync_ended(self, error: Exception | None) -> None:
        if self.condition is not Condition.RUNNING:
            return
        if error is not None:
            self._fail(f"the log of replicated groups cannot be synced: {error}")
        else:
            self._queue()

    def _apply_some(self) -> None:
        """Apply committed entries within a share of the turn, in fair order over the groups."""
        count, size = APPLIES, APPLY_SIZE
        while self._backlog and count > 0 and size > 0:
            member = self._backlog.popleft()
            try:
                done, used = member.apply_some(self._payloads, min(count, FAIR_APPLIES), size)
            except Unreadable as error:
                if error.is_lasting:
                    self._lose_damaged(member, error)
                else:
                    self._waiting.append(member)
                continue
            except Exception as error:  # of a machine: others go on
                self._stop_member(member, error)
                done = used = 0
            count -= max(done, 1)
            size -= used
            member.in_backlog = bool(member.queue)
            if member.in_backlog:
                self._backlog.append(member)
            if member.log_size > member.compact_at:
                self._full[member.group] = None

    def _go_on(self) -> None:
        """Continue the snapshots, and compact full logs."""
        snapshots = self._snapshots
        while snapshots.ended:
            group, peer, done = snapshots.ended.pop()
            with suppress(RaftError):  # closed meanwhile
                self._engine.report_snapshot(group, peer, done)
        while snapshots.given_up:
            self._give_up(snapshots.given_up.pop())
        if self._wanted:
            group, _ = self._wanted.popitem()
            if group in self._members:
                self._offer(self._members[group])
        if self._full:
            group, _ = self._full.popitem()
            if group in self._members:
                self._cut(self._members[group])
        if self._wanted or self._full or snapshots.whole or self._is_staged:
            self._queue()

    # -- snapshots and the start of the log --------------------------------------------------------------------

    def _snapshot(self, member: Member) -> bytes | None:
        """Return descriptor and data of the state after the last applied entry, or None if there is none now."""
        if member.state is not State.RUNNING:
            return None
        try:
            data = member.machine.snapshot()
        except Exception as error:
            self._stop_member(member, error)
            return None
        return None if data is None else descriptor.describe(data, member.applied_time_ns) + data

    def _offer(self, member: Member) -> None:
        """Offer the state to replicas whose next entries were compacted; if that fails now, the engine asks again."""
        state = self._snapshot(member)
        if state is None:
            return
        with suppress(RaftError):  # it leads no more
            self._engine.offer_snapshot(member.group, member.applied, state[: descriptor.SIZE])
            self._snapshots.offer(member.group, member.applied, state[descriptor.SIZE :], self._turn.now)

    def _cut(self, member: Member) -> None:
        """Compact a full log up to the last applied entry, unless another replica soon needs these entries."""
        member.compact_at = member.log_size + self._log_size_max // 4
        stored = self._log.groups[member.group]
        is_urgent = member.group in self._log.crowding()
        if member.applied <= stored.start or (self._is_behind(member) and not is_urgent):
            return
        state = self._snapshot(member)
        if state is None:
            return
        try:
            index, term, conf = self._engine.compact(member.group, member.applied)
        except RaftError:
            return  # its own snapshot is on the way
        try:
            self._log.point(member.group, index, term, conf, state)
        except CorruptRecord as error:
            self._lose_damaged(member, error)
            return
        self._is_staged = True
        member.note_cut()
        member.compact_at = self._log_size_max

    def _is_behind(self, member: Member) -> bool:
        """Whether a replica that answers still needs the entries to compact; the log waits for it up to a size."""
        if member.role != Role.LEADER or member.log_size > PATIENCE * self._log_size_max:
            return False
        matched = self._engine.status(member.group).matched
        return any(index < member.applied and node_of(peer) not in self._silent for peer, index in matched)

    def _fetch(self, group: int, point: Point) -> None:
        """Fetch the data of a snapshot from the leader."""
        member = self._members.get(group)
        if member is None:
            return
        try:
            self._snapshots.fetch(group, member.leader, point, self._turn.now)
        except descriptor.BadDescriptor as error:
            self._host.log.error(f"A snapshot of {member} is refused: {error}")
            self._give_up(group)

    def _give_up(self, group: int) -> None:
        """Reopen a group without the snapshot that did not arrive."""
        member = self._members.get(group)
        if member is not None and self._snapshots.finish(group) is not None:
            self._durability.add(Due(Waits.REOPEN, member=member), needs_sync=self._durability.is_always)
            self._queue()

    def _stage_installs(self) -> list[Due]:
        """Write complete snapshots to the log; return the work that waits for that."""
        dues = []
        for group in self._snapshots.take_whole():
            member = self._members[group]
            try:
                point, data = self._snapshots.data_of(group)
            except descriptor.BadDescriptor as error:
                self._host.log.error(f"A snapshot of {member} is refused: {error}")
                self._give_up(group)
                continue
            try:
                self._log.point(group, point.index, point.term, point.conf, point.descriptor + data)
                if group in self._after_snapshot:
                    self._log.write(*self._after_snapshot.pop(group))
            except CorruptRecord as error:
                self._lose_damaged(member, error)
                continue
            self._is_staged = True
            member.await_start(point.index)
            dues.append(Due(Waits.INSTALLED, member=member, index=point.index))
        return dues

    def _installed(self, member: Member, index: int) -> None:
        """Use a snapshot that is durable."""
        incoming = self._snapshots.finish_whole(member.group, index)
        if incoming is None:
            return  # the group began again, with it; or a newer one is on its way
        _, time_ns, _ = incoming.wanted
        member.note_start(index)
        self._guard(member, partial(member.install, index, time_ns, bytes(incoming.data)))
        with suppress(RaftError):
            self._outbox.send(self._engine.installed(member.group, index))
        self._snapshots.arrived(member.group, incoming)

    # -- faults ------------------------------------------------------------------------------------------------

    def _guard(self, member: Member, call: Callable[[], object]) -> None:
        """Call a method of a machine; an exception stops the group here."""
        try:
            call()
        except Exception as error:
            self._stop_member(member, error)

    def _stop_member(self, member: Member, error: Exception) -> None:
        """Stop applying entries to a group whose machine has failed: it may lag behind, but never differ."""
        self._host.faults.report("apply", f"a replica: {member} stops here", error, self._turn.now)
        try:
            member.stop()
        except Exception as again:
            self._host.faults.report("apply", f"the end of {member}", again, self._turn.now)
        if _is_unfit(member):
            self._hand_over(member)

    def _hand_over(self, member: Member) -> None:
        """Transfer the leadership to the replica with the longest log, or to the next one if that fails."""
        tries, at_ns = self._unfit.get(member.group, (0, 0))
        if self._turn.now < at_ns:
            return
        self._unfit[member.group] = tries + 1, self._turn.now + self._handing_ns
        with suppress(RaftError):  # it leads no more
            found = self._engine.status(member.group)
            others = [(index, peer) for peer, index in found.matched if peer in found.conf.voters]
            heirs = [peer for _, peer in sorted(others, reverse=True) if peer != member.peer]
            heirs = [peer for peer in heirs if node_of(peer) not in self._silent] or heirs
            if heirs:
                self._engine.transfer(member.group, heirs[tries % len(heirs)])
                self._queue()

    def _hand_over_again(self) -> None:
        """Request again the transfer of groups that are still led here without a machine."""
        for group in list(self._unfit):
            member = self._members.get(group)
            if member is not None and _is_unfit(member):
                self._hand_over(member)
            else:
                del self._unfit[group]

    def _find_lost(self) -> None:
        """Close groups that have panicked, or whose entries cannot be sent, and log each once."""
        damaged = self._outbox.damaged
        while damaged:
            group, error = damaged.popitem()
            if group in self._members:
                self._lose_damaged(self._members[group], error)
        for group, text in self._engine.quarantined():
            member = self._members.get(group)
            if member is not None:
                self._lose(member, text)

    def _lose_damaged(self, member: Member, error: Exception) -> None:
        self._lose(member, f"its log is damaged: {error}")

    def _lose(self, member: Member, cause: str) -> None:
        """Close a group whose state is not reliable any more; no write of this turn is acknowledged for it."""
        self._host.log.error(
            f"The replica of {member} is closed on this server until a restart, other groups go on: {cause}"
        )
        self._guard(member, partial(member.take_role, member.term, Role.FOLLOWER, 0))
        with suppress(UnknownGroup):
            self._engine.close(member.group)
        self._forget(member.group)

    def _fail(self, cause: str) -> None:
        """Take part in no group any more, since this node might break promises."""
        if self.condition is Condition.RUNNING:
            self._host.log.error(
                f"This server takes no part in replicated groups until a restart, because {cause}"
            )
            self._end(Condition.FAILED, "Replication Failed")

    def _end(self, condition: Condition, reason: str) -> None:
        self.condition = condition
        self._durability.stop()
        self._peers.stop(reason)
        if self._timer is not None:
            self._timer.cancel()
        self._reads.clear()
        self._backlog.clear()
        for member in list(self._members.values()):
            self._guard_end(member)

    def _guard_end(self, member: Member) -> None:
        try:
            member.take_role(member.term, Role.FOLLOWER, 0)
            member.stop()
        except Exception as error:
            self._host.faults.report("apply", f"the end of {member}", error, self._turn.now)

    # -- time --------------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Request a turn, and tick faster again, since groups may have work."""
        self._queue()
        if self._timer is None or self._rests:
            self._ticked_ns = self._turn.now
            self._arm(TICK_NS)

    def _queue(self) -> None:
        if not self._queued and self.condition is Condition.RUNNING:
            self._queued = True
            self._turn.consensus.append(self)

    def _arm(self, wait_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._rests = wait_ns == REST_NS
        if self.condition is Condition.RUNNING:
            self._timer = self._host.timers.at(self._turn.now + wait_ns, self._tick)

    def _tend_log(self) -> None:
        """Create the next file of the log in advance, and let groups in old files be compacted."""
        try:
            self._durability.look_ahead()
            if self._rests and self._durability.is_idle and not self._is_staged:
                self._log.witness()
        except StoreFailed as error:
            self._fail(f"the log of replicated groups cannot be written: {error}")
        self._full.update(dict.fromkeys(self._log.crowding()))

    def _tick(self) -> None:
        """Advance the time of the groups: often if they have work, otherwise rarely."""
        self._timer = None
        now_ns = self._turn.now
        late = max(1, (now_ns - self._ticked_ns) // TICK_NS)
        for _ in range(min(late, REST_NS // TICK_NS if self._rests else LATE_TICKS)):
            self._engine.tick()
        self._ticked_ns = now_ns
        self._snapshots.tick(now_ns)
        self._backlog.extend(self._waiting)
        has_waited = bool(self._waiting or self._late)
        self._waiting.clear()
        for due in self._late:
            self._durability.add(due, needs_sync=False)
        self._late.clear()
        if self._reads:
            self._reads = {key: read for key, read in self._reads.items() if read[0] > now_ns}
        self._tend_log()
        self._hand_over_again()
        _, awake = self._engine.counts()
        is_busy = awake or has_waited or self._reads or self._snapshots.is_busy
        self._arm(TICK_NS if is_busy else REST_NS)
        self._queue()


def _is_unfit(member: Member) -> bool:
    """Whether this node leads a group whose machine has stopped."""
    return member.state is State.STOPPED and member.role == Role.LEADER


def _conf_of(stored: Membership) -> Conf:
    """Return a membership in the form of the engine."""
    voters, learners, outgoing, next_learners, auto_leave = stored
    return Conf(list(voters), list(learners), list(outgoing), list(next_learners), auto_leave)
