"""The state machine of a replicated stream: it connects the consensus of the node with the replica.

Only the leader's stream subscribes to its subjects. A replica whose store fails transfers its leadership and is
reopened (streams.py).

The log of the group may begin after any entry whose effects are durable in the store. Its snapshot is a marker of a
few bytes and the consumers (consumer_snapshots.py): the messages are in the store. A replica whose store has applied
fewer entries than the marker requires is behind: it copies the messages of another replica (catch_up.py), and does
not lead before it has them. After a power failure, the store may have effects of entries that the log has lost
(agreement.py).

Long because it has all transitions between the states of a replica: open, behind, damaged, leading.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.consensus.engine import RaftError, Role
from pyjs.core.job import Job, JobQueue
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.errcodes import ApiError, LeaderChanged
from pyjs.jetstream.manage import streams
from pyjs.jetstream.manage.consumers import resources_of
from pyjs.jetstream.manage.parked import Parked
from pyjs.jetstream.manage.replicated_consumers import ConsumerOpener, adopt_steps
from pyjs.jetstream.replication import agreement
from pyjs.jetstream.replication.agreement import Agreement
from pyjs.jetstream.replication.catch_up import CatchUp
from pyjs.jetstream.replication.consumer_snapshots import ConsumerSnapshots, load
from pyjs.jetstream.replication.copy_batch import ALL
from pyjs.jetstream.replication.copying import Answer
from pyjs.jetstream.replication.healing import Damage, heal_steps, is_damaged, note_gaps
from pyjs.jetstream.replication.settling import Settling
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.machine import EntryMachine
from pyjs.jetstream.stream.replicated.proposal import Outcome, Proposal
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.store.file.store import FileStore
from pyjs.store.memory import MemStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import TypeAlias

    from pyjs.consensus.consensus import Consensus
    from pyjs.consensus.log.group import StoredGroup
    from pyjs.core.chore import Step
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.manage.persist import StoredConsumer
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StreamStore, SyncJob

    Steps: TypeAlias = Generator[Step, None, None]

ASK_NS = NS_PER_S  # time after which a question without an answer is repeated
CONFIRMED = -1
_MARKER = Struct("<BQ")  # version, last sequence
_VERSION = 1
# Entries for this module: a version other than that of payloads (1), and the last used sequence.
_NOTE = Struct("<BQ")
_AFRESH = 2  # all replicas restart without messages
_BASE = 3  # the stream had messages before it had replicas


class BadMarker(PyjsError):
    """Raised if the snapshot or an entry of a stream's log has an unknown format."""


class Owner(Protocol):
    """The part of `streams.ReplicatedStreams` that this module uses."""

    led: list[Stream]
    lost: list[Stream]

    resigned: set[int]  # groups whose replica on this node leads without its lost messages
    accepted: set[int]  # groups for which an operator has accepted the loss of messages

    def mend_steps(self, machine: StreamMachine, *, failed: bool = True) -> Steps:
        """Reopen a failed or repaired replica; with `failed`, pause first."""

    def hand_over(self, machine: StreamMachine, node: int = 0) -> None:
        """If this node leads, transfer the leadership to the replica on `node` (0: on any other node)."""

    def regroup(self, machine: StreamMachine) -> None:
        """Change the members of the group to match the metadata, if this node leads the group."""

    def sources(self, machine: StreamMachine) -> Sequence[int]:
        """Return the nodes from which a replica can copy, in order of preference."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""

    def term_at(self, group: int, index: int) -> int:
        """Return the term of the entry `index` in the group's log, or 0 if the log does not have the entry."""

    def name_of(self, node: int) -> str:
        """Return the name of a server."""


