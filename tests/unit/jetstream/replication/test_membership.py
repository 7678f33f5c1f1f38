"""Changes of a stream's replicas: they are added, moved and removed while messages are published."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_failures import without_files

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.cluster.assignments import Assignment, Replica, stored_config
from pyjs.jetstream.manage import streams
from pyjs.jetstream.replication import catch_up
from pyjs.jetstream.replication.stream_machine import StreamMachine


def members(cluster: Cluster) -> list[tuple[int, bool]]:
    """Return the members of the group as its leader sees them."""
    leader = cluster.leader()
    return sorted((each.node, each.is_voter) for each in leader.consensus.status(1).replicas)


def settled(cluster: Cluster, *nodes: int) -> None:
    """Wait until exactly these nodes are the voters of the group and have the stream."""
    cluster.until(lambda: members(cluster) == [(node, True) for node in nodes], 1500)
    others = [node for node in cluster.up() if node.number not in nodes]
    cluster.until(lambda: not any(node.js.streams or node.node_log.groups for node in others), 1500)


def test_a_stream_gets_more_replicas(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=5)
    cluster.create(on=(1, 2, 3))
    cluster.publish(50)

    cluster.move(1, 2, 3, 4, 5)
    settled(cluster, 1, 2, 3, 4, 5)

    cluster.publish(5)
    assert cluster.same()["range"][1] == 55


def test_a_stream_moves_to_other_nodes_with_everything(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=6, tuning=Tuning(log_size_max=2000))
    cluster.create(on=(1, 2, 3))
    for first in range(0, 90, 30):
        cluster.publish(30, size=100, first=first)

    cluster.move(4, 5, 6)
    settled(cluster, 4, 5, 6)

    assert cluster.publish(1)[0]["seq"] == 91
    assert len(cluster.same()["messages"]) == 91
    assert not any((tmp_path / f"{number}" / "_G" / "streams" / "S").exists() for number in (1, 2, 3))


def test_a_replica_on_a_lost_node_is_replaced(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=4)
    cluster.create(on=(1, 2, 3))
    cluster.publish(10)
    lost = next(node for node in cluster.followers() if node.number in (1, 2, 3))
    cluster.kill(lost.number)
    left = [number for number in (1, 2, 3) if number != lost.number]

    cluster.move(*left, 4)
    cluster.until(lambda: members(cluster) == [(node, True) for node in (*left, 4)], 1500)

    cluster.publish(5)
    assert cluster.same()["range"][1] == 15


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_without_replicas_gets_some(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    node = cluster.nodes[2]
    config = {"name": "S", "subjects": ["s.>"], "storage": storage, "first_seq": 100}
    node.ask("$JS.API.STREAM.CREATE.S", config)
    for at in range(20):
        node.ask(f"s.{at % 3}", b"x")
    node.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 107})
    created_ns, wanted = node.stream.created_ns, replace(node.stream.config, num_replicas=3)
    replicas = (Replica(2, 1), Replica(1, 2), Replica(3, 2))
    cluster.assignments["S"] = made = Assignment("$G", 1, 2, created_ns, replicas, 2, stored_config(wanted))
    cluster.state.put(made)
    for each in cluster.up():
        each.do(partial(each.replicated.open_steps, each.js, made))

    cluster.until(lambda: members(cluster) == [(1, True), (2, True), (3, True)], 1500)
    cluster.publish(5)

    assert cluster.same()["range"][:3] == (100, 124, 24)
    for number in cluster.numbers:
        cluster.kill(number)
        cluster.start(number)
        cluster.settle()
    assert cluster.publish(1)[0]["seq"] == 125
    assert cluster.same()["range"][:3] == (100, 125, 25)


def test_a_move_goes_on_after_all_nodes_died(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=6)
    old = cluster.create(on=(1, 2, 3))
    cluster.publish(5)
    cluster.settle()
    for number in cluster.numbers:
        cluster.kill(number)
    cluster.assignments["S"] = new = replace(old.regrouped((4, 5, 6)), revision=2)
    cluster.state.put(new, old)
    for number in cluster.numbers:
        cluster.start(number)

    for number in old.nodes:
        node = cluster.nodes[number]
        node.do(partial(node.replicated.drop_steps, node.js, old))
    settled(cluster, 4, 5, 6)

    assert len(cluster.same()["messages"]) == 5


def test_a_leader_that_goes_hands_over_to_a_node_that_answers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=4)
    cluster.create(on=(1, 2, 3))
    cluster.publish(5)
    leader = cluster.leader()
    dead, other = (number for number in (1, 2, 3) if number != leader.number)
    cluster.kill(dead)

    cluster.move(dead, other, 4)

    cluster.until(lambda: any(node.leads for node in cluster.up() if node is not leader))
    wanted = sorted([(dead, True), (other, True), (4, True)])
    cluster.until(lambda: members(cluster) == wanted, 1500)
    assert cluster.publish(1)[0]["seq"] == 6


def test_a_stream_that_is_deleted_during_a_move_is_gone_from_every_node(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=6)
    cluster.create(on=(1, 2, 3))
    cluster.publish(5)

    cluster.move(4, 5, 6)
    cluster.delete()

    cluster.until(lambda: not any(node.js.streams or node.node_log.groups for node in cluster.up()))
    assert not list(tmp_path.glob("**/streams/S"))


def test_a_stream_that_gets_replicas_keeps_its_messages_when_it_cannot_be_opened_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    node = cluster.nodes[1]
    node.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    node.ask("s.a", b"x")
    wanted = replace(node.stream.config, num_replicas=3)
    replicas = (Replica(1, 1), Replica(2, 2), Replica(3, 2))
    made = Assignment("$G", 1, 2, node.stream.created_ns, replicas, 2, stored_config(wanted))
    cluster.assignments["S"] = made
    cluster.state.put(made)
    with monkeypatch.context() as short:
        short.setattr(streams, "open_replica", without_files)
        with pytest.raises(OSError, match="too many"):
            list(node.replicated.open_steps(node.js, made))

    for each in cluster.up():
        each.do(partial(each.replicated.open_steps, each.js, made))

    assert cluster.publish(1)[0]["seq"] == 2
    assert len(cluster.same()["messages"]) == 2


def test_replicas_to_remove_stay_until_the_others_have_all_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "RATE", 3000)
    cluster = Cluster(tmp_path, tuning=Tuning(log_size_max=2000))
    cluster.create()
    leader = cluster.leader()
    away, other = (node.number for node in cluster.followers())
    cluster.kill(away)
    for first in range(0, 300, 30):
        cluster.publish(30, size=100, first=first)
    behind = cluster.start(away)
    cluster.until(lambda: machine_of(behind).catch_up is not None)

    cluster.move(leader.number, away)
    for _ in range(1500):
        cluster.step()
        if len(members(cluster)) == 2:
            break

    assert machine_of(behind).catch_up is None
    assert sum("has all messages" in text for _, text in leader.log.lines) == 1
    cluster.until(lambda: not machine_of(leader).waits)
    cluster.kill(other)
    assert len(cluster.same()["messages"]) == 300


def machine_of(node: ReplicaNode) -> StreamMachine:
    """Return the replica on a node."""
    return node.replicated.machines()[0]
