"""A short run of the simulation of the engine, and proof that it detects flaws."""

from __future__ import annotations

import os

import pytest
from raft.tests.sim.judge import Violation
from raft.tests.sim.mutants import MUTANTS, world_of
from raft.tests.sim.world import CRASHED, World, play

SEEDS = int(os.environ.get("PYJS_RAFT_SEEDS", "50"))
MUTANT_SEEDS = 150
# The first seeds that detect these flaws. All other flaws are found by the first seeds, which would take seconds for
# these. After a change of the simulation, other seeds may be needed.
FOUND_BY = {"forgets its vote": [32], "applies past a snapshot": [131], "sleeps for ever": [15]}


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_violated(part: int) -> None:
    assert {seed: text for seed in range(part, SEEDS, 2) if (text := play(seed))} == {}


def test_the_simulation_meets_what_it_is_for() -> None:
    worlds = [World(seed) for seed in (*range(11), 15)]
    for world in worlds:
        world.run()

    judges = [world.judge for world in worlds]
    assert sum(judge.commit_count for judge in judges) > 3_000
    assert sum(judge.reads for judge in judges) > 150
    assert sum(judge.installs for judge in judges) > 0
    assert sum(judge.damaged for judge in judges) > 0
    assert sum(judge.sleeps for judge in judges) > 20
    assert sum(judge.lost_asleep for judge in judges) > 0
    assert sum(judge.replaced for judge in judges) > 0
    assert sum(node.boot - 1 for world in worlds for node in world.nodes.values()) > 20
    assert max(term for judge in judges for _, term in judge.leaders) > 3


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()

    assert first.net.sent == second.net.sent
    assert first.judge.truth == second.judge.truth


@pytest.mark.parametrize("name", MUTANTS)
def test_a_flaw_is_found_out(name: str) -> None:
    world = world_of(MUTANTS[name])
    seeds = [*FOUND_BY.get(name, ()), *range(MUTANT_SEEDS)]
    found = (play(seed, world) for seed in seeds)
    assert any(text and not text.startswith(CRASHED) for text in found)


def test_a_good_batch_that_is_refused_is_a_violation() -> None:
    node = World(0).nodes[1]
    node.receive(2, b"abc", is_damaged=True)

    with pytest.raises(Violation, match="node 1 refuses a good batch of node 2: frame at byte 0"):
        node.receive(2, b"abc", is_damaged=False)


def test_a_crash_of_the_simulation_is_a_failure_of_its_seed() -> None:
    class Broken(World):
        def run(self) -> None:
            raise KeyError(7)

    assert play(0, Broken) == "crashed: KeyError: 7"
