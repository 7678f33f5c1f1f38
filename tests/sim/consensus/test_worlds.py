"""A short run of the simulation of the consensus, and proof that it notices what it is for."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.sim.consensus.mutants import MUTANTS, world_of
from tests.sim.consensus.world import CRASHED, World, parts, play

SEEDS = int(os.environ.get("PYJS_CONSENSUS_SEEDS", "30"))
MUTANT_SEEDS = 60
FIRST_SEEDS = {"gives proposals back by index alone": 15}  # it is seen from about here on


def test_nothing_is_violated_and_everything_is_met() -> None:
    found: Counter[str] = Counter()
    assert {seed: text for seed in range(SEEDS) if (text := play(seed, counts=found))} == {}

    assert found["applied"] > 500 * SEEDS
    assert found["acked"] > 100 * SEEDS
    assert found["reads"] > 50 * SEEDS
    assert found["installed"] > 4 * SEEDS
    assert found["leaders"] > 3 * SEEDS
    assert found["refused"] > SEEDS


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
    found = (play(seed, world) for seed in range(FIRST_SEEDS.get(name, 0), MUTANT_SEEDS))

    assert any(text and not text.startswith(CRASHED) for text in found)
