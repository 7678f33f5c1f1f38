"""A short run of the simulation of the consensus, and proof that it detects flaws."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.sim.consensus.mutants import MUTANTS, world_of
from tests.sim.consensus.world import CRASHED, World, parts, play

SEEDS = int(os.environ.get("PYJS_CONSENSUS_SEEDS", "60"))
PARTS = 4
# the first seed that detects each flaw; if the simulation changes: python -m tests.sim.consensus --mutant NAME
FLAW_SEEDS = {
    "tells before durable": 11,
    "forgets its vote": 210,
    "forgets a failed sync": 241,
    "applies past a snapshot": 0,
    "cuts the log without the state": 0,
    "reads without asking": 62,
    "reads before it has applied": 1,
    "gives proposals back by index alone": 4,
    "votes in doubt": 10,
    "comes back as the same peer": 5,
}
# What each of them has found:
FOUND = {
    1869: "a snapshot is fetched from a leader that is lost already",
    1889: "an append whose entries were compacted before it left has no term",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_has_found_does_not_come_back(seed: int) -> None:
    assert not play(seed), FOUND[seed]


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_violated_and_everything_is_met(part: int) -> None:
    found: Counter[str] = Counter()
    seeds = range(part, SEEDS, PARTS)
    assert {seed: text for seed in seeds if (text := play(seed, counts=found))} == {}

    count = len(seeds)
    assert found["applied"] > 400 * count
    assert found["acked"] > 80 * count
    assert found["reads"] > 40 * count
    assert found["installed"] > 4 * count
    assert found["leaders"] > 3 * count
    assert found["refused"] > count
    assert found["changes"] > count
    assert found["damages"] > 0
    assert found["doubts"] > 0
    assert found["closed asleep"] > 0
    assert found["closed awake"] > 0
    assert found["accepted"] <= count // 100


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
    text = play(FLAW_SEEDS[name], world_of(name))

    assert text
    assert not text.startswith(CRASHED)
