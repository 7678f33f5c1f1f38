"""Consumers of a replicated stream on three nodes: they survive failed leaders, restarts, cut logs and copies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.consumerfixture import Delivery, delivery

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.cluster.assignments import Assignment, Replica, stored_config

SMALL_LOG = Tuning(log_size_max=1 << 14)


def consumer(cluster: Cluster, name: str = "c", **fields: Any) -> dict[str, Any]:
    """Create a durable consumer through the leader."""
    config = {"durable_name": name, "ack_policy": "explicit", **fields}
    body = {"stream_name": "S", "config": config}
    answer: dict[str, Any] = cluster.leader().ask(f"$JS.API.CONSUMER.CREATE.S.{name}", body)
    assert "config" in answer, answer
    return answer


def pull(
    cluster: Cluster, batch: int, name: str = "c", acks: bool = True, of: ReplicaNode | None = None
) -> list[Delivery]:
    """Pull messages from the leader and acknowledge them; return them once every ack is confirmed."""
    client = (of or cluster.leader()).client()
    client.send(b"SUB in.> 1\r\n")
    subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}".encode()
    client.send(b"PUB %b in.m %d\r\n%d\r\n" % (subject, len(f"{batch}"), batch))
    found: list[Delivery] = []
    confirmed: list[bytes] = []

    def came() -> bool:
        for frame in client.frames():
            if frame.reply.startswith(b"$JS.ACK."):
                found.append(delivery(frame))
                if acks:
                    client.send(b"PUB %b in.ack 0\r\n\r\n" % frame.reply)
            elif frame.subject == b"in.ack":
                confirmed.append(frame.subject)
        return len(found) == batch and (not acks or len(confirmed) == batch)

    cluster.until(came)
    client.session.close("done")
    return found


def committed(node: ReplicaNode) -> bytes:
    """Return the committed consumers of a node, without the index of the last entry."""
    replica = node.stream.replica
    assert replica is not None
    return b"".join(each.state + bytes(each.changes) for each in replica.consumers.committed.values())


def same(cluster: Cluster) -> dict[str, Any]:
    """Wait until the state of all replicas is equal, including their consumers; return it."""
    found = cluster.same()
    cluster.until(lambda: len({committed(node) for node in cluster.holders()}) == 1)
    return found


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_consumer_goes_on_when_its_leader_dies(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    cluster.create()
    consumer(cluster)
    cluster.publish(10)
    assert [m.seq for m in pull(cluster, 4)] == [1, 2, 3, 4]
    first = cluster.leader()
    cluster.kill(first.number)

    assert [m.seq for m in pull(cluster, 3)] == [5, 6, 7]

    cluster.start(first.number)
    same(cluster)
    assert [m.seq for m in pull(cluster, 3)] == [8, 9, 10]


def test_consumers_are_there_after_all_nodes_died(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create(retention="interest")
    consumer(cluster)
    cluster.publish(6)
    pull(cluster, 2)
    pull(cluster, 1, acks=False)
    cluster.settle()
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)

    info = cluster.leader().ask("$JS.API.CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (2, 1, 3)
    assert [each[0] for each in same(cluster)["messages"]] == [3, 4, 5, 6]


def test_consumers_are_in_the_state_that_a_cut_log_begins_with(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SMALL_LOG)
    cluster.create(retention="interest")
    consumer(cluster)
    for _ in range(6):
        cluster.publish(20, size=400)
        pull(cluster, 19)
        pull(cluster, 1)
    cluster.publish(3)
    pull(cluster, 1)
    cluster.settle()
    starts = [node.node_log.groups[1].start for node in cluster.up()]
    assert all(start > 5 for start in starts), starts
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)

    info = cluster.leader().ask("$JS.API.CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (121, 2)
    assert [each[0] for each in same(cluster)["messages"]] == [122, 123]


def test_a_replica_that_was_away_for_long_copies_the_consumers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SMALL_LOG)
    cluster.create()
    away = cluster.followers()[0].number
    cluster.kill(away)
    consumer(cluster)
    for _ in range(6):
        cluster.publish(20, size=400)
        pull(cluster, 20)
    cluster.start(away)
    same(cluster)
    cluster.publish(2)
    cluster.kill(cluster.leader().number)
    assert [m.seq for m in pull(cluster, 2)] == [121, 122]
    same(cluster)


def test_consumers_of_a_stream_that_gets_replicas_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    node = cluster.nodes[2]
    node.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    node.ask("$JS.API.CONSUMER.CREATE.S.c", body)
    for _ in range(6):
        node.ask("s.a", b"x")
    assert [m.seq for m in pull(cluster, 2, of=node)] == [1, 2]
    created_ns, config = node.stream.created_ns, replace(node.stream.config, num_replicas=3)
    replicas = (Replica(2, 1), Replica(1, 2), Replica(3, 2))
    cluster.assignments["S"] = made = Assignment("$G", 1, 2, created_ns, replicas, 2, stored_config(config))
    cluster.state.put(made)
    for each in cluster.up():
        each.do(partial(each.replicated.open_steps, each.js, made))

    cluster.until(
        lambda: all("S" in each.js.streams and "c" in each.stream.consumers for each in cluster.up())
    )
    assert [m.seq for m in pull(cluster, 2)] == [3, 4]
    leader = cluster.leader()
    cluster.until(lambda: [each.is_voter for each in leader.consensus.status(1).replicas] == [True] * 3)
    # In the joint membership the first server still decides; the end of its log is the last entry.
    last = leader.consensus.status(1).last
    cluster.until(lambda: all(each.consensus.status(1).applied >= last for each in cluster.up()))
    same(cluster)
    cluster.kill(leader.number)
    assert [m.seq for m in pull(cluster, 2)] == [5, 6]
    for number in cluster.numbers:
        if cluster.nodes[number].is_up:
            cluster.kill(number)
        cluster.start(number)
    info = cluster.leader().ask("$JS.API.CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (6, 0)
