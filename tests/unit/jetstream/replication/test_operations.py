"""Requests to the leader of a replicated stream: operations, infos, reads, and changes of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import Cluster, ReplicaNode, S

from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import items_of


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(5)
    cluster.publish(3, "s.b")
    return cluster


def api(node: ReplicaNode, endpoint: str, body: Any = b"") -> Any:
    answer = node.ask(f"$JS.API.{endpoint}", body)
    answer.pop("type")
    return answer


def test_a_purge_reaches_all_replicas(cluster: Cluster) -> None:
    assert api(cluster.leader(), "STREAM.PURGE.S", {"filter": "s.a"}) == {"success": True, "purged": 5}
    assert cluster.same()["range"][:3] == (6, 8, 3)


@pytest.mark.parametrize(
    ("subject", "keep", "purged"),
    [(b"s.b.*", 0, 405), (b"s.b.*", 5, 400), (b"s.*.*", 300, 39_700), (b"", 300, 39_708), (b"s.b.99", 1, 0)],
)
def test_a_purge_of_scattered_messages_has_the_same_result_on_all_replicas(
    cluster: Cluster, subject: bytes, keep: int, purged: int
) -> None:
    cluster.settle()
    for node in cluster.up():
        for number in range(40_000):
            kind = b"b" if number % 99 == 0 else b"c"
            node.stream.store.store(b"s.%b.%d" % (kind, number), b"", b"", S)

    ends = [applied(node, operations.purge(subject, 0, keep)) for node in cluster.up()]

    assert {result for result, _ in ends} == {purged}
    assert all(steps > 1 for _, steps in ends) or purged <= operations.STEP
    assert len({tuple(live(node)) for node in cluster.up()}) == 1


def applied(node: ReplicaNode, payload: bytes) -> tuple[int, int]:
    """Apply an operation to one replica; return its result, and the number of its steps."""
    ((kind, subject, _, body),) = items_of(payload)
    steps, count = operations.apply_operation(node.stream.replica, kind, subject, body), 1
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return int(ended.value), count
        count += 1


def live(node: ReplicaNode) -> Iterator[int]:
    """Yield the sequences of the messages of a replica."""
    catalogue = node.stream.store.catalogue
    seq = catalogue.next_live(1)
    while seq:
        yield seq
        seq = catalogue.next_live(seq + 1)


def test_a_deleted_message_is_gone_from_all_replicas(cluster: Cluster) -> None:
    assert api(cluster.leader(), "STREAM.MSG.DELETE.S", {"seq": 3}) == {"success": True}
    assert cluster.same()["range"][:3] == (1, 8, 7)
    refused = api(cluster.leader(), "STREAM.MSG.DELETE.S", {"seq": 3})
    assert refused["error"]["err_code"] == 10043


def test_a_change_reaches_all_replicas_and_stays(cluster: Cluster) -> None:
    old = cluster.assignments["S"]
    config = replace(old.config, subjects=("t.>",), max_msgs=4)
    cluster.change(replace(old, stored=stored_config(config)))

    assert cluster.same()["config"] == config
    assert cluster.same()["range"][:3] == (5, 8, 4)
    assert cluster.publish(1, "t.a")[0]["seq"] == 9
    assert not cluster.leader().js.account.has_interest(b"s.a")
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)
    cluster.leader()
    assert cluster.same()["config"] == config


@pytest.mark.parametrize(
    ("limits", "left"),
    [({"max_msgs": 4}, 4), ({"max_msgs_per_subject": 2}, 20), ({"max_msgs": 4, "discard": "new"}, 10_008)],
)
def test_a_limit_that_removes_many_messages_reaches_all_replicas(
    cluster: Cluster, limits: dict[str, Any], left: int
) -> None:
    cluster.settle()
    for node in cluster.up():
        for number in range(10_000):
            node.stream.store.store(b"s.%d" % (number % 8), b"", b"", S)
    old = cluster.assignments["S"]

    cluster.change(replace(old, stored=stored_config(replace(old.config, **limits))))

    assert cluster.same()["range"][1:3] == (10_008, left)


def test_a_change_that_the_leader_did_not_finish_is_finished_by_the_next_one(cluster: Cluster) -> None:
    old = cluster.assignments["S"]
    new = replace(old, stored=stored_config(replace(old.config, max_msgs=2)), revision=2)
    cluster.assignments["S"] = new
    for node in cluster.followers():
        node.do(partial(node.replicated.change_steps, node.js, old, new))
    cluster.kill(cluster.leader().number)

    cluster.until(lambda: cluster.leader().stream.store.msgs == 2)

    assert cluster.same()["range"][:3] == (7, 8, 2)


def test_the_info_of_a_replicated_stream_says_who_leads_and_who_follows(cluster: Cluster) -> None:
    leader = cluster.leader()
    shown = api(leader, "STREAM.INFO.S")
    peers = [f"n{node.number}" for node in cluster.followers()]

    assert shown["state"]["last_seq"] == 8
    assert shown["cluster"]["leader"] == f"n{leader.number}"
    assert shown["cluster"]["raft_group"] == "S-R3F-00000001"
    assert [(each["name"], each["current"], each.get("lag")) for each in shown["cluster"]["replicas"]] == [
        (name, True, None) for name in sorted(peers)
    ]


def test_a_node_that_is_gone_is_offline_in_the_info(cluster: Cluster) -> None:
    gone = cluster.followers()[0]
    cluster.kill(gone.number)
    cluster.publish(2)

    (row,) = [
        each
        for each in api(cluster.leader(), "STREAM.INFO.S")["cluster"]["replicas"]
        if each["name"] == f"n{gone.number}"
    ]

    assert (row["current"], row["offline"], row["lag"]) == (False, True, 2)
    assert row["active"] > 0


def test_a_read_waits_until_the_lead_is_confirmed(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert api(leader, "STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2
    cluster.net.cuts = {(leader.number, other) for other in cluster.numbers}
    cluster.net.cuts |= {(other, leader.number) for other in cluster.numbers}

    refused = api(leader, "STREAM.MSG.GET.S", {"seq": 2})

    assert refused["error"]["err_code"] == 10008
    assert not leader.leads


def test_a_publisher_of_a_leader_that_is_cut_off_gets_no_answer(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.net.cuts = {(leader.number, other) for other in cluster.numbers}
    client = leader.client()
    client.send(b"SUB _INBOX.a 1\r\nPUB s.a _INBOX.a 1\r\nx\r\n")

    cluster.step(100)

    assert client.payloads() == []
    assert cluster.leader() is not leader
    cluster.net.cuts = set()
    assert cluster.publish(1)[0]["seq"] == 9
    assert cluster.same()["range"][1] == 9
    assert client.payloads() == []


def test_no_state_is_made_while_an_operation_takes_steps(cluster: Cluster) -> None:
    cluster.publish(3)
    leader = cluster.leader()
    machine = leader.replicated.machine_of(leader.stream)
    assert machine is not None
    assert machine.snapshot() is not None

    leader.stream.replica.apply(machine.replica.index + 1, 9, S, operations.configure(cluster.config))

    assert machine.replica.is_working
    assert machine.snapshot() is None
