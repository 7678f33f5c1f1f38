"""Direct gets at a follower: they see all earlier acknowledged messages, in order, within bounded time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.replicated import Cluster, ReplicaNode

from pyjs.jetstream.replication import settling
from pyjs.testing.node import RawClient

GET = b"$JS.API.DIRECT.GET.S"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path, allow_direct=True)
    cluster.create()
    cluster.publish(3)
    cluster.settle()
    return cluster


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[RawClient]:
    """Return a client of a follower."""
    client = cluster.followers()[0].client()
    client.send(b"SUB _INBOX.> 1\r\n")
    client.payloads()
    yield client
    client.session.close("done")


def get(client: RawClient, subject: bytes = GET, **fields: object) -> None:
    body = json.dumps(fields).encode() if fields else b""
    client.send(b"PUB %b _INBOX.g %d\r\n%b\r\n" % (subject, len(body), body))


def cut_off(cluster: Cluster, node: ReplicaNode) -> None:
    cluster.net.cuts = {(node.number, other) for other in cluster.numbers}
    cluster.net.cuts |= {(other, node.number) for other in cluster.numbers}


@pytest.mark.parametrize(
    ("subject", "fields", "answers"),
    [
        (GET, {"seq": 4}, [b"3......."]),
        (GET, {"last_by_subj": "s.a"}, [b"3......."]),
        (GET + b".s.a", {}, [b"3......."]),
        (GET, {"batch": 9, "seq": 3}, [b"2.......", b"3.......", b""]),
        (GET, {"multi_last": ["s.>"]}, [b"3.......", b""]),
    ],
)
def test_a_follower_has_what_was_acknowledged_before(
    cluster: Cluster, reader: RawClient, subject: bytes, fields: dict[str, object], answers: list[bytes]
) -> None:
    cluster.publish(1, first=3)

    get(reader, subject, **fields)
    cluster.step(4)

    assert reader.payloads() == answers


def test_a_follower_without_open_entries_answers_at_once(cluster: Cluster, reader: RawClient) -> None:
    get(reader, seq=3)

    assert reader.payloads() == [b"2......."]


def test_answers_come_in_the_order_of_the_requests(cluster: Cluster, reader: RawClient) -> None:
    cluster.publish(1, first=3)
    for seq in (4, 1, 2, 4, 3):
        get(reader, seq=seq)
        cluster.step()
    cluster.step(4)

    assert [each[:1] for each in reader.payloads()] == [b"3", b"0", b"1", b"3", b"2"]


def test_a_follower_that_cannot_ask_answers_with_what_it_has(cluster: Cluster, reader: RawClient) -> None:
    cluster.publish(1, first=3)
    cut_off(cluster, cluster.leader())

    get(reader, seq=3)
    get(reader, seq=4)
    cluster.step(2)
    waited = reader.payloads()
    cluster.step(settling.WAIT_NS // 10_000_000)

    assert waited == []
    assert [each[:1] for each in reader.payloads()] == [b"2", b""]


def test_a_new_leader_ends_the_wait(cluster: Cluster, reader: RawClient) -> None:
    cluster.publish(1, first=3)
    cut_off(cluster, cluster.leader())
    get(reader, seq=3)

    for node in cluster.up():
        node.replicated.node_silent(cluster.leader().number)
    cluster.step(2)

    assert reader.payloads() == [b"2......."]


def test_too_many_requests_are_answered_with_what_is_there(
    cluster: Cluster, reader: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "WAITING_MAX", 3)
    cluster.publish(1, first=3)

    for seq in (1, 2, 3):
        get(reader, seq=seq)

    assert [each[:1] for each in reader.payloads()] == [b"0", b"1", b"2"]


def test_a_deleted_stream_answers_those_that_wait(cluster: Cluster, reader: RawClient) -> None:
    cluster.publish(1, first=3)
    get(reader, seq=3)

    cluster.delete()

    assert reader.payloads() == [b"2......."]
    assert not any(node.js.streams for node in cluster.up())


def test_followers_are_told_later_what_is_committed(cluster: Cluster) -> None:
    cluster.publish(1, first=3)
    cluster.step()
    assert all(node.consensus.has_tail(1) for node in cluster.followers())

    cluster.step(3)
    assert not any(node.consensus.has_tail(1) for node in cluster.followers())
