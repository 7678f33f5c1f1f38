"""A short run of the simulation on the real node log."""

from __future__ import annotations

import os

import pytest
from raft.tests.sim.log_disk import LoggedNode, LoggedWorld
from raft.tests.sim.mutants import HastyNode
from raft.tests.sim.world import CRASHED, play

SEEDS = int(os.environ.get("PYJS_RAFT_LOG_SEEDS", "40"))


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_violated_on_the_node_log(part: int) -> None:
    assert {seed: text for seed in range(part, SEEDS, 2) if (text := play(seed, LoggedWorld))} == {}


def test_the_node_log_is_used_again_and_recovered_in_the_simulation() -> None:
    worlds = [LoggedWorld(seed) for seed in range(3)]
    for world in worlds:
        world.run()

    logs = [
        node.disk.log for world in worlds for node in world.nodes.values() if isinstance(node, LoggedNode)
    ]
    assert sum(log.boot - 1 for log in logs) > 5
    assert max(log.written for log in logs) > 200
    assert max(int(log.files[-1].partition(".")[0]) for log in logs) > 8


def test_a_node_that_tells_before_its_log_is_durable_is_found_out() -> None:
    node = type("HastyLoggedNode", (HastyNode, LoggedNode), {})
    world = type("HastyWorld", (LoggedWorld,), {"node_class": node, "storms": 1.0})
    found = (play(seed, world) for seed in range(100))
    assert any(text and not text.startswith(CRASHED) for text in found)
