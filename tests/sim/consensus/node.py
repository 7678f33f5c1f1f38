"""One node of the simulation: its process is a Consensus with the surrounding parts of a node's turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, cast

from raft.tests.sim.net import SimNet
from tests.sim.consensus.judge import Judge, State
from tests.sim.consensus.log import Store

from pyjs.base.clock import NS_PER_MS
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.base.timers import Timers
from pyjs.consensus.batch import BadBatch
from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.engine import Conf, RaftError, Role, incarnation_of, peer_id
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.member import State as Applies
from pyjs.consensus.seams import Making
from pyjs.core.faults import Faults
from pyjs.core.sink import Turn

STEP_NS = 10 * NS_PER_MS
SILENT_STEPS = 12
PULSE_STEPS = 3
ROUNDS = 8  # turns in one step


class SimHost:
    """The parts of a node that its consensus needs."""

    def __init__(self, seed: int) -> None:
        self.turn_state = Turn()
        self.timers = Timers()
        self.log = ListLog()
        self.faults = Faults(self.log)
        self.rng = SeededRng(seed)


class Flaw(Exception):
    """The error that a failing machine raises."""


class SimMachine:
    """A machine whose state is the digest of its entries."""

    def __init__(self, node: SimNode, group: int) -> None:
        self.node = node
        self.judge = node.judge
        self.group = group
        self.state = State()
        self.index = 0
        self.leads = False
        self.raises = False  # the next entry raises an error

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Apply an entry."""
        if self.raises:
            raise Flaw
        if index <= self.index:
            self.judge.fail(f"group {self.group}: index {index} comes after {self.index}")
        if time_ns < self.state.time_ns:
            self.judge.fail(
                f"group {self.group}: index {index} has the time {time_ns}, before its predecessor"
            )
        self.index = index
        self.state = self.state.then(time_ns, payload)
        self.judge.applied(self.node.number, self.group, index, term, payload, self.state)
        if proposal is not None:
            if proposal != payload:
                self.judge.fail(f"group {self.group}: {proposal!r} came back as {payload!r}")
            self.judge.acknowledged(self.group, index, payload, self.state)

    def role(self, term: int, role: Role, leader: int) -> None:
        """Record the role and the leader."""
        self.leads = role == Role.LEADER
        if self.leads:
            if leader != self.node.number:
                self.judge.fail(f"node {self.node.number} leads, it is told that {leader} does")
            self.judge.leads(self.node.number, self.group, term)

    def dropped(self, proposal: object) -> None:
        """Record that the outcome of a proposal is unknown."""
        assert isinstance(proposal, bytes)
        self.judge.ended(proposal)

    def durable(self) -> int:
        """Return the last applied entry, since the snapshot is the whole state."""
        return self.index

    def snapshot(self) -> bytes | Making | None:
        """Return the state; at random, refuse it for now or return it in steps."""
        chance = self.node.rng.random()
        if chance < 0.1:
            return None
        data = self.state.packed(self.node.spare)
        return data if chance > 0.4 else self._packing(data)

    def _packing(self, data: bytes) -> Making:
        for _ in range(5):
            yield
        return data

    def install(self, index: int, data: bytes) -> Iterator[None] | None:
        """Install a state, at random in steps."""
        if self.node.rng.random() > 0.3:
            self._install(index, data)
            return None
        return self._installing(index, data)

    def _installing(self, index: int, data: bytes) -> Iterator[None]:
        for _ in range(5):
            yield
        self._install(index, data)

    def renewed(self) -> None:
        """Open the group again in the next step."""
        self.node.renewed.append(self.group)

    def _install(self, index: int, data: bytes) -> None:
        if index < self.index:
            self.judge.fail(f"group {self.group}: a snapshot at {index} comes after {self.index}")
        self.index = index
        self.state = State.unpacked(data)
        self.judge.installed(self.node.number, self.group, self.state)


