"""The replicated streams of a node, of all accounts.

The metadata of the cluster assigns these streams to this node. The keeper calls `open_steps`, `change_steps` and
`drop_steps`, one at a time for each stream, with exclusive access to the stream. A replica found at the start is in
`JetStream.parked` until it is opened; it belongs to the assigned stream if both have the same creation time.

A replica that fails, for example on a full disk, transfers its leadership, and is reopened from its files later.

Long because it owns all machines: it handles assignments, events of the consensus, and batches.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.consensus.engine import Conf, RaftError, UnknownGroup, incarnation_of, peer_id
from pyjs.consensus.seams import Peers
from pyjs.jetstream.cluster.assignments import Replica
from pyjs.jetstream.cluster.reports import GroupStatus, PeerStatus, stream_cluster
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.manage import consumers, streams
from pyjs.jetstream.manage.parked import Parked, reopened_steps
from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import WHOLE, Ask, AskThese, Kind
from pyjs.jetstream.replication.copying import serve, serve_these
from pyjs.jetstream.replication.departing import Interests, Resignation, direct_keys_of
from pyjs.jetstream.replication.healing import is_refused
from pyjs.jetstream.replication.membership import is_settled, leave_steps, regroup_steps
from pyjs.jetstream.replication.single import LOST, finish_steps, single_steps
from pyjs.jetstream.replication.stream_machine import StreamMachine

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any, TypeAlias

    from pyjs.consensus.consensus import Consensus
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.state import MetaState
    from pyjs.jetstream.manage.engine import JetStream, Shared
    from pyjs.jetstream.stream.stream import Stream

    Steps: TypeAlias = Generator[Step, None, None]

RETRY_NS = 5 * NS_PER_S  # pause before a failed replica is reopened
COPYING_NS = NS_PER_S  # a replica that has asked nothing for this time no longer counts as copying
ENDING_NS = 200 * NS_PER_MS  # the same, after the answer that ends its copy
# Pause before the first replica of a new stream becomes a candidate, so that the other servers can open theirs.
STAND_NS = 30 * NS_PER_MS
STANDS = 4  # maximum number of attempts to be elected


class Metadata(Protocol):
    """The metadata of the cluster."""

    @property
    def state(self) -> MetaState:
        """The current metadata."""


class Carrier(Peers, Interests, Protocol):
    """The connections to the other nodes."""


class ReplicaLost(PyjsError):
    """Raised if the log may have lost votes or entries of a replica, which must then return as a new peer."""


class ReplicatedStreams:
    """The replicas of streams on one node."""

    def __init__(
        self,
        node: int,
        cluster: str,
        shared: Shared,
        consensus: Consensus,
        log: NodeLog,
        peers: Carrier,
        metadata: Metadata,
    ) -> None:
        # streams whose leadership this node gained since the owner emptied the list
        self.led: list[Stream] = []
        self.lost: list[Stream] = []  # streams whose leadership this node lost since then
        # To report to the metadata: replicas whose log may have lost votes or entries, and streams whose only replica
        # is the only member of its group.
        self.lost_replicas: list[Assignment] = []
        self.ended: list[Assignment] = []
        self._node = node
        self._cluster = cluster
        self._shared = shared
        self._consensus = consensus
        self._log = log
        self._peers = peers
        self._metadata = metadata
        self._machines: dict[tuple[str, str], StreamMachine] = {}  # by account and stream
        self._regrouping: set[int] = set()  # groups whose members are being changed
        self._silent: dict[int, int] = {}  # nodes that do not answer, and the time since when
        self._copied_ns = -COPYING_NS  # time of the last batch of a copy
        self.resigned: set[int] = set()  # groups whose replica on this node leads without its lost messages
        self.accepted: set[int] = (
            set()
        )  # groups for which an operator has accepted the loss of messages; forgotten when this server stops
        # Replicas on other nodes that copy from here, by group and node: time and sequence of the last question.
        self._copying: dict[tuple[int, int], tuple[int, int]] = {}
        # Replicas that are not open after a failure: account and stream -> creation time; 0: no stored files.
        self._shut: dict[tuple[str, str], int] = {}

    # -- questions ---------------------------------------------------------------------------------------------

    def is_replica(self, stream: Stream) -> bool:
        """Return whether a stream on this node is a replica of a group."""
        return self.machine_of(stream) is not None

    def leads(self, stream: Stream) -> bool:
        """Return whether this node leads a stream."""
        machine = self.machine_of(stream)
        return machine is not None and machine.leads

    def leader_of(self, stream: Stream) -> int:
        """Return the number of the node that leads a stream, or 0 if none is known."""
        machine = self.machine_of(stream)
        return 0 if machine is None else machine.leader

    def cluster_fields(self, stream: Stream) -> dict[str, Any]:
        """Return the `cluster` object of a stream's info."""
        machine = self.machine_of(stream)
        assert machine is not None
        status, account = self.group_status(machine), machine.js.account.name
        return stream_cluster(self._metadata.state, self._cluster, machine.assignment, status, account)

    def machines(self, account: str = "") -> list[StreamMachine]:
        """Return the replicas of an account, or of all accounts if `account` is empty."""
        return [each for (name, _), each in self._machines.items() if account in ("", name)]

    def current_steps(self, stream: Stream) -> Steps:
        """Wait until every entry committed before the call is applied here.

        Raises:
            ApiError: this node does not lead, or can no longer prove that it leads.
        """
        machine = self.machine_of(stream)
        if machine is not None:
            yield from machine.current_steps()

    def is_settled(self, stream: Stream) -> bool:
        """Return whether a direct get of a stream can be answered at once."""
        machine = self.machine_of(stream)
        return machine is None or machine.is_settled

    def settle_steps(self, stream: Stream) -> Steps:
        """Wait until entries that may have been acknowledged are applied here, but only for a bounded time."""
        machine = self.machine_of(stream)
        if machine is not None:
            yield from machine.settle_steps()

    def machine_of(self, stream: Stream) -> StreamMachine | None:
        """Return the replica of a stream on this node, or None if the stream is not replicated."""
        machine = self._machines.get((stream.account.name, stream.name))
        return machine if machine is not None and machine.stream is stream else None

    def accept_loss(self, group: int) -> bool:
        """Make the leader of a group treat its lost messages as removed.

        Return False if this node does not lead the group, or if no messages are lost.
        """
        for machine in self._machines.values():
            if machine.group == group and machine.lacks_messages:
                self._shared.log.warn(
                    f"An operator accepts that the lost messages of {machine.stream} are lost"
                )
                machine.accept_loss()
                return True
        return False

    def group_status(self, machine: StreamMachine) -> GroupStatus:
        """Return the status of a group: its leader and the other members, or all members if no leader is known."""
        since_ns = machine.leader_since_ns if machine.leads else 0
        try:
            found = self._consensus.status(machine.group)
        except (KeyError, RaftError):  # the group was closed because of damage
            return GroupStatus(machine.leader, since_ns)
        now_ns, peers = self._shared.clock.now_ns(), []
        for each in found.replicas:
            if each.node == self._node and machine.leader:
                continue
            lag = max(found.lag_of(each), self._copy_lag(machine, each.node, now_ns))
            silent_ns = now_ns - self._silent.get(each.node, now_ns)
            is_offline = each.node in self._silent
            peers.append(PeerStatus(each.node, not (lag or is_offline), silent_ns, is_offline, lag))
        return GroupStatus(machine.leader, since_ns, tuple(peers))

    def _copy_lag(self, machine: StreamMachine, node: int, now_ns: int) -> int:
        """Return the number of sequences that the replica on `node` lacks, or 0 if it is not copying from here."""
        asked_ns, have = self._copying.get((machine.group, node), (0, 0))
        if now_ns - asked_ns > COPYING_NS or machine.stream.closed:
            self._copying.pop((machine.group, node), None)
            return 0
        return max(1, machine.stream.store.last_seq - have)

    # -- other nodes: Replicas, in front of the consensus ------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether all groups are idle, and nothing was copied between this node and another for a while."""
        return self._consensus.rests and self._shared.clock.now_ns() - self._copied_ns > COPYING_NS

    def receive(self, node: int, data: bytes) -> None:
        """Handle a batch from another node. It is a batch of a copy, or one for the consensus.

        Raises:
            ValueError: the batch is damaged.
        """
        if data[1:2] < copy_batch.FIRST_KIND:
            self._consensus.receive(node, data)
            return
        batch = copy_batch.read(data)
        self._copied_ns = self._shared.clock.now_ns()
        machine = next((each for each in self._machines.values() if each.group == batch.group), None)
        if isinstance(batch, Ask) and self._has_let_go(machine, node):
            self._peers.send(node, copy_batch.refusal(Kind.GONE, batch.group, batch.number))
        elif isinstance(batch, Ask):
            self._serve(node, machine, batch)
        elif isinstance(batch, AskThese):
            self._serve_these(node, machine, batch)
        elif machine is not None:
            for answer in machine.answers():
                answer.came(batch)

    def _serve(self, node: int, machine: StreamMachine | None, question: Ask) -> None:
        stream, applied = None, (0, 0)
        if machine is not None and machine.leads and question.have < WHOLE:
            self._copying[question.group, node] = self._shared.clock.now_ns(), question.have
        if machine is not None and (machine.is_behind or is_refused(machine.stream, question)):
            self._peers.send(node, copy_batch.refusal(Kind.BEHIND, question.group, question.number))
            return
        if machine is not None:
            with suppress(KeyError, RaftError):  # the group was closed because of damage
                index = self._consensus.status(machine.group).applied
                applied = index, machine.term_at(index)
                stream = machine.stream
        batches = serve(stream, question, applied)
        for parts in batches:
            self._peers.send(node, parts)
        if copy_batch.is_end(batches) and (question.group, node) in self._copying:
            ends_ns = self._shared.clock.now_ns() + ENDING_NS - COPYING_NS
            self._copying[question.group, node] = ends_ns, question.have

    def _serve_these(self, node: int, machine: StreamMachine | None, question: AskThese) -> None:
        upto = 0 if machine is None else machine.readable_upto()
        seqs = tuple(seq for seq in question.seqs if seq <= upto)
        store, stream = machine.readable() if machine is not None and seqs else (None, None)
        for parts in serve_these(store, stream, question._replace(seqs=seqs or question.seqs)):
            self._peers.send(node, parts)

    def _has_let_go(self, machine: StreamMachine | None, node: int) -> bool:
        """Return whether this node leads the stream, and its group has removed the replica on `node`."""
        if machine is None or not machine.leads or node in machine.assignment.nodes:
            return False
        with suppress(KeyError, RaftError):
            return node not in [each.node for each in self._consensus.status(machine.group).replicas]
        return False

    def node_silent(self, node: int) -> None:
        """Record that a node no longer responds."""
        self._silent.setdefault(node, self._shared.clock.now_ns())
        self._consensus.node_silent(node)

    def node_heard(self, node: int) -> None:
        """Record that a node responds again."""
        self._silent.pop(node, None)
        self._consensus.node_heard(node)

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch to a node."""
        self._peers.send(node, parts)

    def term_at(self, group: int, index: int) -> int:
        """Return the term of the entry `index` in a group's log, or 0 if the log does not have the entry."""
        stored = self._log.groups.get(group)
        return 0 if stored is None else stored.term_at(index)

    def name_of(self, node: int) -> str:
        """Return the name of a server, or a string with its number if the metadata does not have the server."""
        server = self._metadata.state.servers.get(node)
        return f"node {node}" if server is None else server.name

    def sources(self, machine: StreamMachine) -> list[int]:
        """Return the responding nodes from which a replica can copy: the leader first, then the others."""
        others = [node for node in machine.assignment.nodes if node not in (self._node, machine.leader)]
        known = [machine.leader] if machine.leader not in (0, self._node) else []
        return [node for node in [*known, *others] if node not in self._silent]

    # -- the metadata ------------------------------------------------------------------------------------------

    def open_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        """Open the replica of a stream: the stored one, or a new one.

        Raises:
            ApiError, PyjsError, OSError: the replica cannot be opened; its files are not changed.
        """
        key = js.account.name, assignment.name
        before = self._machines.get(key)
        if before is not None:  # the replica was leaving the group, or returns under a new incarnation
            yield from self._let_go_steps(before)
            if before.group != assignment.group:
                self.forget_group(js, before.group)
        machine = StreamMachine(js, self._consensus, assignment, self)
        conf = self._conf_of(js, assignment)
        alone = js.streams.get(assignment.name)
        if alone is not None:
            # The stream had one replica: its group begins with this replica, which has all messages.
            self._shut[key] = assignment.created_ns
            yield from self._resignation(js, alone).silence_steps()
            machine.memory = consumers.in_memory(alone)
            js.parked[assignment.name] = yield from streams.make_replica(js, alone, assignment.group)
        voters = (conf or self._log.groups[assignment.group].conf).voters
        machine.attach((yield from self._attached_steps(js, assignment, offered=bool(voters))))
        self._machines[key] = machine
        incarnation = assignment.incarnation_on(self._node)
        stored = None if conf is not None and conf.voters else self._log.groups.get(assignment.group)
        in_doubt = assignment.group in self._consensus.doubts.unsure
        machine.begin(stored, in_doubt=in_doubt)
        self._consensus.open(assignment.group, assignment.raft_group, machine, conf, incarnation)
        self._consensus.set_prompt(assignment.group, False)  # settling.py makes direct gets wait if necessary
        is_first = conf is not None and assignment.nodes[0] == self._node
        if len(voters) == 1 or (voters and is_first):
            machine.stream.turn.go_on(self._stand_steps(machine))
        if incarnation_of(self._log.groups[assignment.group].peer) > incarnation > 0:
            self._lose(machine)  # the metadata does not know this peer
        if incarnation == 0:
            machine.stream.turn.go_on(self._leave_steps(machine))

    def _attached_steps(
        self, js: JetStream, assignment: Assignment, *, offered: bool
    ) -> Generator[Step, None, Stream]:
        """Open the stream of a replica, and return it. After a failure, the next attempt reads the files again."""
        key, name = (js.account.name, assignment.name), assignment.name
        parked = yield from self._stored_steps(js, assignment)
        is_new = parked is None
        if parked is None:
            config, created_ns, group = assignment.config, assignment.created_ns, assignment.group
            parked = yield from streams.new_replica(js, config, created_ns, group)
        self._shut[key] = assignment.created_ns
        try:
            stream = yield from streams.open_replica(js, parked, recovered=not is_new, offered=offered)
        except BaseException:
            if parked.config.storage != FILE:  # a file store is read again, below
                js.parked[name] = parked
            raise
        del self._shut[key]
        return stream

    def _stored_steps(self, js: JetStream, assignment: Assignment) -> Generator[Step, None, Parked | None]:
        """Return the stored replica of a stream, or None if there is none.

        Raises:
            StoreFailed: the files of the replica cannot be read now.
        """
        name = assignment.name
        parked = js.parked.pop(name, None)
        is_shut = self._shut.get((js.account.name, name)) == assignment.created_ns
        if parked is None and is_shut and assignment.config.storage == FILE:
            parked = yield from reopened_steps(js.files, name)
            if parked.config.num_replicas == 1:
                parked.store.replicate(assignment.group)
        place = assignment.created_ns, assignment.group
        if parked is not None and (parked.created_ns, parked.store.group) != place:
            self._shared.log.warn(f"Stream {name!r} is another one than that in the store")
            _release(js, parked)
            return None
        return parked

    def _stand_steps(self, machine: StreamMachine) -> Steps:
        """Start an election of the first replica of a new stream, without waiting for the election timeout."""
        for _ in range(STANDS):
            yield partial(self._wake_later, machine.stream.turn, STAND_NS)
            if machine.leader or self.machine_of(machine.stream) is not machine:
                return
            with suppress(RaftError):  # the group is not durable yet
                self._consensus.campaign(machine.group)

    def _conf_of(self, js: JetStream, assignment: Assignment) -> Conf | None:
        """Return the first members of a group, or None if the log has the group.

        The result is Conf(), without members, if other replicas add this one to the group.

        Raises:
            ReplicaLost: the log may have lost the group.
        """
        incarnation = assignment.incarnation_on(self._node)
        stored = self._log.groups.get(assignment.group)
        if stored is not None:
            return Conf() if incarnation_of(stored.peer) < incarnation else None
        if incarnation > 1:
            return Conf()
        parked = js.parked.get(assignment.name)
        was_here = (
            parked is not None and parked.created_ns == assignment.created_ns and parked.store.applied_index
        )
        if self._log.lost_unknown or was_here:
            raise ReplicaLost(
                f"the replica of stream {assignment.name!r} is in the store, and not in the log"
            )
        if all(each.incarnation > 1 for each in assignment.replicas if each.node != self._node):
            return Conf([peer_id(self._node, incarnation)])  # the others are added to this one
        return Conf([peer_id(each.node, each.incarnation) for each in assignment.replicas])

    def change_steps(self, js: JetStream, old: Assignment, new: Assignment) -> Steps:
        """Apply a changed assignment. The leader also proposes the new configuration for all replicas."""
        machine = self._machines.get((js.account.name, new.name))
        if machine is None or old.incarnation_on(self._node) != new.incarnation_on(self._node):
            yield from self.open_steps(js, new)
            return
        machine.assignment = new
        self.regroup(machine)
        if machine.leads:
            yield from machine.configure_steps()

    def regroup(self, machine: StreamMachine) -> None:
        """Begin to change the members of the group to match the metadata, if this node leads the group."""
        if machine.leads and machine.group not in self._regrouping:
            self._regrouping.add(machine.group)
            machine.stream.turn.go_on(self._regroup_steps(machine))

    def _regroup_steps(self, machine: StreamMachine) -> Steps:
        try:
            resign = partial(self.resign_steps, machine)
            yield from regroup_steps(machine, self._consensus, self._node, self._silent, resign)
        finally:
            self._regrouping.discard(machine.group)
        with suppress(KeyError, RaftError):  # the group is closed
            found = self._consensus.status(machine.group)
            if (
                machine.leads
                and machine.assignment.config.num_replicas == 1
                and is_settled(machine.assignment, found)
            ):
                self.ended.append(machine.assignment)
                machine.stream.turn.reports = True

    def group_here(self, js: JetStream, name: str) -> int:
        """Return the number of the group of a stream's replica on this server, or 0 if there is no replica.

        The replica need not be open.
        """
        machine, parked = self._machines.get((js.account.name, name)), js.parked.get(name)
        if machine is not None:
            return machine.group
        return 0 if parked is None else parked.store.group

    def forget_group(self, js: JetStream, group: int) -> None:
        """Remove the log of a group from this server, unless a replica on this server belongs to the group."""
        used = [machine.group for machine in self._machines.values()]
        used += [parked.store.group for parked in js.parked.values()]
        if group in self._log.groups and group not in used:
            self._log.remove(group)  # the next write of the consensus includes the removal

    def has_group(self, js: JetStream, assignment: Assignment) -> bool:
        """Return whether this server has a replica of the stream's group, or the log of this group."""
        machine = self._machines.get((js.account.name, assignment.name))
        parked = js.parked.get(assignment.name)
        return (
            (machine is not None and machine.group == assignment.group)
            or (parked is not None and parked.store.group == assignment.group)
            or assignment.group in self._log.groups
        )

    def single_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        """If the group of a stream has ended, convert the stream's replica to a stream without a group.

        Raises:
            ApiError, PyjsError, OSError: the conversion failed for now.
        """
        key, group = (js.account.name, assignment.name), assignment.ended
        if not self._has_ended(js, assignment):
            is_single = assignment.name in js.streams or assignment.config.storage == MEMORY
            if is_single and key not in self._machines and group in self._log.groups:
                self._log.remove(
                    group
                )  # the server ended before it did this; the next write of the consensus includes the removal
            return
        if key not in self._machines:
            stored = self._log.groups.get(group)
            if stored is None or stored.is_damaged:
                raise StoreFailed(assignment.name, LOST)
            last = Replica(self._node, incarnation_of(stored.peer))
            yield from self.open_steps(js, replace(assignment, group=group, replicas=(last,)))
        machine = self._machines[key]
        silence = self._resignation(js, machine.stream).silence_steps
        yield from finish_steps(machine, partial(self._consensus.conclude, group), silence)
        yield from single_steps(machine, partial(self._has_applied, group), partial(self._end_group, machine))

    def _has_applied(self, group: int) -> bool:
        """Return whether the whole log of a group with one member is applied."""
        with suppress(UnknownGroup):
            found = self._consensus.status(group)
            return found.applied == found.last
        return True  # the group is closed: `Consensus.conclude` has applied its whole log

    def _end_group(self, machine: StreamMachine) -> None:
        """Close a group, and remove its log."""
        del self._machines[machine.js.account.name, machine.assignment.name]
        self._consensus.remove(machine.group)

    def _has_ended(self, js: JetStream, assignment: Assignment) -> bool:
        """Return whether this server has the last replica of a stream's former group and has not converted it yet."""
        if not assignment.ended or assignment.incarnation_on(self._node) != 1:
            return False  # this server got its replica later
        key = js.account.name, assignment.name
        machine, parked = self._machines.get(key), js.parked.get(assignment.name)
        if machine is not None:
            return machine.group == assignment.ended
        if parked is not None:
            place = parked.created_ns, parked.store.group
            return place == (assignment.created_ns, assignment.ended)
        is_shut = self._shut.get(key) == assignment.created_ns  # an attempt has failed
        return is_shut and assignment.ended in self._log.groups

    def drop_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        """Remove the replica of a stream and its files from this node.

        If the group of the stream still has this replica as a member, the replica is removed later.
        """
        machine = self._machines.get((js.account.name, assignment.name))
        wanted = self._metadata.state.stream(js.account.name, assignment.name)
        if wanted is None or wanted.group != assignment.group:
            yield from self._drop_steps(js, assignment)
        elif machine is not None:
            machine.assignment = wanted
            self.regroup(machine)  # the leader remains until the others have all messages
            machine.stream.turn.go_on(self._leave_steps(machine))
        elif assignment.group in self._log.groups:  # the replica was leaving before a restart
            yield from self.open_steps(js, wanted)
        else:
            yield from self._drop_steps(js, assignment)

    def _leave_steps(self, machine: StreamMachine) -> Steps:
        js, name = machine.js, machine.assignment.name
        yield from leave_steps(machine, self._consensus, self._node, partial(self._left, machine))
        if self._is_here(machine):
            keys = direct_keys_of(js, machine.stream)
            yield from self._resignation(js, machine.stream).withdraw_steps(keys)
        if self._is_here(machine):
            drop = partial(self._drop_steps, js, machine.assignment)
            try:
                yield from js.gates.within(name, True, drop)
            except StoreFailed as error:  # for example, the server stops; the next start removes the files
                self._shared.log.warn(f"The files of {machine.stream} are not removed yet: {error}")

    def _is_here(self, machine: StreamMachine) -> bool:
        return self._machines.get((machine.js.account.name, machine.assignment.name)) is machine

    def _left(self, machine: StreamMachine) -> Assignment | None:
        """Return the current assignment of a leaving replica, or None if its stream, group or replica is gone."""
        found = self._metadata.state.stream(machine.js.account.name, machine.assignment.name)
        return (
            found if found is not None and found.group == machine.group and self._is_here(machine) else None
        )

    def _drop_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        machine = self._machines.pop((js.account.name, assignment.name), None)
        is_told = machine is not None and machine.leads
        if machine is not None:
            machine.end()
            self._consensus.remove(assignment.group)
        elif assignment.group in self._log.groups:
            self._log.remove(assignment.group)  # the next write of the consensus includes the removal
        name, is_copy = assignment.name, machine is not None and machine.stream.closed
        parked = js.parked.get(name)
        if parked is not None and parked.created_ns == assignment.created_ns:
            del js.parked[name]
            _release(js, parked)
            is_copy = True
        is_copy |= self._shut.pop((js.account.name, name), 0) == assignment.created_ns
        stream = js.streams.get(name)
        if stream is not None and stream.created_ns == assignment.created_ns:
            yield from streams.delete(js, name, told=is_told)
        elif is_copy and assignment.config.storage == FILE:
            yield from js.files.remove_hidden(js.files.hide(name), self._shared.metadata)

    # -- failures ----------------------------------------------------------------------------------------------

    def _lose(self, machine: StreamMachine) -> None:
        """Report to the metadata that a replica must return as a new peer."""
        self.lost_replicas.append(machine.assignment)
        machine.stream.turn.reports = True

    def take_lost_replicas(self) -> list[Assignment]:
        """Return the assignments of replicas that must return as new peers, and clear the list."""
        found, self.lost_replicas = self.lost_replicas, []
        return found

    def take_ended(self) -> list[Assignment]:
        """Return the assignments of streams that no longer need their groups, and clear the list."""
        found, self.ended = self.ended, []
        return found

    def fail(self, stream: Stream) -> None:
        """Stop a replica whose state is no longer reliable."""
        machine = self.machine_of(stream)
        assert machine is not None
        machine.replica.stop(StoreFailed(str(stream), "internal error"))

    def mend_steps(self, machine: StreamMachine, *, failed: bool = True) -> Steps:
        """Reopen a replica, and repeat this until it succeeds. With `failed`, pause before the first attempt."""
        js, stream = machine.js, machine.stream
        if failed:
            self._shared.log.error(
                f"The replica of {stream} has failed and is opened again soon: {machine.replica.stopped}"
            )
        self.hand_over(machine)
        while True:
            if failed:
                yield partial(self._wake_later, stream.turn, RETRY_NS)
            failed = True
            try:
                yield from js.gates.within(stream.name, True, lambda: self._reopen_steps(machine))
                return
            except ReplicaLost:
                self._lose(machine)
                return
            except (PyjsError, OSError, MemoryError) as error:
                self._shared.log.error(f"The replica of {stream} is not open, it is tried again: {error}")

    def _reopen_steps(self, machine: StreamMachine) -> Steps:
        js, key = machine.js, (machine.js.account.name, machine.assignment.name)
        if self._is_here(machine):
            self._close(machine)
        if key not in self._machines and self._shut.get(key) in (0, machine.assignment.created_ns):
            yield from self.open_steps(js, machine.assignment)

    def _let_go_steps(self, machine: StreamMachine) -> Steps:
        """Close a replica. If it leads, transfer the leadership first, since idle followers would not notice."""
        if machine.leads:
            yield from self.resign_steps(machine, 0)
        self._close(machine)

    def _close(self, machine: StreamMachine) -> None:
        """Close a replica; its log remains, and its files are read again when it is opened."""
        js, stream = machine.js, machine.stream
        del self._machines[js.account.name, stream.name]
        has_files = machine.catch_up is None or not machine.catch_up.is_dropped
        self._shut[js.account.name, stream.name] = stream.created_ns if has_files else 0
        machine.end()
        with suppress(KeyError):  # the log of the group was damaged
            self._consensus.close(machine.group)
        if not stream.closed:
            cause = machine.replica.stopped or PyjsError(f"{stream} is closed")
            streams.abandon(js, stream, StoreFailed(str(stream), str(cause)))
        js.held.let_go(stream.name)

    def hand_over(self, machine: StreamMachine, node: int = 0) -> None:
        """If this node leads, transfer the leadership to the replica on `node`.

        If `node` is 0, choose the most complete log among the replicas that respond, or among all if none responds.
        """
        with suppress(KeyError, RaftError):
            found = self._consensus.status(machine.group)
            heirs = [each for each in found.replicas if each.is_voter and each.node != self._node]
            heirs.sort(key=lambda each: (each.node in self._silent, each.lag or 0))
            if found.leader == self._node and heirs:
                self._consensus.transfer(machine.group, node or heirs[0].node)

    def resign_steps(self, machine: StreamMachine, node: int) -> Steps:
        """Transfer the leadership as `hand_over` does, but without losing messages in transit."""
        transfer = partial(self.hand_over, machine, node)
        yield from self._resignation(machine.js, machine.stream).transfer_steps(machine, transfer)

    def _resignation(self, js: JetStream, stream: Stream) -> Resignation:
        return Resignation(js, stream, self._peers)

    def _wake_later(self, turn: Turn, wait_ns: int, chore: Chore) -> None:
        self._shared.timers.at(turn.now + wait_ns, lambda: turn.chores.append(chore))


def _release(js: JetStream, parked: Parked) -> None:
    """Close the store of a replica that is not opened."""
    if parked.config.storage == FILE:
        js.files.release(parked.store)
