"""Nodes with replicated groups in one process, for unit tests; the network and the disks work without faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar, cast

from raft.tests.sim.net import SimNet, Weather
from tests.sim.consensus.judge import Judge
from tests.sim.consensus.log import MemoryLog
from tests.sim.consensus.node import STEP_NS, SimNode, voters

from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.payloads import Key, Payloads

GROUP = 5
Item = TypeVar("Item")


class Calm(Random):
    """Always makes the first choice: syncs end at once, snapshots are always possible."""

    def choice(self, items: object) -> object:  # type: ignore[override]
        """Return the first item."""
        return items[0]  # type: ignore[index]

    def random(self) -> float:
        """Return almost 1: nothing unlikely happens."""
        return 0.99


class Troubled(Payloads):
    """Payloads whose reads a test can replace."""

    replaced: Callable[[Key], bytes] | None = None

    def get(self, key: Key) -> bytes:
        """Return the payload of an entry."""
        return super().get(key) if self.replaced is None else self.replaced(key)


class TroubledConsensus(Consensus):
    """A consensus whose payloads a test can replace."""

    payloads_class = Troubled


class MemoryNode(SimNode):
    """A node with its log in memory."""

    consensus_class = TroubledConsensus
    store_class = staticmethod(lambda seed: MemoryLog())


class Hosts:
    """Some nodes with the same groups."""

    def __init__(
        self,
        count: int = 3,
        *,
        groups: tuple[int, ...] = (GROUP,),
        tuning: Tuning | None = None,
        node_class: type[SimNode] = MemoryNode,
    ) -> None:
        self.net = SimNet(Calm(7), Weather(delay_max=0))
        self.judge = Judge()
        self.groups = groups
        self.conf = voters(count)
        numbers = range(1, count + 1)
        self.nodes = {
            number: node_class(
                number,
                Calm(number),
                self.net,
                self.judge,
                [n for n in numbers if n != number],
                tuning or Tuning(),
            )
            for number in numbers
        }
        self.now = 0
        for number in self.nodes:
            self.start(number)

    def start(self, number: int) -> None:
        """Start the process of a node."""
        self.nodes[number].start(self.now, dict.fromkeys(self.groups, self.conf))

    def step(self, count: int = 1) -> None:
        """Advance the time by 10 ms `count` times."""
        for _ in range(count):
            self.now += 1
            for source, target, data, _ in self.net.arrived(self.now):
                node = self.nodes[target]
                if node.is_running(self.now):
                    node.now, node.host.turn_state.now = self.now, self.now * STEP_NS
                    node.receive(source, data, is_damaged=False)
            for node in self.nodes.values():
                if node.is_running(self.now):
                    node.step(self.now)

    def until(self, reached: Callable[[], object], steps: int = 500) -> None:
        """Advance the time until `reached` returns true."""
        for _ in range(steps):
            if reached():
                return
            self.step()
        raise AssertionError(f"not reached in {steps} steps")

    def leader(self, group: int = GROUP) -> SimNode:
        """Wait for a leader; return its node."""
        self.until(lambda: any(node.is_up and node.leads(group) for node in self.nodes.values()))
        return next(node for node in self.nodes.values() if node.is_up and node.leads(group))

    def followers(self, group: int = GROUP) -> list[SimNode]:
        """Wait for a leader; return the other nodes."""
        leader = self.leader(group)
        return [node for node in self.nodes.values() if node is not leader]

    def publish(self, count: int, group: int = GROUP, size: int = 10) -> None:
        """Propose entries in sequence, and wait until all running nodes have applied them."""
        leader = self.leader(group)
        first = leader.machines[group].state.count
        for number in range(first, first + count):
            assert leader.publish(group, b"%d/%d." % (group, number) + bytes(size))
        self.until(
            lambda: all(
                node.machines[group].state.count >= first + count
                for node in self.nodes.values()
                if node.is_up
            )
        )


def payloads(node: SimNode) -> Troubled:
    """Return the payloads of a node."""
    return cast("Troubled", node.consensus._payloads)