class SimNode:
    """A node with its disk, and its process if it is up."""

    consensus_class: type[Consensus] = Consensus
    store_class: Callable[[int], Any] = Store
    machine_class: type[SimMachine] = SimMachine

    def __init__(
        self, number: int, rng: Random, net: SimNet, judge: Judge, others: Sequence[int], tuning: Tuning
    ) -> None:
        self.number = number
        self.rng = rng
        self.net = net
        self.judge = judge
        self.others = others
        self.tuning = tuning
        self.store = self.store_class(rng.getrandbits(60))
        self.store.tells_early = tuning.sync_interval_ns > 0
        self.log: Any = None  # the log of the running process
        self.is_up = False
        self.paused_until = 0
        self.now = 0
        self.skew_ns = 0  # ns by which the wall clock is ahead
        self.deaf: set[int] = set()  # nodes that do not read
        self.stopped = ""  # the reason why the process has left all groups; "": it has not
        self.shut: dict[int, int] = {}  # closed groups -> step at which they are opened again
        self.spare = 0  # additional bytes in a snapshot, without meaning
        self.newest: dict[int, int] = {}  # newest incarnation on this node, by group
        # last record number and end of the log, oldest first
        self.marks: deque[tuple[int, tuple[int, int]]] = deque()

    # -- Peers -------------------------------------------------------------------------------------------------

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch."""
        if not self.stopped:
            self.net.send(self.now, self.number, node, b"".join(parts))

    def pending_size(self, node: int) -> int:
        """Return the number of bytes waiting for a node."""
        return 1 << 30 if node in self.deaf else 0

    def stop(self, reason: str) -> None:
        """End all connections."""
        self.stopped = reason

    def set_clock(self, skew_ns: int) -> None:
        """Set the wall clock to `skew_ns` ahead of the time of the simulation."""
        self.skew_ns = skew_ns
        if self.is_up:
            self.host.turn_state.skew = skew_ns

    # -- life cycle --------------------------------------------------------------------------------------------

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        """Start a process with the contents of the disk, and with new groups."""
        self.is_up, self.stopped, self.now = True, "", now
        self.log = self.store.begin()
        self.host = SimHost(self.rng.getrandbits(60))
        self.host.turn_state.now = now * STEP_NS
        self.host.turn_state.skew = self.skew_ns
        self.jobs: list[tuple[int, Any]] = []
        self.heard = dict.fromkeys(self.others, now)
        self.silent: set[int] = set()
        self.machines: dict[int, SimMachine] = {}
        self.renewed: list[int] = []  # groups whose log was dropped
        self.shut = {}
        self.consensus = self.consensus_class(
            cast("Any", self.host), self.number, self.log, self, self.tuning
        )
        self.marks.clear()
        for group, conf in confs.items():
            self._open(group, conf)
        if self.log.lost_unknown:
            self.log.end_doubt()

    def _open(self, group: int, conf: Conf) -> None:
        machine = self.machines[group] = self.machine_class(self, group)
        newest = self.newest.get(group, 0)
        if group in self.log.groups:
            self.consensus.open(group, f"g{group}", machine, incarnation=newest or 1)
        elif newest and self.log.lost_unknown:  # the group may have been lost
            self.consensus.open(group, f"g{group}", machine, Conf(), newest + 1)
        else:
            self.consensus.open(group, f"g{group}", machine, conf, newest or 1)
        self.newest[group] = incarnation_of(self.peer(group))
        self.consensus.set_prompt(group, group % 2 == 1)

    def end(self, *, power: bool) -> None:
        """End the process, by a kill or a power cut."""
        self.is_up = False
        if power:
            self.store.lose_power(self.rng)
        else:
            self.store.end()

    def close(self, group: int, until: int) -> None:
        """Close a group as its owner does, and open it again in step `until`."""
        self.shut[group] = until
        self.machines[group].leads = False
        self.consensus.close(group)

    def _open_again(self) -> None:
        for group in [group for group, at in self.shut.items() if at <= self.now and not self.stopped]:
            del self.shut[group]
            self._open(group, Conf())

    def peer(self, group: int) -> int:
        """Return the peer of a group on this node, or 0 if no process runs or the node has no such peer."""
        stored = self.log.groups.get(group) if self.is_up else None
        return 0 if stored is None else int(stored.peer)

    def durable_end(self) -> tuple[int, int]:
        """Return a position in the log up to which the log itself proves that everything is durable.

        The proof is a claim in the log, which counts only after it is written. So the result is (0, 0) if the disk is
        broken.
        """
        end = (0, 0)
        for last, place in () if self.store.is_broken else self.marks:
            if last <= self.log._end.claimed:
                end = place
        return end

    def is_running(self, now: int) -> bool:
        """Whether the process is running now."""
        return self.is_up and now >= self.paused_until

    # -- a turn ------------------------------------------------------------------------------------------------

    def receive(self, source: int, data: bytes, *, is_damaged: bool) -> None:
        """Handle a batch from another node; b"" is a heartbeat."""
        self.heard[source] = self.now
        if source in self.silent:
            self.silent.discard(source)
            self.consensus.node_heard(source)
        if not data:
            return
        try:
            self.consensus.receive(source, data)
        except BadBatch as error:
            self.judge.counts["refused"] += 1
            if not is_damaged:
                self.judge.fail(f"node {self.number} refuses a good batch of node {source}: {error}")

    def step(self, now: int) -> None:
        """Advance the time by one step, and handle all results."""
        self.now = now
        turn = self.host.turn_state
        turn.now = now * STEP_NS
        while self.renewed:
            self._open(self.renewed.pop(), Conf())
        self._open_again()
        self._watch()
        while (timer := self.host.timers.due(turn.now)) is not None:
            assert timer
            self.host.timers.pop()()
        self._finish_jobs()
        for _ in range(ROUNDS):
            for consensus in turn.take("consensus"):
                consensus.turn()
            for job in turn.take("jobs"):
                self.jobs.append((now + self.rng.choice((0, 0, 0, 1, 3)), job))
            if not turn.consensus:
                break
        self._claim_leads()
        self._mark_end()
        if self.judge.violation:
            self.judge.fail(self.judge.violation)
        for level, text in self.host.log.lines:
            if level == "ERR" and not self._expects(text):
                self.judge.fail(f"node {self.number}: {text}")
        self.host.log.lines.clear()

    def _mark_end(self) -> None:
        """Record the end of the log."""
        if isinstance(self.log, NodeLog) and (not self.marks or self.marks[-1][0] < self.log.written):
            self.marks.append((self.log.written, (self.log._shelf.newest.number, self.log._end.at)))
            while len(self.marks) > 1 and self.marks[1][0] <= self.log._end.claimed:
                self.marks.popleft()

    def _claim_leads(self) -> None:
        """Report the groups that this node leads according to the engine, whether or not the machines know it yet."""
        for group in self.machines:
            with suppress(RaftError, KeyError):  # the group is closed, or is being reopened
                found = self.consensus.status(group)
                if found.role == Role.LEADER and not self.stopped:
                    self.judge.leads(self.number, group, found.term)

    def _expects(self, text: str) -> bool:
        """Whether an error in the log is expected, because the disk is broken or a snapshot is damaged."""
        if self.store.is_damaged and ("its log is damaged" in text or "lost a part of its log" in text):
            return True
        if "sim.consensus.node.Flaw" in text or "is stopped, and its log" in text or "is dropped" in text:
            return True
        if "a panic of the simulation" in text:
            return True
        return self.store.is_broken or "the digest of the payload" in text

    def is_whole(self) -> bool:
        """Whether all groups are open and apply entries."""
        members = self.consensus._members
        return all(
            group in members and members[group].state is Applies.RUNNING and not machine.raises
            for group, machine in self.machines.items()
            if group not in self.shut
        )

    def _watch(self) -> None:
        if self.now % PULSE_STEPS == 0 and not self.stopped:
            for node in self.others:
                self.net.send(self.now, self.number, node, b"")
        for node, at in self.heard.items():
            if self.now - at > SILENT_STEPS and node not in self.silent:
                self.silent.add(node)
                self.consensus.node_silent(node)

    def _finish_jobs(self) -> None:
        due = [job for at, job in self.jobs if at <= self.now]
        self.jobs = [(at, job) for at, job in self.jobs if at > self.now]
        for job in due:
            job.run()
            job.finish(None)

    # -- clients -----------------------------------------------------------------------------------------------

    def publish(self, group: int, payload: bytes) -> bool:
        """Propose an entry if this node leads."""
        return self.consensus.propose(group, payload, payload)

    def read(self, group: int) -> None:
        """Begin a linearizable read."""
        floor, machine = self.judge.known[group], self.machines[group]
        self.consensus.read_index(group, lambda: self.judge.read(self.number, group, floor, machine.state))

    def leads(self, group: int) -> bool:
        """Whether the machine believes that it leads."""
        return self.is_up and self.machines[group].leads


def voters(count: int) -> Conf:
    """Return the configuration of a group whose voters are on the first `count` nodes."""
    return Conf([peer_id(number) for number in range(1, count + 1)])
