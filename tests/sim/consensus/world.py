"""One seed: nodes, network, disks, clients and faults, then a time without faults in which all nodes must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

from raft.tests.sim.net import SimNet, Weather
from tests.sim.consensus.closings import Closings
from tests.sim.consensus.judge import Judge, Violation
from tests.sim.consensus.membership import VOTERS, change, stale
from tests.sim.consensus.node import STEP_NS, SimNode, voters

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus import batch
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.doubt import MISSING_NS
from pyjs.consensus.engine import Conf, RaftError, Role, peer_id

GROUPS = (1, 2)
TROUBLE_STEPS = 400
CALM_STEPS = 300
SYNC_STEPS = 12  # number of steps after which everything on a running node is synced
# number of steps after which a node that has not answered counts as missing
MISSING_STEPS = MISSING_NS // STEP_NS + 50
PART_SIZE = 64  # bytes of a snapshot in one batch, so that each snapshot has several parts
HOUR_NS = 3_600 * NS_PER_S  # the wall clocks of two nodes differ by less
CRASHED = "crashed: "


class World:
    """The run of one seed."""

    node_class: type[SimNode] = SimNode
    storms = 0.2  # share of seeds with long elections and short outages
    closings = 0.2  # share of seeds in which replicas close sleeping groups
    reads = 0.2  # share of steps in which clients read
    is_always: bool | None = None  # sync mode; None: chosen at random
    has_changes: bool | None = None  # whether the membership changes; None: chosen at random
    failures = 0.3  # share of failures of a disk that happen
    troubles = 13  # number of kinds of faults; those from 10 on make a node lose data

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        rng = self.rng
        self.is_storm = rng.random() < self.storms
        self.net = SimNet(
            Random(seed + 1),
            Weather(
                drop=rng.choice((0.0, 0.02, 0.1)),
                repeat=rng.choice((0.0, 0.05)),
                damage=rng.choice((0.0, 0.01)),
                delay_max=8 if self.is_storm else rng.choice((0, 1, 4)),
            ),
        )
        self.judge = Judge()
        self.clocks = Random(seed + 2)
        self.resting = Closings(seed, self.closings)
        self.is_early = rng.random() < 0.4 if self.is_always is None else not self.is_always
        count = rng.choice((3, 3, 4, 5))
        self.conf = voters(3 if count == 4 else count)
        self.changes = rng.choice((0.0, 0.0, 0.05)) if self.has_changes is None else 0.05 * self.has_changes
        # The only node that may lose data: with a sync interval, by a power cut or a failed sync; by damage of its
        # log; or by a machine that fails for so long that its log is dropped.
        self.lossy = 0
        # A node has lost its log while another one was in doubt, so a group may wait until an operator accepts the
        # loss.
        self.is_excess = False
        interval_ns = 20 * NS_PER_MS if self.is_early else 0
        tuning = Tuning(sync_interval_ns=interval_ns, log_size_max=rng.choice((600, 3000, 1 << 20)))
        numbers = range(1, count + 1)
        self.nodes = {
            number: self.node_class(
                number,
                Random(seed * 31 + number),
                self.net,
                self.judge,
                [n for n in numbers if n != number],
                tuning,
            )
            for number in numbers
        }
        self.now = 0
        self.down: dict[int, int] = {}  # node -> time at which it restarts
        self.published = 0
        spare = rng.choice((0, 0, 1000))
        for node in self.nodes.values():
            node.spare = spare
            self._start(node)
            node.set_clock(self.clocks.randrange(HOUR_NS))

    def _start(self, node: SimNode) -> None:
        is_member = peer_id(node.number) in self.conf.voters
        node.start(self.now, dict.fromkeys(GROUPS, self.conf if is_member else Conf()))

    def run(self) -> None:
        """Run the seed.

        Raises:
            Violation: an invariant was violated; the text describes it.
        """
        for _ in range(TROUBLE_STEPS):
            if not self.resting.is_resting(self.now):
                self._trouble()
                self._work()
            self.resting.step(self, GROUPS)
            self._set_clocks()
            self.step()
        self._heal()
        self._calm()
        if self.is_excess:
            self._accept_losses()
            self._calm()
        self._check_end()
        self.resting.check_end(self, GROUPS)

    def _set_clocks(self) -> None:
        """At random, set the wall clock of a node forward or back."""
        if self.clocks.random() < 0.02:
            self.clocks.choice(list(self.nodes.values())).set_clock(self.clocks.randrange(HOUR_NS))

    def _calm(self) -> None:
        """Run CALM_STEPS steps without faults; clients publish and owners repair, except in the last 100 steps."""
        for at in range(CALM_STEPS):
            if at < CALM_STEPS - 100:
                self._repair(at)
            self.step()

    def _accept_losses(self) -> None:
        """If a group has no leader, let an operator accept the loss of entries that only lost replicas may have."""
        if all(any(node.leads(group) for node in self.nodes.values()) for group in GROUPS):
            return
        for _ in range(MISSING_STEPS):
            self.step()
        for node in self.running():
            for group in GROUPS:
                if node.consensus.doubts.accept(group, self.now * STEP_NS):
                    self.judge.counts["accepted"] += 1
        self.judge.forget()

    def step(self) -> None:
        """Advance the time by one step: batches arrive, processes restart, and each running node takes its turns."""
        self.now += 1
        self.judge.now = self.now
        for source, target, data, is_damaged in self.net.arrived(self.now):
            node = self.nodes[target]
            if node.is_running(self.now):  # batches for a paused node are lost here
                node.now = self.now
                node.host.turn_state.now = self.now * STEP_NS
                node.receive(source, data, is_damaged=is_damaged)
        for number in [number for number, at in self.down.items() if at <= self.now]:
            del self.down[number]
            if self.nodes[number].is_up:  # its log was broken, so it must be restarted
                self.nodes[number].end(power=False)
            self._start(self.nodes[number])
        for node in self.nodes.values():
            if node.is_running(self.now):
                node.step(self.now)

    # -- clients -----------------------------------------------------------------------------------------------

    def running(self) -> list[SimNode]:
        """Return the nodes whose process runs and is not paused."""
        return [node for node in self.nodes.values() if node.is_running(self.now)]

    def _work(self) -> None:
        if self.rng.random() < 0.4:
            for _ in range(self.rng.choice((1, 1, 5))):
                self._publish(self.rng.choice(GROUPS))
        nodes = self.running()
        if self.rng.random() < self.reads:
            group = self.rng.choice(GROUPS)
            for node in nodes:
                node.read(group)
        if self.rng.random() < 0.1 + self.changes:
            self._change(self.rng.choice(GROUPS), repair=self.rng.random() >= self.changes * 10)
        if nodes and self.rng.random() < 0.01:
            self._transfer(self.rng.choice(nodes), self.rng.choice(GROUPS))

    def _change(self, group: int, *, repair: bool) -> None:
        change(self.rng, self.running(), group, repair=repair)
        if self.lossy and self._is_over(self.nodes[self.lossy]):
            self.lossy = 0

    def _is_over(self, node: SimNode) -> bool:
        """Whether a node that has lost data has recovered completely."""
        if not node.is_running(self.now) or node.store.is_broken or node.log.is_doubtful:
            return False
        if not node.is_whole():
            return False
        for group in GROUPS:
            leader = next((each for each in self.running() if each.leads(group)), None)
            if leader is None:
                return False
            status = leader.consensus._engine.status(group)
            if status.role != Role.LEADER or stale(status.conf, [node], group):
                return False
            if len(status.conf.voters) < VOTERS or status.conf.outgoing:
                return False
        return True

    def _publish(self, group: int) -> None:
        """Propose at every node, since a client does not know the leader."""
        for node in self.running():
            self.published += 1
            payload = b"%d." % self.published + bytes(self.rng.choice((0, 0, 20, 300)))
            node.publish(group, payload)

    def _transfer(self, node: SimNode, group: int) -> None:
        with suppress(RaftError):
            node.consensus.transfer(group, self.rng.choice(node.others))

    # -- faults ------------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.rng.random() >= (0.15 if self.is_storm else 0.04):
            return
        node = self.rng.choice(list(self.nodes.values()))
        other = self.rng.choice(node.others)
        what = self.rng.randrange(self.troubles)
        if what == 0 and node.is_up:
            self._end(node, power=False)
        elif what in (1, 2) and node.is_up:
            self._end(node, power=self.may_lose(node, by_power=True))
        elif what == 3 and self.rng.random() < 0.5:
            power = not self.is_early or self._may_lose_all()
            for each in self.nodes.values():
                if each.is_up:
                    self._end(each, power=power)
        elif what == 4:
            node.paused_until = self.now + self.rng.randrange(5, 60)
        elif what == 5:
            self.net.cuts.add((node.number, other))  # one way
        elif what == 6:
            for peer in node.others:
                self.net.cuts |= {(node.number, peer), (peer, node.number)}
        elif what == 7:
            node.deaf = {other}
        elif what == 8 and node.is_up and self.rng.random() < self.failures:
            node.store.fail(self.rng, may_lose=self.may_lose(node, by_power=True))
            self.down[node.number] = self.now + self.rng.randrange(20, 60)
        elif what == 10 and node.is_running(self.now) and self.may_lose(node):
            node.machines[self.rng.choice(GROUPS)].raises = True
        elif what == 11 and node.is_up and self.may_lose(node):
            end = node.durable_end()
            self._end(node, power=False)
            if end > (0, 0):
                node.store.damage(self.rng, end)
                self.judge.counts["damages"] += 1
        else:
            self.net.cuts.clear()
            node.deaf = set()

    def may_lose(self, node: SimNode, *, by_power: bool = False) -> bool:
        """Return whether a node may lose data; if no node is chosen for this yet, choose the given one.

        A power cut is always allowed if the nodes sync before they acknowledge, since then it loses nothing.
        """
        if by_power and not self.is_early:
            return True
        if self.lossy not in (0, node.number):
            return False
        self.lossy = node.number
        self.judge.counts["doubts"] += by_power
        others = [each for each in self.nodes.values() if each is not node]
        self.is_excess |= not by_power and any(each.is_up and each.log.is_doubtful for each in others)
        return True

    def _may_lose_all(self) -> bool:
        """Return whether the power may fail on all nodes; if so, allow the loss of entries of the last SYNC_STEPS."""
        nodes = self.nodes.values()
        is_calm = all(
            node.is_up and not node.store.is_broken and node.paused_until < self.now - SYNC_STEPS
            for node in nodes
        )
        if self.lossy or not is_calm or any(node.log.is_doubtful for node in nodes):
            return False
        self.judge.forget(self.now - SYNC_STEPS)
        return True

    def _end(self, node: SimNode, *, power: bool) -> None:
        node.end(power=power)
        if power and self.is_early:
            self.net.forget(node.number)  # the connections end too
        self.down[node.number] = self.now + self.rng.randrange(1, 4 if self.is_storm else 60)

    def _heal(self) -> None:
        self.net.cuts.clear()
        self.net.weather = Weather()
        for node in self.nodes.values():
            node.paused_until = 0
            node.deaf = set()
            node.shut = dict.fromkeys(node.shut, self.now) if node.is_up else {}
        for number in self.down:
            self.down[number] = self.now + 1

    def _repair(self, at: int) -> None:
        """Let clients publish, and owners replace lost replicas."""
        if at % 10 == 0:
            self._publish(self.rng.choice(GROUPS))
        if at % 3 == 0:
            self._change(self.rng.choice(GROUPS), repair=True)
        for node in self.running():
            if not node.is_whole() and node.number not in self.down:
                self.judge.counts["stopped"] += 1
                self._end(node, power=False)

    def _check_end(self) -> None:
        for group in GROUPS:
            leaders = [node.number for node in self.nodes.values() if node.leads(group)]
            if len(leaders) != 1:
                self.judge.fail(f"group {group}: leaders {leaders} at the end")
            conf = self.nodes[leaders[0]].consensus._engine.status(group).conf
            if stale(conf, self.running(), group) or conf.outgoing or len(conf.voters) < VOTERS:
                self.judge.fail(f"group {group}: the members are {conf.voters} at the end")
            members = {*conf.voters, *conf.learners}
            states = {
                number: node.machines[group].state
                for number, node in self.nodes.items()
                if node.peer(group) in members
            }
            self.judge.check_end(group, states)


@contextmanager
def parts() -> Iterator[None]:
    """Make every snapshot travel in several parts."""
    part_max = batch.PART_MAX
    batch.PART_MAX = PART_SIZE
    try:
        yield
    finally:
        batch.PART_MAX = part_max


def play(seed: int, world: type[World] = World, counts: Counter[str] | None = None) -> str:
    """Run one seed; return the violation, or "" if there is none. `counts` gets the number of events of each kind."""
    try:
        with parts():
            played = world(seed)
            played.run()
            if counts is not None:
                counts += played.judge.counts
    except Violation as error:
        return str(error)
    except Exception as error:  # report the seed of any error
        return f"{CRASHED}{type(error).__name__}: {error}"
    return ""
