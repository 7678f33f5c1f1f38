"""A replica that lacks entries older than the leader's log copies messages from another replica and becomes equal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import STEP_MS, Cluster, ReplicaNode

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.replication import catch_up, copying
from pyjs.jetstream.replication.copy_batch import State
from pyjs.jetstream.stream.stream import Stream

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])
SHORT = Tuning(log_size_max=2000)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 7)


def away_for_long(cluster: Cluster) -> ReplicaNode:
    """Stop a node until the logs of the others no longer have its next entry; return it."""
    cluster.publish(10)
    away = cluster.followers()[0]
    cluster.kill(away.number)
    for first in range(10, 400, 30):
        cluster.publish(30, f"s.{first % 4}", size=40, first=first)
        cluster.step(5)
    leader = cluster.leader()
    cluster.until(lambda: leader.node_log.groups[1].start > 100)
    return away


@STORAGES
def test_a_replica_that_was_away_for_long_copies_what_it_lacks(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT, storage=storage)
    cluster.create()
    away = away_for_long(cluster)

    again = cluster.start(away.number)

    assert cluster.same()["range"][1] == 400
    assert any("has caught up" in text for _, text in again.log.lines)
    cluster.publish(5)
    assert cluster.same()["range"][1] == 405


def test_the_leader_reports_how_much_a_replica_lacks_that_copies(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away, leader = away_for_long(cluster), cluster.leader()

    def row() -> Any:
        rows = leader.replicated.cluster_fields(leader.stream)["replicas"]
        return next(each for each in rows if each["name"] == f"n{away.number}")

    cluster.start(away.number)
    cluster.until(lambda: "offline" not in row() and row().get("lag", 0) > 100)
    assert not row()["current"]
    cluster.same()
    cluster.until(lambda: row()["current"] and "lag" not in row())


def removals(cluster: Cluster) -> None:
    """Remove messages in each possible way."""
    leader = cluster.leader()
    leader.ask("$JS.API.STREAM.PURGE.S", {"seq": 40})
    leader.ask("$JS.API.STREAM.PURGE.S", {"filter": "s.2", "keep": 3})
    for seq in (77, 78, 300, leader.stream.store.last_seq):
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq})


@STORAGES
def test_removed_messages_are_not_in_the_copy(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT, storage=storage)
    cluster.create()
    away = away_for_long(cluster)
    removals(cluster)

    cluster.start(away.number)
    cluster.publish(1)

    assert cluster.same()["range"][:2] == (41, 401)


@STORAGES
def test_a_copy_of_an_empty_stream_goes_on_with_its_sequences(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT, storage=storage)
    cluster.create()
    away = away_for_long(cluster)
    cluster.leader().ask("$JS.API.STREAM.PURGE.S")

    cluster.start(away.number)

    assert cluster.same()["range"][:3] == (401, 400, 0)
    assert cluster.publish(1)[0]["seq"] == 401
    cluster.same()


def published_with_id(cluster: Cluster, number: int) -> dict[str, Any]:
    """Publish a message with an id; return the answer."""
    headers = b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % number
    client = cluster.leader().client()
    head = b"SUB _INBOX.a 1\r\nHPUB s.a _INBOX.a %d %d\r\n" % (len(headers), len(headers) + 1)
    client.send(head + headers + b"x\r\n")
    found: list[bytes] = []

    def came() -> bool:
        found.extend(client.payloads())
        return bool(found)

    cluster.until(came)
    answer: dict[str, Any] = json.loads(found[0])
    return answer


@STORAGES
def test_ids_of_removed_messages_count_after_the_copy_and_after_a_start(tmp_path: Path, storage: str) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT, storage=storage)
    cluster.create()
    away = cluster.followers()[0]
    published_with_id(cluster, 0)
    cluster.same()
    cluster.kill(away.number)
    for number in range(1, 40):
        published_with_id(cluster, number)
    away_later = cluster.leader()
    cluster.until(lambda: away_later.node_log.groups[1].start > 10)
    away_later.ask("$JS.API.STREAM.PURGE.S", {"seq": 20})
    cluster.start(away.number)
    assert cluster.same()["ids"] == (40, b"id-39")
    cluster.kill(away.number)
    cluster.start(away.number)
    assert cluster.same()["ids"] == (40, b"id-39")
    cluster.until(lambda: cluster.nodes[away.number].stream.replica is not None)
    leader = cluster.leader()
    if leader.number != away.number:
        leader.consensus.transfer(1, away.number)
        cluster.until(lambda: cluster.nodes[away.number].leads)

    answer = published_with_id(cluster, 5)

    assert (answer["seq"], answer["duplicate"]) == (6, True)


def test_entries_that_come_during_the_copy_are_applied_after_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away = away_for_long(cluster)
    again = cluster.start(away.number)
    cluster.until(lambda: any("is behind" in text for _, text in again.log.lines))

    for first in range(0, 60, 5):
        cluster.publish(5, "s.new", first=first)

    assert cluster.same()["range"][1] == 460


def test_a_replica_that_is_behind_does_not_lead(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away = away_for_long(cluster)
    again = cluster.start(away.number)
    cluster.until(lambda: any("is behind" in text for _, text in again.log.lines))

    cluster.leader().consensus.transfer(1, away.number)
    cluster.step(5)

    assert cluster.publish(1)[0]["seq"] == 401
    cluster.same()


def test_a_memory_stream_that_nobody_has_any_more_begins_again_with_new_sequences(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT, storage="memory")
    cluster.create()
    for first in range(0, 300, 30):
        cluster.publish(30, size=40, first=first)
        cluster.step(5)
    cluster.until(lambda: all(node.node_log.groups[1].start > 100 for node in cluster.up()))
    for number in cluster.numbers:
        cluster.kill(number)
    for number in cluster.numbers:
        cluster.start(number)

    seq = cluster.publish(1)[0]["seq"]

    assert seq > 300
    assert cluster.same()["range"][1:3] == (seq, 1)
    assert any("begins again empty" in text for _, text in cluster.leader().log.lines)


def test_a_copy_takes_the_time_that_its_rate_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away = away_for_long(cluster)
    monkeypatch.setattr(catch_up, "RATE", 20_000)
    before = cluster.now

    cluster.start(away.number)
    cluster.same()

    size = 390 * (28 + 3 + 40)  # bytes of the records
    assert (cluster.now - before) * STEP_MS >= size * 1000 // 20_000 * 9 // 10


def test_a_copy_that_is_not_what_was_described_begins_again_with_an_empty_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away = away_for_long(cluster)
    state_of = copying._state_of
    wrong = [1]

    def described(stream: Stream, applied: int) -> State:
        return replace(state_of(stream, applied), msgs=400 - (wrong.pop() if wrong else 0))

    monkeypatch.setattr(copying, "_state_of", described)
    again = cluster.start(away.number)

    cluster.until(lambda: any("tries again" in text for _, text in again.log.lines), 1000)
    cluster.until(lambda: "S" in again.js.streams, 1500)
    assert cluster.same()["range"][1:3] == (400, 400)


def test_a_copy_of_a_stream_that_never_had_a_message_ends(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=4)
    cluster.create(on=(1, 2, 3))

    cluster.move(1, 2, 3, 4)

    cluster.until(lambda: "S" in cluster.nodes[4].js.streams and cluster.nodes[4].stream.replica is not None)
    assert cluster.same()["range"][1] == 0
    assert not any(level == "ERR" for level, _ in cluster.nodes[4].log.lines)


def test_messages_that_wait_for_a_copy_stay_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, tuning=SHORT)
    cluster.create()
    away = away_for_long(cluster)
    first = cluster.leader()
    other = next(node for node in cluster.followers() if node is not first)
    with monkeypatch.context() as slow:
        slow.setattr(catch_up, "RATE", 100)  # bytes per second
        again = cluster.start(away.number)
        cluster.step(30)
        cluster.kill(other.number)
        for at in range(400, 560, 20):
            cluster.publish(20, size=200, first=at)
            cluster.step(10)
    cluster.kill(first.number)
    cluster.start(other.number)

    cluster.until(lambda: again.leads or cluster.nodes[other.number].leads, 1500)
    assert cluster.same()["range"][1] == 560


def test_a_new_replica_answers_direct_gets_when_it_has_the_messages(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=4, allow_direct=True)
    cluster.create(on=(1, 2, 3))
    cluster.publish(3)
    account = cluster.nodes[4].js.account

    cluster.move(1, 2, 3, 4)
    assert not account.has_interest(b"$JS.API.DIRECT.GET.S")

    cluster.same()
    assert account.has_interest(b"$JS.API.DIRECT.GET.S")


def test_a_copy_goes_on_after_a_description_without_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "RETRY_NS", 0)
    cluster = Cluster(tmp_path, size=4)
    cluster.create(on=(1, 2, 3))
    cluster.publish(3)

    def nonsense(*_: object) -> None:
        raise LookupError("no such option")

    with monkeypatch.context() as newer:
        newer.setattr(catch_up, "from_meta", nonsense)
        cluster.move(1, 2, 3, 4)
        cluster.until(lambda: any("no such option" in text for _, text in cluster.nodes[4].log.lines))

    assert len(cluster.same()["messages"]) == 3