class StreamMachine(EntryMachine):
    """The state machine of one replicated stream on this node."""

    def __init__(self, js: JetStream, consensus: Consensus, assignment: Assignment, owner: Owner) -> None:
        self.js = js
        self.assignment = assignment
        self.stream: Stream
        self.leads = False
        self.is_elected = False  # the group has elected this replica, even if it cannot lead
        self.waits = ""  # the reason why a change of the members waits
        self.memory: list[StoredConsumer] = []  # consumers without files, of a former single replica
        self.is_adopting = (
            False  # the consumers of a stream that had one replica are being proposed to the group
        )
        self.leader = 0  # number of the leading node; 0: unknown
        self.leader_since_ns = 0  # on the wall clock
        self.consensus = consensus
        self._owner = owner
        turn, timers = js.account.turn, js.shared.timers
        self.poll, self.leaving, self.whole = (Answer(turn, timers, asker) for asker in (1, 2, 0))
        self._reads: list[Outcome] = []  # reads that wait for the consensus
        self._settling = Settling(turn, timers, self)
        self._is_syncing = False
        self.damage = Damage.NONE
        self.agreement = Agreement(self)
        self._last_copy: Answer | None = None
        self._has_healed = False  # this replica has copied lost messages since it was opened
        self._ask_at_ns = 0  # time at which `is_confirmed` next asks the leader, or CONFIRMED
        self._consumers = ConsumerSnapshots()

    def __str__(self) -> str:
        return f"{self.assignment.raft_group} of {self.stream}"

    def attach(self, stream: Stream) -> None:
        """Use an open stream from now on, with a new replica. Called before the group is opened, and after a copy."""
        self.stream = stream
        self.replica = Replica(stream, self, self)
        self.replica.consumers.opener = ConsumerOpener(self.js, stream, resources_of(self.js, stream))
        self._consumers = ConsumerSnapshots()
        self.damage, self._was_damaged = Damage.NONE, False
        if isinstance(stream.store, FileStore):
            stream.store.examiner.on_loss = self._damaged

    def begin(self, stored: StoredGroup | None, *, in_doubt: bool) -> None:
        """Compare the store with the log, and look for damage; called before the group is opened."""
        if stored is None:  # a new group
            self._confirmed()
        self.agreement.begin(stored, in_doubt=in_doubt)
        self._look()
        if self.agreement.is_incomplete and self.catch_up is None:
            self._catch_up(0, self.stream.store.last_seq)

    def _look(self) -> None:
        """Begin to repair this replica if a start has found damage in its files."""
        store = self.stream.store
        if not isinstance(store, FileStore):
            return
        has_lost_ids = False
        for number in sorted(store.files.suspects):
            has_lost_ids |= store.range_of(number)[1] == 0  # this file has only ids of removed messages
            with suppress(OSError):  # a read or the scrub will find the damage again
                store.examiner.confirm(number)
        store.files.suspects.clear()
        # Even if no message is lost, ids of removed messages may be lost, which only the other replicas know.
        is_lossy = store.lost is not None or store.healing or bool(store.damaged_numbers(0))
        # after a copy: the others do not have these ids either
        is_lossy |= has_lost_ids and not self._has_healed
        if not is_lossy:
            self._owner.resigned.discard(self.group)
            self._owner.accepted.discard(self.group)
            self._was_damaged = bool(store.examiner.damaged)
            if self._was_damaged:
                self._damaged()
        elif self.group in self._owner.resigned:
            self.damage = Damage.LAST_RESORT
            if self.group not in self._owner.accepted:
                note_gaps(self.stream, self.replica)
            self.stream.turn.go_on(heal_steps(self))
        else:
            self.copy_lost()

    def _damaged(self) -> None:
        """Make another replica lead from now on, because stored messages of this replica are damaged."""
        if self.damage is Damage.NONE:
            self.damage = Damage.FOLLOWS
            self.stream.turn.go_on(heal_steps(self))

    def copy_lost(self) -> CatchUp:
        """Copy the lost messages from other replicas; the stream is closed meanwhile."""
        self._owner.resigned.discard(self.group)
        again, self._has_healed = self._has_healed, True
        # the last entry of an unsure store may be lost
        index = 0 if self.agreement.is_unsure else self.replica.index
        return self._catch_up(index, self.stream.store.last_seq, heals=True, again=again)

    def lead_damaged(self) -> None:
        """Open the stream without the lost messages, which no other replica has; lead if this replica is elected."""
        self._owner.resigned.add(self.group)
        is_closed = self.stream.closed
        self.replica.stop(StoreFailed(str(self.stream), "no other replica has its damaged messages now"))
        if is_closed:
            self.stream.turn.go_on(self._owner.mend_steps(self))

    @property
    def lacks_messages(self) -> bool:
        """Whether the group is waiting for messages that this replica has lost."""
        return self.is_elected and self.replica.gaps is not None

    def accept_loss(self) -> None:
        """Treat the lost messages as removed in all decisions, from now on or when the replica is reopened."""
        self._owner.accepted.add(self.group)
        self.replica.accept_gaps()

    def healed(self) -> None:
        """Lead again if this replica is elected. If a start found the damage, first open the replica again."""
        if self._was_damaged:  # the start could not read all ids of messages
            self.stream.turn.go_on(self._owner.mend_steps(self, failed=False))
        else:
            self.damage = Damage.NONE
            self.lead_again()

    def end(self) -> None:
        """Stop leading and copying: the replica is closed or removed."""
        self.follow()
        self._settling.release()
        if self.catch_up is not None:
            self.catch_up.cancel()
            self.catch_up = None

    @property
    def is_damaged(self) -> bool:
        """Whether this replica has damaged messages that are not repaired yet."""
        return self.damage is not Damage.NONE

    @property
    def group(self) -> int:
        """The number of the group."""
        return self.assignment.group

    @property
    def is_behind(self) -> bool:
        """Whether this replica copies or is unsure, so that it cannot serve copies."""
        return self.catch_up is not None or self.agreement.is_unsure

    # -- Machine -----------------------------------------------------------------------------------------------

    def apply_other(
        self, index: int, term: int, time_ns: int, payload: bytes, proposal: Proposal | None
    ) -> None:
        """Apply or hold a committed entry that `EntryMachine.apply` does not simply pass to the replica.

        Raises:
            PyjsError: the replica has stopped, or the entry has an unknown format.
        """
        if payload and payload[0] in (_AFRESH, _BASE, agreement.KIND):
            self._take_note(index, term, time_ns, payload)
            return
        if self.catch_up is not None:
            assert proposal is None
            self.catch_up.hold(index, term, time_ns, payload)
            return
        if self.agreement.is_unsure and not self.agreement.allows(index, term):
            self._catch_up(index, self.stream.store.last_seq)
            return
        if proposal is None and not self.replica.can_decide(index, time_ns, payload):
            self._wait_for_lost(index).hold(index, term, time_ns, payload)
            return
        self.replica.apply(index, term, time_ns, payload, proposal)
        if self.replica.stopped is not None:
            raise self.replica.stopped

    def _wait_for_lost(self, index: int) -> CatchUp:
        """Close the stream until its lost messages are restored, since entry `index` may depend on them."""
        self.js.shared.log.error(
            f"The replica of {self.stream} cannot apply entry {index} without its lost messages:"
            " start a server that has them, or accept the loss with SERVER.ACCEPT_LOSS (docs/cluster.md)"
        )
        return self.copy_lost()

    def role(self, term: int, role: Role, leader: int) -> None:
        """Handle a new role of this replica, or a new leader (0: none is known)."""
        if leader != self.leader:
            turn = self.stream.turn
            self.leader, self.leader_since_ns = leader, turn.now + turn.skew
        self._fail_reads()
        self._settling.release()
        self.agreement.role_changed()
        self.is_elected = role == Role.LEADER
        if leader and self._ask_at_ns != CONFIRMED:
            self.stream.turn.go_on(self._confirm_steps())
        if self.is_elected:
            self._lead()
        else:
            self.follow()

    def _lead(self) -> None:
        if self.catch_up is not None:
            self.catch_up.elected()
        if self.leads or self.catch_up is not None or self.replica.stopped is not None:
            return
        if self.damage is Damage.FOLLOWS and (self._was_damaged or is_damaged(self.stream)):
            return
        if not self.agreement.may_lead():
            return
        self.leads = True
        self.replica.lead()
        if self.replica.index == 0 and self.stream.store.last_seq:
            self.consensus.propose(self.group, _NOTE.pack(_BASE, self.stream.store.last_seq))
        self._settle_config()
        self.stream.turn.go_on(self._adopt_steps())
        self.stream.turn.go_on(self._listen_steps())
        streams.copy_origins(self.js, self.stream, on=True)
        self._owner.led.append(self.stream)
        self.stream.turn.reports = True
        self._owner.regroup(self)

    def _listen_steps(self) -> Steps:
        """Subscribe the stream to its subjects, after the first step in which `replica.lead` opens consumers.

        Other servers assume that a subscribed stream has all its consumers.
        """
        yield from ()
        if self.leads:
            streams.listen(self.js, self.stream, on=True)

    def lead_again(self) -> None:
        """Lead if this replica is elected."""
        if self.is_elected:
            self._lead()

    def _adopt_steps(self) -> Steps:
        self.is_adopting = True
        try:
            yield from adopt_steps(self.js, self.stream, resources_of(self.js, self.stream), self.memory)
            self.memory = []
        finally:
            self.is_adopting = False

    def follow(self) -> None:
        """Stop leading, if this replica leads."""
        if self.leads:
            self.leads = False
            streams.copy_origins(self.js, self.stream, on=False)
            self.replica.follow()
            streams.listen(self.js, self.stream, on=False)
            self._owner.lost.append(self.stream)
            self.stream.turn.reports = True

    def dropped(self, proposal: object) -> None:
        """Handle a proposal that the consensus has dropped."""
        assert isinstance(proposal, Proposal)
        self.replica.dropped(proposal)

    def durable(self) -> int:
        """Return the index of the last entry whose effects are durable; begin to sync the effects of later ones."""
        if self.agreement.is_unsure:
            return 0
        if self.catch_up is not None:
            return self.replica.index  # held entries are not applied yet
        store = self.stream.store
        if not isinstance(store, FileStore) or store.synced_index == self.replica.index:
            if self._consumers.index != self.replica.index:
                self._consumers.take(self.replica)
        else:
            self.sync()
        return self._consumers.index

    def _sync_steps(self) -> Steps:
        """Begin a sync, after the commit of the entries applied in this turn."""
        yield from ()
        self.consensus.durability.hurry()
        self._consumers.begin(self.replica)
        job = None if self.stream.closed else self.stream.begin_sync()
        if job is None:
            self._is_syncing = False
        else:
            self.stream.turn.jobs.append(StoreSync(self, job))

    def sync_ended(self) -> None:
        """Handle the end of the sync that `durable` began."""
        self._is_syncing = False
        store = self.stream.store
        if isinstance(store, FileStore):
            self._consumers.ended(store.synced_index)

    def snapshot(self) -> bytes | None:
        """Return the marker and the consumers; the messages are in the store, or must be copied.

        Return None while an operation is applied in steps.
        """
        if self.replica.is_working:
            return None
        return _MARKER.pack(_VERSION, self.stream.store.last_seq) + self._consumers.encode(self.replica)

    def install(self, index: int, data: bytes) -> None:
        """Continue after entry `index`; if the store has not applied it, begin to copy.

        Raises:
            BadMarker: the marker has an unknown version.
        """
        if len(data) < _MARKER.size or data[0] != _VERSION:
            raise BadMarker(f"{self}: the state at entry {index} is not of version {_VERSION}")
        _, last_seq = _MARKER.unpack_from(data)
        if self.catch_up is not None:
            self.catch_up.installed(index, last_seq)
        elif self.replica.index < index or not self.agreement.allows(index, self.term_at(index)):
            self._catch_up(index, last_seq)
        else:
            load(self.replica, data[_MARKER.size :])

    def renewed(self) -> None:
        """Reopen the replica after its log has been dropped: it returns as a new member of the group."""
        error = StoreFailed(str(self.stream), "its log was dropped")
        self.stream.turn.go_on(self._owner.mend_steps(self, failed=self.replica.stopped is None))
        self.replica.stop(error)

    def _catch_up(self, index: int, last_seq: int, *, heals: bool = False, again: bool = False) -> CatchUp:
        """Begin to copy, at least up to entry `index`; `last_seq` is the highest sequence that any message has had.

        `heals` means that the replica has lost messages, and `again` that it has copied lost messages before.
        """
        self.catch_up = CatchUp(self, index, last_seq, heals=heals, again=again)
        if self._last_copy is not None:
            self.catch_up.answer.continue_after(self._last_copy)
        self._last_copy = self.catch_up.answer
        self.catch_up.begin()
        return self.catch_up

    # -- Behind, Damaged ---------------------------------------------------------------------------------------

    def sources(self) -> Sequence[int]:
        """Return the nodes from which this replica can copy, in order of preference."""
        return self._owner.sources(self)

    def hand_over(self, node: int) -> None:
        """Transfer the leadership to the replica on another node."""
        self._owner.hand_over(self, node)

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""
        self._owner.send(node, parts)

    def name_of(self, node: int) -> str:
        """Return the name of a server."""
        return self._owner.name_of(node)

    def sync(self) -> None:
        """Begin to sync the store, unless a sync is running."""
        if not self._is_syncing:
            self._is_syncing = True
            self.stream.turn.go_on(self._sync_steps())

    def readable_upto(self) -> int:
        """Return the sequence up to which other replicas may read messages from here.

        This is ALL, except while this replica is unsure.
        """
        if not self.agreement.is_unsure:
            return ALL
        return 0 if self.catch_up is None else self.catch_up.common

    def readable(self) -> tuple[StreamStore | None, Stream | None]:
        """Return the store that other replicas may read, and the open stream; each is None if it is not available."""
        if self.catch_up is not None:
            store = self.catch_up.store
            return (None if isinstance(store, FileStore) and store.closed else store), None
        return (None, None) if self.stream.closed else (self.stream.store, self.stream)

    def answers(self) -> Iterator[Answer]:
        """Yield the answers of other replicas for which this replica may be waiting."""
        yield self.poll
        yield self.leaving
        yield self.whole
        if self.catch_up is not None:
            yield self.catch_up.answer

    def caught_up(self, stream: Stream, consumers: bytes) -> None:
        """Continue with the copied stream and its consumers; apply the held entries."""
        assert self.catch_up is not None
        held, self.catch_up = self.catch_up.held, None
        self.attach(stream)
        self.agreement.is_unsure = False
        self._look()
        self.replica.consumers.load(consumers)
        for index, term, time_ns, payload in held:
            if self.catch_up is not None:  # damage was found again meanwhile
                self.catch_up.hold(index, term, time_ns, payload)
            else:
                self.replica.apply(index, term, time_ns, payload)
        if self.is_elected:
            self._lead()

    def give_up(self, last_seq: int) -> None:
        """Make all replicas of a memory stream continue after sequence `last_seq` without any messages.

        This proposes an entry, so that all replicas drop their messages at the same point of the log.
        """
        self.consensus.propose(self.group, _NOTE.pack(_AFRESH, last_seq))

    def _take_note(self, index: int, term: int, time_ns: int, payload: bytes) -> None:
        """Apply an entry about the whole group: its kind is _BASE, _AFRESH, or that of a note (agreement.py).

        Raises:
            BadMarker: the entry has an unknown kind.
        """
        if len(payload) == agreement.NOTE.size:
            self._take_base(index, term, time_ns, payload)
            return
        kind, last_seq = _NOTE.unpack(payload) if len(payload) == _NOTE.size else (0, 0)
        if kind == _BASE and self.catch_up is not None:
            self.catch_up.installed(index, last_seq)
        elif kind == _BASE and self.stream.store.last_seq < last_seq:
            self._catch_up(index, last_seq)
        elif kind == _AFRESH and self.assignment.config.storage == MEMORY:
            self._begin_afresh(index, term, time_ns, last_seq)
        elif kind != _BASE:
            raise BadMarker(f"{self}: entry {index} is of no kind that is known")

    def _take_base(self, index: int, term: int, time_ns: int, payload: bytes) -> None:
        """Continue with the state of the leader's store, although the log has lost the last entries of this state."""
        _, last_seq, *base = agreement.NOTE.unpack(payload)
        if self.catch_up is not None:
            self.catch_up.installed(index, last_seq)
        elif not self.agreement.take(index, term, time_ns, (base[0], base[1])):
            self._catch_up(index, last_seq)
        elif self.is_elected:
            self._lead()

    def has_entries_after(self, index: int) -> bool:
        """Return whether the log has every entry after `index`, or False if the group is closed."""
        with suppress(KeyError, RaftError):  # it was closed because of damage
            return self.consensus.status(self.group).start <= max(
                index, 1
            )  # the log of a new group begins after 1
        return False

    def term_at(self, index: int) -> int:
        """Return the term of the entry `index` in the group's log, or 0 if the log does not have the entry."""
        return self._owner.term_at(self.group, index)

    def propose_note(self, payload: bytes) -> None:
        """Propose a note, as encoded by `agreement.py`, as an entry of the group's log."""
        self.js.shared.log.warn(
            f"{self.stream} continues with messages that are in no log after a power failure"
        )
        self.consensus.propose(self.group, payload)

    def _begin_afresh(self, index: int, term: int, time_ns: int, last_seq: int) -> None:
        """Replace the replica of a memory stream with an empty one, which continues after `last_seq`."""
        config = self.assignment.config
        self.js.shared.log.error(
            f"No replica of {self.stream} has its messages any more: it begins again empty"
        )
        self.end()
        if not self.stream.closed:
            streams.abandon(self.js, self.stream, StoreFailed(str(self.stream), "its messages are lost"))
        store = MemStore()
        store.replicate(self.group)
        store.begin_copied_entry()
        store.skip_seqs_to(last_seq)
        store.end_copied_entry(index, term, time_ns, 0, b"")
        found = Parked(config, self.assignment.created_ns, store)
        self.attach(_result(streams.open_replica(self.js, found)))
        self.agreement.is_unsure = False
        if self.is_elected:
            self._lead()

    # -- Group -------------------------------------------------------------------------------------------------

    def stopped(self, error: Exception) -> None:
        """Handle a replica that has stopped applying entries: fail its waiting reads, and begin to open it again."""
        if not self.stream.closed:
            self._fail_reads()
            self._settling.release()
            self.stream.turn.go_on(self._owner.mend_steps(self))

    # -- configuration -----------------------------------------------------------------------------------------

    def keep_steps(self, config: StreamConfig) -> Steps:
        """Make a configuration durable before the stream applies it; earlier entries must already be durable."""
        js, stream = self.js, self.stream
        if config.storage == FILE and config != stream.config:
            yield from js.files.change(config, stream.created_ns, stream.store, js.shared.metadata)

    def configured(self, old: StreamConfig) -> None:
        """Apply a new configuration to the parts outside the replica, such as subscriptions."""
        if self.stream.config != old:
            streams.reconfigured(self.js, self.stream, old, leads=self.leads)

    def _settle_config(self) -> None:
        """Begin to propose the configuration in the metadata, if the stream does not have it yet.

        The first entry of every stream is its configuration, since replicas may have been opened with a later
        configuration. After a power failure, the configuration is proposed again, because an entry shows the other
        replicas whether their stores agree with the log.
        """
        steps = self.configure_steps()
        for step in steps:
            self.stream.turn.go_on(_rest(step, steps))
            return

    @property
    def _config(self) -> StreamConfig:
        """The configuration in the metadata, but with at least two replicas while the stream has a group."""
        config = self.assignment.config
        if config.num_replicas > 1:
            return config
        return replace(config, num_replicas=max(2, self.stream.config.num_replicas))

    def configure_steps(self) -> Steps:
        """Propose the configuration in the metadata for all replicas, unless they have it already.

        If the proposal fails, the next leader tries again.
        """
        if self.replica.index and not self.agreement.in_doubt and self.stream.config.same_as(self._config):
            return
        self.agreement.in_doubt = False
        try:
            yield from self.replica.operate(operations.configure(self._config))
        except ApiError as error:
            self.js.shared.log.warn(f"The configuration of {self.stream} is not changed yet: {error}")

    # -- reads -------------------------------------------------------------------------------------------------

    def current_steps(self) -> Steps:
        """Wait until every entry committed before the call is applied here.

        Raises:
            ApiError: this node does not lead, or can no longer prove that it leads.
        """
        outcome = Outcome(self.stream.turn)
        if not self.leads or not self.consensus.read_index(self.group, lambda: outcome.settle(None)):
            raise LeaderChanged
        self._reads = [each for each in self._reads if not each.settled]
        self._reads.append(outcome)
        while not outcome.settled:
            yield outcome.park
        while self.replica.is_working:  # an operation in steps
            yield None
        if outcome.error is not None or not self.leads:
            raise LeaderChanged

    @property
    def has_tail(self) -> bool:
        """Whether the log has entries that are not applied."""
        return self.consensus.has_tail(self.group)

    def ask(self, done: Callable[[], None]) -> bool:
        """Call `done` when all entries committed before the call are applied; return False if no leader is known."""
        return self.consensus.read_index(self.group, done)

    def is_confirmed(self) -> bool:
        """Return whether this replica has caught up with the committed entries since it was opened.

        Until this is known, each call may ask the leader. A restarted replica may lack entries for a second or two.
        """
        now_ns = self.stream.turn.now
        if self.leads:
            self._confirmed()
        elif self._ask_at_ns != CONFIRMED and now_ns >= self._ask_at_ns:
            self._ask_at_ns = now_ns + ASK_NS
            self.ask(self._confirmed)
        return self._ask_at_ns == CONFIRMED

    def _confirmed(self) -> None:
        self._ask_at_ns = CONFIRMED

    def _confirm_steps(self) -> Steps:
        yield from ()
        self.is_confirmed()

    @property
    def is_settled(self) -> bool:
        """Whether a direct get can be answered at once. A leader applies entries before it acknowledges them."""
        return self._settling.is_idle and (self.leads or self.catch_up is not None or not self.has_tail)

    def settle_steps(self) -> Steps:
        """Wait until entries that may have been acknowledged are applied here, but only for a bounded time."""
        if not self.is_settled:
            yield from self._settling.steps()

    def _fail_reads(self) -> None:
        reads, self._reads = self._reads, []
        for outcome in reads:
            if not outcome.settled:
                outcome.settle(None, LeaderChanged())


def _result(steps: Generator[Step, None, Stream]) -> Stream:
    """Run steps that never wait; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            stream: Stream = end.value
            return stream


def _rest(first: Step, steps: Steps) -> Steps:
    """Yield the first step, then the remaining ones."""
    yield first
    yield from steps


class StoreSync(Job):
    """A job that syncs the store of a replica, so that the log of its group can be cut."""

    queue = JobQueue.LOG

    def __init__(self, machine: StreamMachine, job: SyncJob) -> None:
        self._machine = machine
        self._stream = machine.stream
        self._job = job
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the sync job in a thread."""
        self._error = self._job()

    def finish(self, failure: Exception | None) -> None:
        """Pass the result of the sync to the stream, in a turn."""
        self._stream.finish_sync(self._error if failure is None else failure)
        self._machine.sync_ended()
