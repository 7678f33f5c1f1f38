"""The consensus of one node: the engine of all its replicated groups, their log, payloads and state machines.

A turn, in the order of its effects:

1. durable writes are reported to the engine, and the frames that waited for them are sent;
2. the engine's output is handled: frames are sent, changes are written to the log at once, a sync begins;
3. committed entries are applied, some in each turn, in fair order over the groups;
4. reads whose index has been applied are answered, full logs are compacted, snapshots continue.

If a machine raises an exception, its group stops on this node. A group that panics in the engine is reopened. A group
whose log is damaged returns empty, as a new replica. If the log fails, the node leaves all groups and sends nothing.

This module uses no sockets, disks or clocks: the log and the peers are seams, and the time is that of the turn.
Long because it has all calls of the engine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.errors import CorruptRecord, NotNow, StoreFailed
from pyjs.consensus import batch, descriptor
from pyjs.consensus.batch import Fetch, Frames, Has, Lacks, Part
from pyjs.consensus.compaction import Compaction, States
from pyjs.consensus.doubt import Doubts, lacks_entries
from pyjs.consensus.engine import (
    Conf,
    Groups,
    RaftError,
    Role,
    UnknownGroup,
    conf_of,
    incarnation_of,
    node_of,
    peer_id,
    voters_of,
)
from pyjs.consensus.faults import LostGroups, MachineFaults, Successions
from pyjs.consensus.log.durability import Due, Durability, Waits
from pyjs.consensus.member import Member, State
from pyjs.consensus.outbox import Outbox
from pyjs.consensus.payloads import Payloads
from pyjs.consensus.reads import Reads
from pyjs.consensus.round import Round
from pyjs.consensus.snapshots import PartialWrite, Snapshots
from pyjs.consensus.status import Condition, GroupStatus, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyjs.base.timers import Timer
    from pyjs.consensus.compaction import Made
    from pyjs.consensus.engine import Point, Ready, Write
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.member import Unreadable
    from pyjs.consensus.seams import Machine, Peers
    from pyjs.core.host import Host

TICK_NS = 10 * NS_PER_MS
LATE_TICKS = 3  # after a pause, a node makes up for at most this many ticks at once
REST_NS = NS_PER_S  # time between two checks of groups that are all idle


@dataclass(frozen=True, slots=True)
class Tuning:
    """The options of consensus. A tick is TICK_NS (10 ms)."""

    sync_interval_ns: int = 0  # 0: sync before every acknowledgement
    election_ticks: int = 20
    heartbeat_ticks: int = 5
    log_size_max: int = 8 << 20  # approximate bytes of one group's log, after which it is compacted


class Consensus:
    """The consensus of one node: the engine, the log and the members of all its replicated groups."""

    durability_class: type[Durability] = Durability  # tests use one with flaws
    member_class: type[Member] = Member
    payloads_class: type[Payloads] = Payloads

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
        self._engine = Groups(
            node,
            seed=int.from_bytes(host.rng.randbytes(7), "little"),
            boot=log.boot,
            heartbeat_ticks=tuning.heartbeat_ticks,
            election_ticks=tuning.election_ticks,
        )
        self._payloads = self.payloads_class(log)
        self._outbox = Outbox(peers, self._payloads, host.log)
        self.durability = self.durability_class(
            log, host.turn_state, host.timers, tuning.sync_interval_ns, self._sync_ended
        )
        self._snapshots = Snapshots(peers)
        self._silent: set[int] = set()  # nodes that do not answer
        self._reads = Reads(self._engine)
        self.doubts = Doubts(self._engine, peers, log)
        self._compaction = Compaction(self._engine, log, tuning.log_size_max, self._silent)
        self._faults = MachineFaults(
            host.faults, host.turn_state, self._engine, self._silent, tuning.election_ticks * TICK_NS
        )
        self._states = States(self._faults, tuning.sync_interval_ns)
        self._waiting: list[Member] = []  # members whose next entry cannot be read before the next tick
        self._late: list[Due] = []  # groups whose log cannot be read now; tried again at the next tick
        self._lost = LostGroups(host.faults, host.log, host.turn_state, log, node)
        self._successions = Successions(peers, self._silent)
        # Entries that came with a snapshot, and their payloads, by group; written when the data of the
        # snapshot is complete.
        self._after_snapshot: dict[int, tuple[PartialWrite, list[bytes]]] = {}
        self._wanted: dict[int, None] = {}  # groups whose state is needed by another replica
        snapshots = self._snapshots
        chores = (
            snapshots.ended,
            snapshots.given_up,
            snapshots.whole,
            self._wanted,
            self._compaction.full,
            self._states.making,
        )
        self._round = Round(
            self,
            host.turn_state,
            self._engine,
            log,
            self._outbox,
            self._payloads,
            self.durability,
            self._faults,
            self._snapshots.whole,
            chores,
        )
        self._members = self._round.members
        self._timer: Timer | None = None
        self._ticked_ns = host.turn_state.now

    # -- groups ------------------------------------------------------------------------------------------------

    def open(
        self, group: int, name: str, machine: Machine, conf: Conf | None = None, incarnation: int = 1
    ) -> None:
        """Open a group: create a replica with membership `conf`, or use the replica in the log if `conf` is None.

        A new replica with an empty `conf` waits for a snapshot. The machine of a stored replica gets `install` with
        the state at the start of the log, if there is one, and then the later entries.

        The `incarnation` of a new replica must be higher than that of every earlier replica of the group on this
        node. For a stored replica, `incarnation` is the highest that the caller knows. If its log is damaged, the
        replica starts empty with a higher incarnation.
        """
        assert group not in self._members
        self._lost.forget(group)
        stored = self._log.groups.get(group)
        if conf is None and stored is not None and stored.is_damaged:
            conf, incarnation = Conf(), max(incarnation, incarnation_of(stored.peer)) + 1
            self._host.log.error(
                f'The replica of group {group} ("{name}") has lost a part of its log: it begins again empty,'
                f" as replica {incarnation} of this server, and never votes with what is left"
            )
        if conf is not None:
            self.doubts.unsure.discard(group)
            start = 1 if conf.voters else 0
            self._log.create(group, name, peer_id(self.node, incarnation), conf, start, start)
            self._round.is_staged = True
        member = self.member_class(group, name, self._log.groups[group].peer, machine)
        self._compaction.begin(member)
        self._members[group] = member
        if self.durability.is_idle or conf is not None:
            self._begin(member)
        else:  # the entries may not be durable yet: an earlier process wrote them
            self.durability.add(Due(Waits.REOPEN, member=member), needs_sync=self.durability.is_always)
        self._round.mark()

    def _begin(self, member: Member) -> None:
        """Open a group in the engine, with its stored hard state and entries."""
        is_unsure = member.group in self.doubts.unsure
        if is_unsure:
            self._log.forget_commit(member.group)
        stored = self._log.groups[member.group]
        term, vote, commit = stored.hard
        conf, entries = conf_of(stored.conf), list(self._log.entries(member.group))
        if stored.start > member.applied:
            member.note_start(stored.start)
            if stored.state:
                state = descriptor.read(stored.state[: descriptor.SIZE])
                data = stored.state[descriptor.SIZE :]
                self._install(member, stored.start, state.time_ns, data)
        self._engine.open(
            member.group,
            member.name,
            member.peer,
            conf,
            term=term,
            vote=vote,
            commit=commit,
            start=stored.start,
            start_term=stored.start_term,
            entries=entries,
        )
        if is_unsure:
            self.doubts.begin(member.group, member.peer)
        self._engine.set_prompt(member.group, member.is_prompt)
        member.vote, member.voters = (term, vote), voters_of(conf)
        member.take_role(term, Role.FOLLOWER, 0)
        member.log_size = 0
        member.note_entries(entries)

    def close(self, group: int) -> None:
        """Close a group; its log remains. If this node leads the group, ask another replica to start an election."""
        if group in self._members:
            self._successions.begin(self._members[group], self._turn.now)
        self._forget(group)

    def _reopen(self, member: Member) -> None:
        """Reopen a group from the log, as after a restart."""
        with suppress(UnknownGroup):
            self._engine.close(member.group)
        self._snapshots.finish(member.group)
        self._after_snapshot.pop(member.group, None)
        try:
            self._begin(member)
        except NotNow:
            self._late.append(Due(Waits.REOPEN, member=member))
        except CorruptRecord as error:
            self.lose_damaged(member, error)
        except (RaftError, ValueError) as error:
            self._lose(member, f"the engine refuses its stored state: {error}")

    def _forget(self, group: int) -> None:
        member = self._members.pop(group, None)
        if member is None:  # a fault has closed the group
            return
        with suppress(UnknownGroup):  # the engine has not opened it again yet
            self._engine.close(group)
        member.stop()
        self._payloads.forget(group)
        self._snapshots.forget(group)
        self._after_snapshot.pop(group, None)
        self._reads.forget(group)
        self.doubts.forget(group)
        if member in self._waiting:
            self._waiting.remove(member)

    def remove(self, group: int) -> None:
        """Close a group, and remove its log."""
        self._forget(group)
        self._lost.forget(group)
        self._successions.forget(group)
        self.doubts.unsure.discard(group)
        self._log.remove(group)
        self._round.is_staged = True
        self._round.mark()

    def stop(self) -> None:
        """Leave all groups; the log remains."""
        if self.condition is Condition.RUNNING:
            self._end(Condition.STOPPED, "Server Shutdown")

    # -- requests from the owner of a group --------------------------------------------------------------------

    def propose(self, group: int, payload: bytes, proposal: object = None) -> bool:
        """Propose an entry; return False if the entry is refused.

        It is refused if this node does not lead the group, if the payload is larger than PAYLOAD_MAX bytes, or if the
        engine refuses it. The machine gets `proposal` together with the committed entry, or in a call of `dropped`.
        """
        return self._round.propose(group, payload, proposal)

    def read_index(self, group: int, done: Callable[[], None]) -> bool:
        """Call `done` when all entries that were committed before this call have been applied on this node.

        Return False if the read is refused: the group is not open, has stopped on this node, or no leader is known.
        An accepted read is dropped if the group stops, or if the leader does not answer in time.
        """
        member = self._members.get(group)
        if member is None or member.state is State.STOPPED:
            return False
        is_asked = self._reads.ask(group, done, self._turn.now)
        if is_asked:
            self._round.mark()
        return is_asked

    def has_tail(self, group: int) -> bool:
        """Return whether a group is open and its log has entries that this node has not applied."""
        member = self._members.get(group)
        return member is not None and member.applied < self._log.groups[group].last

    def set_prompt(self, group: int, is_prompt: bool) -> None:
        """Set whether followers get a new commit index at once.

        Otherwise they get it with the next entry, but at the latest after two ticks.
        """
        member = self._members.get(group)
        if member is not None:
            member.is_prompt = is_prompt
            with suppress(RaftError):  # the engine has not opened it again yet
                self._engine.set_prompt(group, is_prompt)

    def transfer(self, group: int, node: int) -> None:
        """Begin to transfer the leadership of a group to the replica on another node.

        Raise Refused if this node does not lead or no voter is on that node, and UnknownGroup if the group is closed.
        """
        conf = self._engine.status(group).conf
        peer = next((peer for peer in conf.voters if node_of(peer) == node), 0)
        self._engine.transfer(group, peer)
        self._round.mark()

    def change(self, group: int, changes: Sequence[tuple[int, int]]) -> None:
        """Propose changes of the membership, each a pair (Change, peer). Several changes use joint consensus.

        Raise Refused if this node does not lead or a change is under way, and UnknownGroup if the group is closed.
        """
        self._engine.change(group, list(changes))
        self._round.mark()

    def campaign(self, group: int) -> None:
        """Start an election now, with this node as the candidate.

        Raise Refused if entries of this node are not durable yet, and UnknownGroup if a fault has closed the group.
        """
        self._engine.campaign(group)
        self._round.mark()

    def conclude(self, group: int) -> bool:
        """Apply the whole log of an open group without other replicas; return whether all entries are applied."""
        is_done = self.doubts.conclude(self._members[group])
        self._round.continue_with(self._members[group])
        self._round.queue()
        return is_done

    def status(self, group: int) -> GroupStatus:
        """Return the current status of an open group."""
        return status_of(self._members[group], self._engine.status(group))

    # -- other nodes -------------------------------------------------------------------------------------------

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch from another node; raise BadBatch, and use no part of the batch, if it is damaged."""
        if self.condition is not Condition.RUNNING:
            return
        found = batch.read(data, node)
        if isinstance(found, Frames):
            self._round.step(found.frames, found.payloads)
            if self._successions.open:
                self._successions.heard(found.frames)
            return
        if isinstance(found, Fetch):
            self._snapshots.asked(node, found, self._turn.now)
        elif isinstance(found, Lacks | Has):
            self.doubts.receive(node, found)
        elif isinstance(found, Part):
            self._snapshots.came(node, found, self._turn.now)
        else:
            self._snapshots.ends(node, found)
        self._round.mark()

    def node_silent(self, node: int) -> None:
        """Handle a node that is silent or has disconnected: the groups that it leads elect a new leader at once."""
        self._silent.add(node)
        self._engine.node_silent(node)
        self._snapshots.lost(node)
        self._round.mark()

    def node_heard(self, node: int) -> None:
        """Record that a silent node answers again."""
        self._silent.discard(node)
        self._engine.node_heard(node)
        self._round.mark()

    # -- the turn: its rare half, called by Round ------------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """Leave all groups, because a turn has raised `error`.

        Raises:
            Exception: `error`, if it is not expected.
        """
        if isinstance(error, StoreFailed):
            self._fail(f"the log of replicated groups cannot be written: {error}")
        else:
            self._fail(f"of an unexpected failure: {error!r}")
            raise error

    def keep_for_snapshot(self, write: Write, payloads: list[bytes]) -> None:
        """Keep entries that came with a snapshot until its data is complete."""
        self._after_snapshot[write.group] = (
            PartialWrite(write.group, None, write.first, write.entries),
            payloads,
        )

    def take_roles(
        self, roles: Sequence[tuple[int, int, int, int]], confs: Sequence[tuple[int, int, Conf]]
    ) -> None:
        """Handle changes of roles and of memberships."""
        for group, term, role, leader in roles:
            member = self._members.get(group)
            if member is None:  # closed in this turn
                continue
            self._faults.guard(member, partial(member.take_role, term, Role(role), node_of(leader)))
            self._faults.check(member)
            self._round.continue_with(member)
        for group, _, conf in confs:
            if group in self._members:
                self._members[group].voters = voters_of(conf)

    def take_rest(self, ready: Ready, writes: Sequence[Write]) -> None:
        """Handle answers to reads, and snapshots."""
        for group, number, index in ready.reads:
            done = self._reads.take(group, number)
            member = self._members.get(group)
            if done is not None and member is not None:
                self._faults.guard(member, partial(member.wants_read, index, done))
                self._round.continue_with(member)
        for write in writes:
            if write.snapshot is not None:
                self._fetch(write.group, write.snapshot)
        for group, _ in ready.wanted:
            self._wanted[group] = None
        for group, peer, index in ready.snapshots:
            self._snapshots.sent(group, peer, index, self._turn.now)

    def continue_durable(self, due: Due) -> None:
        """Continue a group whose snapshot, or whose entries, have become durable."""
        member = due.member
        if member is not None and self._members.get(member.group) is member:
            if due.kind is Waits.REOPEN:
                self._reopen(member)
            else:
                self._installed(member, due.index)

    def cannot_read(self, member: Member, error: Unreadable) -> None:
        """Try to read the next entry again at the next tick, or close the group if the entry is damaged."""
        if error.is_lasting:
            self.lose_damaged(member, error)
        else:
            self._waiting.append(member)

    def check_size(self, member: Member) -> None:
        """Queue a group for a compaction if its log is large."""
        self._compaction.check(member)

    def _sync_ended(self, error: Exception | None) -> None:
        if self.condition is not Condition.RUNNING:
            return
        if error is not None:
            self._fail(f"the log of replicated groups cannot be synced: {error}")
        else:
            self._round.queue()

    def do_chores(self) -> None:
        """Continue the snapshots, and compact the log of at most one group; queue a turn if work remains."""
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
                self._states.make(self._members[group], self._offered, self._turn.now)
        if self._compaction.full:
            group = self._compaction.take()
            if group in self._members:
                self._cut(self._members[group])
            elif self._lost.renew(group):
                self._round.is_staged = True
        if self._states.making:
            self._states.go_on(self._members, self._turn.now)
        is_busy = self._wanted or self._states.making or snapshots.whole or self._round.is_staged
        if is_busy or self._compaction.full:
            self._round.queue()

    # -- snapshots and the start of the log --------------------------------------------------------------------

    def _offered(self, made: Made, state: bytes) -> None:
        """Offer a state as a snapshot to replicas whose next entries were cut from the log."""
        group, index = made.member.group, made.index
        with suppress(RaftError):  # this node has lost the leadership
            self._engine.offer_snapshot(group, index, state[: descriptor.SIZE])
            self._snapshots.offer(group, index, state[descriptor.SIZE :], self._turn.now)
            self._round.queue()

    def _cut(self, member: Member) -> None:
        """Begin to cut the log of a group, unless another replica still needs its entries.

        If the machine has stopped and the log is too large, the group is closed instead.
        """
        if member.state is State.STOPPED:
            if self._compaction.must_drop(member):
                self._lose(member, "its machine is stopped, and its log has become too large")
            return
        try:
            end = member.cut_end() if self._compaction.may_cut(member) else 0
        except Exception as error:  # raised by the machine
            self._faults.stop(member, error)
            return
        if end:
            self._states.make(member, self._cut_to, self._turn.now, end)

    def _cut_to(self, made: Made, state: bytes) -> None:
        try:
            self._round.is_staged |= self._compaction.cut(made.member, made.index, state, made.size)
        except CorruptRecord as error:
            self.lose_damaged(made.member, error)

    def _fetch(self, group: int, point: Point) -> None:
        """Begin to fetch the data of a snapshot from the leader of the group."""
        member = self._members.get(group)
        if member is None:
            return
        try:
            self._snapshots.fetch(group, member.leader, point, self._turn.now)
        except descriptor.BadDescriptor as error:
            self._host.log.error(f"A snapshot of {member} is refused: {error}")
            self._give_up(group)

    def _give_up(self, group: int) -> None:
        """Drop the snapshot that a group is fetching, and reopen the group from its log."""
        member = self._members.get(group)
        if member is not None and self._snapshots.finish(group) is not None:
            self.durability.add(Due(Waits.REOPEN, member=member), needs_sync=self.durability.is_always)
            self._round.queue()

    def stage_installs(self) -> list[Due]:
        """Stage complete snapshots in the log; return the work to do when they are durable."""
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
                self.lose_damaged(member, error)
                continue
            self._round.is_staged = True
            member.voters = voters_of(point.conf)
            member.await_start(point.index)
            dues.append(Due(Waits.INSTALLED, member=member, index=point.index))
        return dues

    def _installed(self, member: Member, index: int) -> None:
        """Install a snapshot that has become durable, and report it to the engine and to its sender."""
        incoming = self._snapshots.finish_whole(member.group, index)
        if incoming is None:
            return  # the group was reopened with the snapshot, or a newer snapshot is on its way
        _, time_ns, _ = incoming.wanted
        member.note_start(index)
        self._install(member, index, time_ns, bytes(incoming.data))
        with suppress(RaftError):
            self._outbox.send(self._engine.installed(member.group, index))
        self._snapshots.arrived(member.group, incoming)

    def _install(self, member: Member, index: int, time_ns: int, data: bytes) -> None:
        """Begin to install a state in the machine of a group; `Member.apply_some` runs the remaining steps."""
        self._faults.guard(member, partial(member.install, index, time_ns, data))
        if member.is_installing:
            self._round.continue_with(member)
            self._round.queue()

    # -- faults ------------------------------------------------------------------------------------------------

    def find_lost(self) -> None:
        """Handle the groups that have damaged entries, or that have panicked in the engine."""
        damaged = self._outbox.damaged
        while damaged:
            group, error = damaged.popitem()
            if group in self._members:
                self.lose_damaged(self._members[group], error)
        for group, text in self._engine.quarantined():
            member = self._members.get(group)
            if member is not None:
                (self._lose if lacks_entries(text) else self._panicked)(member, text)

    def _panicked(self, member: Member, text: str) -> None:
        """Close a panicked group, and reopen it from its log after a pause that grows with each of its panics."""
        self._host.log.error(
            f"The replica of {member} is opened again from its log, other groups go on: {text}"
        )
        self._step_down(member)
        self._engine.close(member.group)
        self._host.timers.at(self._faults.reopen_ns(member), partial(self._reopen_later, member))

    def _reopen_later(self, member: Member) -> None:
        if self._members.get(member.group) is member:
            self.durability.add(Due(Waits.REOPEN, member=member), needs_sync=self.durability.is_always)
            self._round.mark()

    def _step_down(self, member: Member) -> None:
        if self._round.rests:
            self.wake()
        self._successions.begin(member, self._turn.now)
        self._faults.guard(member, partial(member.take_role, member.term, Role.FOLLOWER, 0))

    def lose_damaged(self, member: Member, error: Exception) -> None:
        """Close a group because its log is damaged."""
        self._lose(member, f"its log is damaged: {error}")

    def _lose(self, member: Member, cause: str) -> None:
        """Close a group whose log can no longer be used; the group is opened again later as an empty replica."""
        self._host.log.error(f"The replica of {member} is closed on this server, other groups go on: {cause}")
        self._step_down(member)
        self._forget(member.group)
        self._lost.add(member)
        self._compaction.add([member.group])

    def _fail(self, cause: str) -> None:
        """Leave all groups until a restart, because of `cause`."""
        if self.condition is Condition.RUNNING:
            self._host.log.error(
                f"This server takes no part in replicated groups until a restart, because {cause}"
            )
            self._end(Condition.FAILED, "Replication Failed")

    def _end(self, condition: Condition, reason: str) -> None:
        self.condition = condition
        self.durability.stop()
        self._peers.stop(reason)
        self._arm(REST_NS)
        self._reads.clear()
        self._round.end()
        for member in list(self._members.values()):
            self._faults.end(member)

    # -- time --------------------------------------------------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether all groups are idle, so that no tick is due soon."""
        return self._round.rests

    def wake(self) -> None:
        """Tick at the short interval again, since groups may have work."""
        self._ticked_ns = self._turn.now
        self._arm(TICK_NS)

    def _arm(self, wait_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._round.rests = wait_ns == REST_NS or self.condition is not Condition.RUNNING
        if self.condition is Condition.RUNNING:
            self._timer = self._host.timers.at(self._turn.now + wait_ns, self._tick)

    def _tend_log(self, rests: bool) -> None:
        """Prepare the next file of the log, stage commit indexes, and queue groups that keep old files in use."""
        try:
            self.durability.look_ahead()
            self._round.is_staged |= self._log.stage_commits()
            if self.doubts.are_over:
                self._log.trust()
                self._round.is_staged = True
            if rests and self.durability.is_idle and not self._round.is_staged:
                self._log.witness()
        except StoreFailed as error:
            self._fail(f"the log of replicated groups cannot be written: {error}")
        self._compaction.add(self._log.crowding())

    def _tick(self) -> None:
        """Advance the time of all groups, do the work that is due, and set the timer for the next tick."""
        self._timer = None
        # If an exception ends this tick before `_arm`, the next work of a group begins the ticks again.
        rests, self._round.rests = self._round.rests, True
        now_ns = self._turn.now
        late = max(1, (now_ns - self._ticked_ns) // TICK_NS)
        for _ in range(min(late, REST_NS // TICK_NS if rests else LATE_TICKS)):
            self._engine.tick()
        self._ticked_ns = now_ns
        self._snapshots.tick(now_ns)
        has_waited = self._round.take_later() or bool(self._waiting or self._late)
        self._round.backlog.extend(self._waiting)
        self._waiting.clear()
        for due in self._late:
            self.durability.add(due, needs_sync=False)
        self._late.clear()
        self._reads.expire(now_ns)
        self.doubts.tick(now_ns, self.read_index)
        self._successions.tick(now_ns, self._members)
        self._states.release(self._members, now_ns)
        self._tend_log(rests)
        self._faults.check_again(self._members)
        _, awake = self._engine.counts()
        is_busy = awake or has_waited or self._snapshots.is_busy or self._states.has_waiting
        is_busy = is_busy or not (self._reads.is_idle and self.doubts.is_idle and self._successions.is_idle)
        self._arm(TICK_NS if is_busy else REST_NS)
        self._round.queue()
