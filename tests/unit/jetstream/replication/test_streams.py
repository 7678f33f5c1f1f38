"""A replicated stream on three nodes: created, published to, with a new leader, and reopened from its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.replicated import Cluster

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


@STORAGES
def test_what_is_published_is_on_every_node(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    cluster.create()

    acks = cluster.publish(20)

    assert [ack["seq"] for ack in acks] == list(range(1, 21))
    assert cluster.same()["range"] == (1, 20, 20, cluster.leader().stream.store.bytes)


def test_only_the_leader_listens_to_the_subjects(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()

    assert cluster.leader().js.account.has_interest(b"s.a")
    assert not any(node.js.account.has_interest(b"s.a") for node in cluster.followers())
    assert cluster.leader().replicated.led == [cluster.leader().stream]


@STORAGES
def test_another_node_leads_when_the_leader_dies(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    cluster.create()
    cluster.publish(10)
    first = cluster.leader()
    cluster.kill(first.number)

    assert cluster.leader() is not first
    acks = cluster.publish(10, first=10)

    assert [ack["seq"] for ack in acks] == list(range(11, 21))
    assert len(cluster.same()["messages"]) == 20
    cluster.start(first.number)
    assert len(cluster.same()["messages"]) == 20


@STORAGES
def test_everything_acknowledged_is_there_after_all_nodes_died(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, storage=storage)
    cluster.create()
    cluster.publish(10)
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)

    assert [ack["seq"] for ack in cluster.publish(1, first=10)] == [11]
    assert [m[4].rstrip(b".") for m in cluster.same()["messages"]] == [b"%d" % i for i in range(11)]


def test_all_nodes_stop_and_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(10)
    cluster.settle()
    for number in cluster.numbers:
        cluster.stop(number)
    for number in cluster.numbers:
        cluster.start(number)

    assert cluster.publish(1)[0]["seq"] == 11
    assert cluster.same()["range"][1] == 11


def test_a_node_that_was_away_gets_what_it_missed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(3)
    away = cluster.followers()[0]
    cluster.kill(away.number)
    cluster.publish(30)

    cluster.start(away.number)

    assert cluster.same()["range"][1] == 33


def test_a_deleted_stream_is_gone_from_every_node(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(3)
    cluster.delete()

    assert not any(node.js.streams for node in cluster.up())
    assert not any((tmp_path / f"{number}" / "_G" / "streams" / "S").exists() for number in cluster.numbers)
    assert not any(node.node_log.groups for node in cluster.up())
    cluster.create(created_ns=2, group=2)
    assert cluster.publish(1)[0]["seq"] == 1
