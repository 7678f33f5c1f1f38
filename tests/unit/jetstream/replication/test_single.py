"""The last replica of a stream goes on without its group, whatever its log knows of the others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_failures import without_files

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.cluster.assignments import Assignment, Replica, stored_config
from pyjs.jetstream.manage import streams
from pyjs.jetstream.replication import single


def left_alone(cluster: Cluster, old: Assignment) -> tuple[ReplicaNode, Assignment]:
    """Kill all nodes, whose logs do not have the removal of the others; start the one that led, which is kept."""
    kept = cluster.leader().number
    for number in cluster.numbers:
        cluster.kill(number)
    del cluster.assignments["S"]
    config = stored_config(replace(old.config, num_replicas=1))
    alone = replace(old, group=2, revision=2, ended=1, replicas=(Replica(kept, 1),), stored=config)
    cluster.state.put(alone, old)
    return cluster.start(kept), alone


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "LEAD_NS", 500 * NS_PER_MS)


def test_a_replica_that_cannot_be_elected_goes_on_with_its_whole_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(20)
    node, alone = left_alone(cluster, old)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert node.ask("s.a", b"x")["seq"] == 21
    assert node.stream.config.num_replicas == 1
    assert node.stream.store.msgs == 21
    assert not node.node_log.groups


def test_an_attempt_that_fails_is_made_again_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(20)
    node, alone = left_alone(cluster, old)
    with monkeypatch.context() as short:
        short.setattr(streams, "open_replica", without_files)
        with pytest.raises(OSError, match="too many"):
            list(node.replicated.single_steps(node.js, alone))

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert node.ask("s.a", b"x")["seq"] == 21


def test_a_group_that_is_left_in_the_log_is_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)
    with pytest.MonkeyPatch.context() as short:
        short.setattr(node.consensus, "remove", node.consensus.close)  # the server ends before that
        node.do(partial(node.replicated.single_steps, node.js, alone))
    assert list(node.node_log.groups) == [1]
    cluster.kill(node.number)
    node = cluster.start(node.number)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert not node.node_log.groups
    assert node.stream.store.msgs == 3


def test_an_earlier_replica_is_not_taken_for_the_last_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)
    moved = replace(alone, group=3, ended=2)

    node.do(partial(node.replicated.single_steps, node.js, moved))

    assert not node.js.streams


def test_messages_in_memory_are_lost_with_the_last_replica_and_nothing_is_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, storage="memory")
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert not node.js.streams
    assert not node.node_log.groups
