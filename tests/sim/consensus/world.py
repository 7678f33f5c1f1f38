"""One seed: nodes, network, disks, clients and troubles, then a calm time in which all must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

from raft.tests.sim.net import SimNet, Weather
from tests.sim.consensus.judge import Judge, Violation
from tests.sim.consensus.node import STEP_NS, SimNode, voters

from pyjs.base.clock import NS_PER_MS
from pyjs.consensus import batch
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.engine import Refused

GROUPS = (1, 2)
TROUBLE_STEPS = 400
CALM_STEPS = 300
PART_SIZE = 64  # bytes of a snapshot in one batch: all have several
CRASHED = "crashed: "


class World:
    """The run of one seed."""

    node_class: type[SimNode] = SimNode
    storms = 0.2  # share of seeds with elections that last long, and nodes that are back at once
    reads = 0.2  # share of steps in which clients read
    is_always: bool | None = None  # sync mode; None: by chance, an interval without power cuts

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
        self.has_power_cuts = self.is_always if self.is_always is not None else rng.random() < 0.7
        count = rng.choice((3, 3, 5))
        self.conf = voters(count)
        interval_ns = 0 if self.has_power_cuts else 20 * NS_PER_MS
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
        self.down: dict[int, int] = {}  # node -> when it comes back
        self.published = 0
        for node in self.nodes.values():
            self._start(node)

    def _start(self, node: SimNode) -> None:
        node.start(self.now, dict.fromkeys(GROUPS, self.conf))

    def run(self) -> None:
        """Play it.

        Raises:
            Violation: with what happened.
        """
        for _ in range(TROUBLE_STEPS):
            self._trouble()
            self._work()
            self._step()
        self._heal()
        for at in range(CALM_STEPS):
            if at % 10 == 0 and at < CALM_STEPS - 100:
                self._publish(self.rng.choice(GROUPS))
            self._step()
        self._check_end()

    def _step(self) -> None:
        self.now += 1
        for source, target, data, is_damaged in self.net.arrived(self.now):
            node = self.nodes[target]
            if node.is_running(self.now):  # what reaches a paused node is lost here
                node.now = self.now
                node.host.turn_state.now = self.now * STEP_NS
                node.receive(source, data, is_damaged=is_damaged)
        for number in [number for number, at in self.down.items() if at <= self.now]:
            del self.down[number]
            if self.nodes[number].is_up:  # its log was broken
                self.nodes[number].end(power=False)
            self._start(self.nodes[number])
        for node in self.nodes.values():
            if node.is_running(self.now):
                node.step(self.now)

    # -- clients -----------------------------------------------------------------------------------------------

    def _running(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_running(self.now)]

    def _work(self) -> None:
        if self.rng.random() < 0.4:
            for _ in range(self.rng.choice((1, 1, 5))):
                self._publish(self.rng.choice(GROUPS))
        nodes = self._running()
        if self.rng.random() < self.reads:
            group = self.rng.choice(GROUPS)
            for node in nodes:
                node.read(group)
        if nodes and self.rng.random() < 0.01:
            self._transfer(self.rng.choice(nodes), self.rng.choice(GROUPS))

    def _publish(self, group: int) -> None:
        """Publish at every node that takes it: a client does not know who leads."""
        for node in self._running():
            self.published += 1
            payload = b"%d." % self.published + bytes(self.rng.choice((0, 0, 20, 300)))
            node.publish(group, payload)

    def _transfer(self, node: SimNode, group: int) -> None:
        with suppress(Refused):
            node.consensus.transfer(group, self.rng.choice(node.others))

    # -- troubles ----------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.rng.random() >= (0.15 if self.is_storm else 0.04):
            return
        node = self.rng.choice(list(self.nodes.values()))
        other = self.rng.choice(node.others)
        what = self.rng.randrange(10)
        if what == 0 and node.is_up:
            self._end(node, power=False)
        elif what in (1, 2) and node.is_up:
            self._end(node, power=self.has_power_cuts)
        elif what == 3 and self.rng.random() < 0.5:
            for each in self.nodes.values():
                if each.is_up:
                    self._end(each, power=self.has_power_cuts)
        elif what == 4:
            node.paused_until = self.now + self.rng.randrange(5, 60)
        elif what == 5:
            self.net.cuts.add((node.number, other))  # one way
        elif what == 6:
            for peer in node.others:
                self.net.cuts |= {(node.number, peer), (peer, node.number)}
        elif what == 7:
            node.deaf = {other}
        elif what == 8 and node.is_up and self.rng.random() < 0.3:
            node.store.fail(self.rng)
            self.down[node.number] = self.now + self.rng.randrange(20, 60)
        else:
            self.net.cuts.clear()
            node.deaf = set()

    def _end(self, node: SimNode, *, power: bool) -> None:
        node.end(power=power)
        self.down[node.number] = self.now + self.rng.randrange(1, 4 if self.is_storm else 60)

    def _heal(self) -> None:
        self.net.cuts.clear()
        self.net.weather = Weather()
        for node in self.nodes.values():
            node.paused_until = 0
            node.deaf = set()
        for number in self.down:
            self.down[number] = self.now + 1

    def _check_end(self) -> None:
        for group in GROUPS:
            leaders = [node.number for node in self.nodes.values() if node.leads(group)]
            if len(leaders) != 1:
                self.judge.fail(f"group {group}: leaders {leaders} at the end")
            states = {number: node.machines[group].state for number, node in self.nodes.items()}
            self.judge.check_end(group, states)


@contextmanager
def parts() -> Iterator[None]:
    """Let every snapshot travel in several parts."""
    part_max = batch.PART_MAX
    batch.PART_MAX = PART_SIZE
    try:
        yield
    finally:
        batch.PART_MAX = part_max


def play(seed: int, world: type[World] = World, counts: Counter[str] | None = None) -> str:
    """Play one seed; return what was violated, "" for nothing. `counts` gets what happened."""
    try:
        with parts():
            played = world(seed)
            played.run()
            if counts is not None:
                counts += played.judge.counts
    except Violation as error:
        return str(error)
    except Exception as error:  # whatever it is, the seed must be named
        return f"{CRASHED}{type(error).__name__}: {error}"
    return ""
