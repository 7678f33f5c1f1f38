"""A short run of the simulation of the bare engine, and proof that it notices what it is for."""

from __future__ import annotations

import os

import pytest
from raft.tests.sim.mutants import MUTANTS, world_of
from raft.tests.sim.world import World, play

SEEDS = int(os.environ.get("PYJS_RAFT_SEEDS", "50"))
MUTANT_SEEDS = 150


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_violated(part: int) -> None:
    assert {seed: text for seed in range(part, SEEDS, 2) if (text := play(seed))} == {}


def test_the_simulation_meets_what_it_is_for() -> None:
    worlds = [World(seed) for seed in range(10)]
    for world in worlds:
        world.run()

    judges = [world.judge for world in worlds]
    assert sum(judge.commit_count for judge in judges) > 3_000
    assert sum(judge.reads for judge in judges) > 150
    assert sum(judge.installs for judge in judges) > 0
    assert sum(judge.damaged for judge in judges) > 0
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
    assert any(play(seed, world) for seed in range(MUTANT_SEEDS))
