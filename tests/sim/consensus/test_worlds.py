"""A short run of the simulation of the consensus, and proof that it notices what it is for."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.sim.consensus.mutants import MUTANTS, world_of
from tests.sim.consensus.world import CRASHED, World, parts, play

SEEDS = int(os.environ.get("PYJS_CONSENSUS_SEEDS", "30"))
MUTANT_SEEDS = 60


def test_nothing_is_violated() -> None:
    assert {seed: text for seed in range(SEEDS) if (text := play(seed))} == {}


def test_the_simulation_meets_what_it_is_for() -> None:
    found: Counter[str] = Counter()
    with parts():
        for seed in range(6):
            world = World(seed)
            world.run()
            found += world.judge.counts

    assert found["applied"] > 5000
    assert found["acked"] > 1000
    assert found["reads"] > 150
    assert found["installed"] > 20
    assert found["leaders"] > 25
    assert found["refused"] > 0


def test_a_seed_gives_the_same_run_again() -> None:
    runs = [World(7), World(7)]
    with parts():
        for world in runs:
            world.run()

    first, second = runs
    assert first.net.sent == second.net.sent
    assert first.judge.truth == second.judge.truth


@pytest.mark.parametrize("name", MUTANTS)
def test_a_flaw_is_found_out(name: str) -> None:
    world = world_of(name)
    found = (play(seed, world) for seed in range(MUTANT_SEEDS))

    assert any(text and not text.startswith(CRASHED) for text in found)
