"""A message id counts in the whole group after a step of the leader's clock: leader changes, restarts and copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import Cluster, ReplicaNode

from pyjs.consensus.consensus import Tuning

HOUR = 3_600_000_000_000
STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


def published(cluster: Cluster, msg_id: str) -> bool:
    """Publish a message with an id; return whether it was stored."""
    headers = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id.encode()
    client = cluster.leader().client()
    head = b"SUB _INBOX.a 1\r\nHPUB s.a _INBOX.a %d %d\r\n" % (len(headers), len(headers) + 1)
    client.send(head + headers + b"x\r\n")
    found: list[dict[str, Any]] = []

    def came() -> bool:
        found.extend(json.loads(each) for each in client.payloads())
        return bool(found)

    cluster.until(came)
    client.session.close("done")
    assert "error" not in found[0]
    return "duplicate" not in found[0]


def step_clock(cluster: Cluster, node: ReplicaNode, ns: int) -> None:
    """Set the wall clock of a node."""
    node.clock.step_wall(ns)
    cluster.step(3)


def steps(cluster: Cluster) -> int:
    """Check that all replicas are equal, also in their clock steps; return the number of these."""
    cluster.same()
    found = {node.stream.store.steps.encode() for node in cluster.holders()}
    assert len(found) == 1
    return len(found.pop()) // 16


@STORAGES
def test_a_copied_replica_has_the_steps_and_decides_as_the_others(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, tuning=Tuning(log_size_max=2000), storage=storage)
    cluster.create()
    assert published(cluster, "a")
    away = cluster.followers()[0]
    cluster.kill(away.number)
    step_clock(cluster, cluster.leader(), HOUR)
    assert published(cluster, "b")
    leader = cluster.leader()
    for first in range(0, 400, 30):
        cluster.publish(30, size=40, first=first)
        cluster.step(5)
    cluster.until(lambda: leader.node_log.groups[1].start > 20)

    again = cluster.start(away.number)
    cluster.publish(1)

    assert steps(cluster) == 1
    leader.consensus.transfer(1, away.number)
    cluster.until(lambda: again.leads)
    assert [published(cluster, each) for each in "ab"] == [False] * 2
    steps(cluster)


@STORAGES
def test_the_leader_dies_and_the_clock_of_the_next_one_is_ahead(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    cluster.create()
    assert published(cluster, "a")
    for node in cluster.followers():
        step_clock(cluster, node, HOUR)
    dead = cluster.leader().number
    cluster.kill(dead)
    assert not published(cluster, "a")
    cluster.start(dead)
    assert steps(cluster) == 1
    assert not published(cluster, "a")


def test_all_servers_restart_and_one_has_a_clock_ahead(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    assert published(cluster, "a")
    step_clock(cluster, cluster.leader(), HOUR)
    assert published(cluster, "b")
    cluster.settle()
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)
        step_clock(cluster, cluster.nodes[number], 2 * HOUR)
    assert [published(cluster, each) for each in "ab"] == [False] * 2
    steps(cluster)


def test_the_entries_of_a_leader_ahead_are_dropped_and_the_next_leader_is_not_ahead(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    assert published(cluster, "a")
    old = cluster.leader()
    before_ns = old.stream.entry_ns
    others = [node.number for node in cluster.followers()]
    for number in others:
        cluster.kill(number)
    old.clock.step_wall(HOUR)
    old.client().send(b"PUB s.a 1\r\nx\r\n")  # never committed
    cluster.step(5)
    cluster.kill(old.number)
    for number in others:
        cluster.start(number)
    assert not published(cluster, "a")
    assert cluster.leader().stream.entry_ns < before_ns + HOUR
    cluster.start(old.number)
    assert steps(cluster) <= 1
    assert not published(cluster, "a")
