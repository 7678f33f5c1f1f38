"""Replicas that close their group while the group sleeps: by their owner, by damage of the log, or by a panic.

Clients and faults rest at times, so that groups fall asleep. Then the leader, sometimes a follower, closes its group
for a while. At the end, the leader of each sleeping group closes the group again. The others must soon elect another
leader, and the group must fall asleep again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from tests.sim.consensus.node import Flaw, SimNode

from pyjs.consensus.engine import RaftError, Role

if TYPE_CHECKING:
    from tests.sim.consensus.world import World

SLEEP_STEPS = 300  # number of steps in which a group without work falls asleep
LED_STEPS = 40  # number of steps after which a group must have another leader


class Closings:
    """The rests and the closed groups of one seed, with a source of chance of its own."""

    def __init__(self, seed: int, share: float) -> None:
        self._rng = Random(f"closings {seed}")
        self.is_on = self._rng.random() < share
        self._rest_until = 0

    def is_resting(self, now: int) -> bool:
        """Return whether clients and faults rest now."""
        return now < self._rest_until

    def step(self, world: World, groups: Sequence[int]) -> None:
        """Begin a rest or close a group, at random."""
        if not self.is_on:
            return
        rng, now = self._rng, world.now
        if not self.is_resting(now) and rng.random() < 0.02:
            self._rest_until = now + rng.randrange(30, 120)
        if rng.random() >= (0.7 if self._rest_until - now == 5 else 0.005):
            return
        group = rng.choice(groups)
        nodes = [node for node in world.running() if holds(node, group)]
        leaders = [node for node in nodes if role(node, group) == Role.LEADER]
        if rng.random() < 0.8 and leaders:
            nodes = leaders
        if nodes:
            self._close(world, rng.choice(nodes), group)

    def _close(self, world: World, node: SimNode, group: int) -> None:
        is_asleep = all(asleep(each, group) for each in world.running())
        world.judge.counts["closed asleep" if is_asleep else "closed awake"] += 1
        how, consensus = self._rng.random(), node.consensus
        member = consensus._members[group]
        if how < 0.2 and world.may_lose(node):
            node.store.is_damaged = True
            consensus.lose_damaged(member, Flaw("damage"))
        elif how < 0.4:
            del consensus._faults._panics[
                group
            ]  # the pause grows with each panic, beyond the time without faults
            consensus._panicked(member, "a panic of the simulation")
        else:
            node.close(group, world.now + self._rng.choice((1, 3, 20, 40, 150)))

    # -- the end -----------------------------------------------------------------------------------------------

    def check_end(self, world: World, groups: Sequence[int]) -> None:
        """Check that each group falls asleep, and that it soon has another leader after its leader has closed it.

        Raises:
            Violation: a group does not fall asleep, or no other leader is elected.
        """
        for group in groups if self.is_on else ():
            await_sleep(world, group)
            (bad,) = (node for node in world.running() if role(node, group) == Role.LEADER)
            world.judge.counts["closed asleep"] += 1
            bad.close(group, world.now + self._rng.choice((1, 5, 30, 100)))
            others = [node for node in world.running() if node is not bad]
            wait(
                world,
                LED_STEPS,
                lambda others=others, group=group: any(node.leads(group) for node in others),  # type: ignore[misc]
                f"group {group} has no other leader after {bad.number} has closed it",
            )
            await_sleep(world, group)


def wait(world: World, steps: int, is_done: Callable[[], bool], failure: str) -> None:
    """Step until a condition holds; fail if it does not hold after `steps` steps."""
    for _ in range(steps):
        if is_done():
            return
        world.step()
    world.judge.fail(failure)


def await_sleep(world: World, group: int) -> None:
    """Step until all replicas of a group sleep."""
    wait(world, SLEEP_STEPS, lambda: all_sleep(world.running(), group), f"group {group} does not fall asleep")


def all_sleep(nodes: Sequence[SimNode], group: int) -> bool:
    """Return whether all members of a group are open and sleep."""
    leader = next((node for node in nodes if role(node, group) == Role.LEADER), None)
    if leader is None:
        return False
    conf = leader.consensus._engine.status(group).conf
    members = {*conf.voters, *conf.learners}
    return all(holds(node, group) and asleep(node, group) for node in nodes if node.peer(group) in members)


def holds(node: SimNode, group: int) -> bool:
    """Return whether a group is open on a node."""
    return not node.stopped and role(node, group) is not None


def role(node: SimNode, group: int) -> int | None:
    """Return the role of a replica according to the engine, or None if the replica is closed."""
    with suppress(RaftError):
        return node.consensus._engine.status(group).role
    return None


def asleep(node: SimNode, group: int) -> bool:
    """Return whether a replica sleeps, or is closed."""
    with suppress(RaftError):
        return node.consensus._engine.status(group).asleep
    return True
