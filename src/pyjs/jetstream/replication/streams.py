"""The replicated streams of a node, of all accounts.

The metadata of the cluster says which of them are here; its keeper calls `open_steps`, `change_steps` and
`drop_steps`, one after the other for each stream, with exclusive access to it. A stored replica waits in
`JetStream.parked` until then: it is of the assigned stream if both were created at the same time.

A replica that fails, such as on a full disk, hands the lead over, and is opened again from its files after a while.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.consensus.engine import Conf, RaftError, peer_id
from pyjs.jetstream.cluster.reports import GroupStatus, PeerStatus, stream_cluster
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.manage import streams
from pyjs.jetstream.manage.engine import Parked
from pyjs.jetstream.replication.stream_machine import StreamMachine

if TYPE_CHECKING:
    from collections.abc import Generator
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

RETRY_NS = 5 * NS_PER_S  # before a replica that has failed is opened again


class Metadata(Protocol):
    """What is known of the cluster."""

    @property
    def state(self) -> MetaState:
        """Return the metadata."""


class ReplicaLost(PyjsError):
    """The log of this server may have forgotten what the replica has promised: it must come back as another one."""


class ReplicatedStreams:
    """The replicas of streams on one node."""

    def __init__(
        self, node: int, cluster: str, shared: Shared, consensus: Consensus, log: NodeLog, metadata: Metadata
    ) -> None:
        self.led: list[Stream] = []  # streams that this node leads since their owner last looked
        self.lost: list[Stream] = []  # streams that it led before
        self._node = node
        self._cluster = cluster
        self._shared = shared
        self._consensus = consensus
        self._log = log
        self._metadata = metadata
        self._machines: dict[tuple[str, str], StreamMachine] = {}  # by account and stream
        self._silent: dict[int, int] = {}  # nodes that do not answer, since when

    # -- questions ---------------------------------------------------------------------------------------------

    def is_replica(self, stream: Stream) -> bool:
        """Return whether a stream of this node has replicas on others."""
        return self._machine_of(stream) is not None

    def leads(self, stream: Stream) -> bool:
        """Return whether this node leads a stream."""
        machine = self._machine_of(stream)
        return machine is not None and machine.leads

    def leader_of(self, stream: Stream) -> int:
        """Return the number of the node that leads a stream, 0: none is known."""
        machine = self._machine_of(stream)
        return 0 if machine is None else machine.leader

    def cluster_fields(self, stream: Stream) -> dict[str, Any]:
        """Return the `cluster` object of a stream's info."""
        machine = self._machine_of(stream)
        assert machine is not None
        status, account = self._status(machine), machine.js.account.name
        return stream_cluster(self._metadata.state, self._cluster, machine.assignment, status, account)

    def current_steps(self, stream: Stream) -> Steps:
        """Wait until everything that was committed before is applied here.

        Raises:
            ApiError: this node does not lead, or may not do so any more.
        """
        machine = self._machine_of(stream)
        if machine is not None:
            yield from machine.current_steps()

    def _machine_of(self, stream: Stream) -> StreamMachine | None:
        machine = self._machines.get((stream.account.name, stream.name))
        return machine if machine is not None and machine.stream is stream else None

    def _status(self, machine: StreamMachine) -> GroupStatus:
        try:
            found = self._consensus.status(machine.group)
        except (KeyError, RaftError):  # it was closed because of damage
            return GroupStatus(machine.leader, machine.leader_since_ns)
        now_ns = self._shared.clock.now_ns()
        peers = []
        for each in found.replicas:
            lag = each.lag or 0
            silent_ns = now_ns - self._silent.get(each.node, now_ns)
            if each.node != machine.leader:
                is_current = found.last - lag >= found.committed
                is_offline = each.node in self._silent
                peers.append(PeerStatus(each.node, is_current, silent_ns, is_offline, lag))
        return GroupStatus(machine.leader, machine.leader_since_ns, tuple(peers))

    # -- other nodes -------------------------------------------------------------------------------------------

    def node_silent(self, node: int) -> None:
        """Note that a node does not answer."""
        self._silent.setdefault(node, self._shared.clock.now_ns())

    def node_heard(self, node: int) -> None:
        """Note that a node answers again."""
        self._silent.pop(node, None)

    # -- the metadata ------------------------------------------------------------------------------------------

    def open_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        """Open the replica of a stream here: a new one, or what the store and the log have.

        Raises:
            ApiError, PyjsError, OSError: it cannot be opened; what is stored stays.
        """
        machine = StreamMachine(js, self._consensus, assignment, self)
        conf = self._conf_of(js, assignment)
        parked = js.parked.pop(assignment.name, None)
        if parked is not None and parked.created_ns != assignment.created_ns:
            self._shared.log.warn(f"Stream {assignment.name!r} is another one than that in the store")
            _release(js, parked)
            parked = None
        is_new = parked is None
        if parked is None:
            parked = yield from streams.new_replica(js, assignment.config, assignment.created_ns)
        machine.attach((yield from streams.open_replica(js, parked, recovered=not is_new)))
        self._machines[js.account.name, assignment.name] = machine
        incarnation = assignment.incarnation_on(self._node)
        self._consensus.open(assignment.group, assignment.raft_group, machine, conf, incarnation)

    def _conf_of(self, js: JetStream, assignment: Assignment) -> Conf | None:
        """Return the members of a new group, without any for a replica that others add; None: the log has it.

        Raises:
            ReplicaLost: the log may have had it.
        """
        incarnation = assignment.incarnation_on(self._node)
        stored = self._log.groups.get(assignment.group)
        if stored is not None:
            return None if stored.peer == peer_id(self._node, incarnation) else Conf()
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
        return Conf([peer_id(each.node, each.incarnation) for each in assignment.replicas])

    def change_steps(self, js: JetStream, old: Assignment, new: Assignment) -> Steps:
        """Follow a change of a stream: the leader brings a new configuration to all replicas."""
        machine = self._machines.get((js.account.name, new.name))
        if machine is None or old.incarnation_on(self._node) != new.incarnation_on(self._node):
            if machine is not None:
                self._close(machine)
            yield from self.open_steps(js, new)
            return
        machine.assignment = new
        if machine.leads:
            yield from machine.configure_steps()

    def drop_steps(self, js: JetStream, assignment: Assignment) -> Steps:
        """Remove the replica of a stream from this node, with its files."""
        machine = self._machines.pop((js.account.name, assignment.name), None)
        is_told = machine is not None and machine.leads
        if machine is not None:
            machine.follow()
            self._consensus.remove(assignment.group)
        elif assignment.group in self._log.groups:
            self._log.remove(assignment.group)  # the next write of the consensus has it
        parked = js.parked.get(assignment.name)
        if parked is not None and parked.created_ns == assignment.created_ns:
            del js.parked[assignment.name]
            _release(js, parked)
            if parked.config.storage == FILE:
                hidden = js.files.hide(assignment.name)
                yield from js.files.remove_hidden(hidden, self._shared.metadata)
        stream = js.streams.get(assignment.name)
        if stream is not None and stream.created_ns == assignment.created_ns:
            yield from streams.delete(js, assignment.name, told=is_told)

    # -- failures ----------------------------------------------------------------------------------------------

    def mend_steps(self, machine: StreamMachine) -> Steps:
        """Open a replica again that has failed: after a while, and as often as needed."""
        js, stream = machine.js, machine.stream
        self._shared.log.error(
            f"The replica of {stream} has failed and is opened again soon: {machine.replica.stopped}"
        )
        self._hand_over(machine)
        yield partial(self._wake_later, stream.turn)
        if self._machine_of(stream) is machine:
            yield from js.gates.within(stream.name, True, lambda: self._reopen_steps(machine))

    def _reopen_steps(self, machine: StreamMachine) -> Steps:
        js, stream = machine.js, machine.stream
        if self._machine_of(stream) is not machine:
            return
        self._close(machine)
        if stream.config.storage == FILE:
            for found in js.files.reopen_steps(stream.name):
                if found is not None:
                    js.parked[stream.name] = Parked(*found)
                yield None
            if stream.name not in js.parked:
                self._shared.log.error(f"The replica of {stream} stays closed until the next start")
                return
        js.held.let_go(stream.name)
        yield from self.open_steps(js, machine.assignment)

    def _close(self, machine: StreamMachine) -> None:
        """Close a replica; its log and its files stay."""
        del self._machines[machine.js.account.name, machine.stream.name]
        machine.follow()
        with suppress(KeyError):  # its log was damaged
            self._consensus.close(machine.group)
        if not machine.stream.closed:
            cause = machine.replica.stopped or PyjsError(f"{machine.stream} is closed")
            streams.abandon(machine.js, machine.stream, StoreFailed(str(machine.stream), str(cause)))

    def _hand_over(self, machine: StreamMachine) -> None:
        """Let another replica lead."""
        with suppress(KeyError, RaftError):
            found = self._consensus.status(machine.group)
            heirs = [each for each in found.replicas if each.is_voter and each.node != self._node]
            heirs.sort(key=lambda each: (each.node in self._silent, each.lag or 0))
            if found.leader == self._node and heirs:
                self._consensus.transfer(machine.group, heirs[0].node)

    def _wake_later(self, turn: Turn, chore: Chore) -> None:
        self._shared.timers.at(turn.now + RETRY_NS, lambda: turn.chores.append(chore))


def _release(js: JetStream, parked: Parked) -> None:
    """Close the store of a replica that is not opened."""
    if parked.config.storage == FILE:
        js.files.release(parked.store)
