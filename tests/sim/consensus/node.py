"""One node of the simulation: its process is a Consensus with the parts of a node's turn around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from pyjs.consensus.engine import Conf, RaftError, Role, peer_id
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


class SimMachine:
    """A machine that is the digest of its entries."""

    def __init__(self, node: SimNode, group: int) -> None:
        self.node = node
        self.judge = node.judge
        self.group = group
        self.state = State()
        self.index = 0
        self.leads = False

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Take an entry."""
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
        """Note who leads."""
        self.leads = role == Role.LEADER
        if self.leads:
            if leader != self.node.number:
                self.judge.fail(f"node {self.node.number} leads, it is told that {leader} does")
            self.judge.leads(self.node.number, self.group, term)

    def dropped(self, proposal: object) -> None:
        """Note that nobody knows."""
        assert isinstance(proposal, bytes)
        self.judge.ended(proposal)

    def durable(self) -> int:
        """Return the last entry: the state is the snapshot."""
        return self.index

    def snapshot(self) -> bytes | None:
        """Return the state; sometimes not now."""
        return None if self.node.rng.random() < 0.1 else self.state.packed()

    def install(self, index: int, data: bytes) -> None:
        """Take the state."""
        if index < self.index:
            self.judge.fail(f"group {self.group}: a snapshot at {index} comes after {self.index}")
        self.index = index
        self.state = State.unpacked(data)
        self.judge.installed(self.node.number, self.group, self.state)


class SimNode:
    """A node with its disk, and its process if it is up."""

    consensus_class: type[Consensus] = Consensus
    store_class: Callable[[int], Any] = Store

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
        self.log: Any = None  # of the process
        self.is_up = False
        self.paused_until = 0
        self.now = 0
        self.deaf: set[int] = set()  # nodes that do not read
        self.stopped = ""  # reason, if the process takes part no more

    # -- Peers -------------------------------------------------------------------------------------------------

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch."""
        if not self.stopped:
            self.net.send(self.now, self.number, node, b"".join(parts))

    def pending_size(self, node: int) -> int:
        """Return what waits."""
        return 1 << 30 if node in self.deaf else 0

    def stop(self, reason: str) -> None:
        """End all connections."""
        self.stopped = reason

    # -- life --------------------------------------------------------------------------------------------------

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        """Begin a process with what is on the disk, and groups that are new."""
        self.is_up, self.stopped, self.now = True, "", now
        self.log = self.store.begin()
        self.host = SimHost(self.rng.getrandbits(60))
        self.host.turn_state.now = now * STEP_NS
        self.jobs: list[tuple[int, Any]] = []
        self.heard = dict.fromkeys(self.others, now)
        self.silent: set[int] = set()
        self.machines: dict[int, SimMachine] = {}
        self.consensus = self.consensus_class(
            cast("Any", self.host), self.number, self.log, self, self.tuning
        )
        for group, conf in confs.items():
            self.machines[group] = SimMachine(self, group)
            is_new = group not in self.log.groups
            self.consensus.open(group, f"g{group}", self.machines[group], conf if is_new else None)

    def end(self, *, power: bool) -> None:
        """End the process, by a kill or a power cut."""
        self.is_up = False
        if power:
            self.store.lose_power(self.rng)
        else:
            self.store.end()

    def is_running(self, now: int) -> bool:
        """Whether the process does anything now."""
        return self.is_up and now >= self.paused_until

    # -- a turn ------------------------------------------------------------------------------------------------

    def receive(self, source: int, data: bytes, *, is_damaged: bool) -> None:
        """Take a batch from another node; b"": a heartbeat."""
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
        """Let a step of time pass, and do what is ready."""
        self.now = now
        turn = self.host.turn_state
        turn.now = now * STEP_NS
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
        if self.judge.violation:
            self.judge.fail(self.judge.violation)
        for level, text in self.host.log.lines:
            if level == "ERR" and not self._expects(text):
                self.judge.fail(f"node {self.number}: {text}")
        self.host.log.lines.clear()

    def _claim_leads(self) -> None:
        """Report the groups that the engine leads, whether the machines know it or not."""
        for group in self.machines:
            with suppress(RaftError, KeyError):  # it is closed, or begins again
                found = self.consensus.status(group)
                if found.role == Role.LEADER and not self.stopped:
                    self.judge.leads(self.number, group, found.term)

    def _expects(self, text: str) -> bool:
        """Whether an error in the log is no surprise: of a broken disk, or a damaged snapshot."""
        return self.store.is_broken or "the digest of the payload" in text

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
        """Propose, if this node leads."""
        return self.consensus.propose(group, payload, payload)

    def read(self, group: int) -> None:
        """Begin a linearizable read."""
        floor, machine = self.judge.known[group], self.machines[group]
        self.consensus.read_index(group, lambda: self.judge.read(self.number, group, floor, machine.state))

    def leads(self, group: int) -> bool:
        """Whether the machine believes that it leads."""
        return self.machines[group].leads


def voters(count: int) -> Conf:
    """Return a group of the first `count` nodes."""
    return Conf([peer_id(number) for number in range(1, count + 1)])
