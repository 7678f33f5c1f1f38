"""A replica with damaged messages copies the stream of an undamaged one, and does not lead before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.replicated import Cluster, ReplicaNode

from pyjs.base.errors import NotNow
from pyjs.jetstream.manage import segments
from pyjs.jetstream.replication import copying
from pyjs.store.file.store import FileStore

SIZE = 3000  # bytes of a payload: 30 messages are two segments


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 7)
    monkeypatch.setattr(segments, "SEGMENT_SIZE_MAX", segments.SEGMENT_SIZE_MIN)


def damage(cluster: Cluster, number: int, payload: bytes) -> None:
    """Change a byte of the stored message that has this payload, on one node."""
    for path in (cluster.directory / f"{number}").rglob("*.seg"):
        data = path.read_bytes()
        at = data.find(payload)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([data[at] ^ 1]))
            return
    raise AssertionError(f"{payload!r} is in no segment")


def message(number: int) -> bytes:
    """Return the payload of the message `number` that `publish` sends."""
    return (b"%d" % number).ljust(SIZE, b".")


def publish(cluster: Cluster, count: int, first: int = 0) -> None:
    """Publish messages, some of which fill a segment."""
    cluster.publish(count, size=SIZE, first=first)


def is_healed(node: ReplicaNode) -> bool:
    """Return whether the node copied the stream and has it whole."""
    stream = node.js.streams.get("S")
    told = any("copies it from" in text for _, text in node.log.lines)
    return told and stream is not None and not stream.closed and stream.store.lost is None


def notice(node: ReplicaNode) -> None:
    """Examine the first segment, as the scrub does when it finds damage."""
    store = node.stream.store
    assert isinstance(store, FileStore)
    assert store.examiner.confirm(1) == 1


def test_a_follower_whose_file_was_damaged_while_it_was_down_copies_the_stream(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(27))

    again = cluster.start(follower.number)

    cluster.until(lambda: is_healed(again), 1000)
    assert cluster.same()["range"] == (1, 30, 30, cluster.leader().stream.store.bytes)
    publish(cluster, 3, first=30)
    assert len(cluster.same()["messages"]) == 33


def test_a_leader_that_reads_a_damaged_message_hands_over_and_copies_the_stream(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    first = cluster.leader()
    damage(cluster, first.number, message(12))
    notice(first)

    cluster.until(lambda: is_healed(first), 1000)

    assert cluster.leader() is not first
    assert len(cluster.same()["messages"]) == 30
    publish(cluster, 3, first=30)
    assert [seq for seq, *_ in cluster.same()["messages"]] == list(range(1, 34))


def test_a_read_of_a_damaged_message_fails_until_another_replica_leads(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    first = cluster.leader()
    damage(cluster, first.number, message(12))
    notice(first)

    found = first.ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})
    assert "error" in found
    cluster.until(lambda: is_healed(first), 1000)

    answer = cluster.leader().ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})
    assert answer["message"]["seq"] == 13
    assert first.stream.store.get(13) is not None


def test_messages_published_during_the_copy_are_in_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 200)
    cluster.settle()
    follower = cluster.followers()[0]
    damage(cluster, follower.number, message(12))
    notice(follower)
    for first in range(200, 300, 10):
        publish(cluster, 10, first=first)
        cluster.step()

    cluster.until(lambda: is_healed(follower), 1000)

    assert len(cluster.same()["messages"]) == 300


def test_a_damaged_replica_keeps_what_it_has_while_no_undamaged_one_answers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    damaged = cluster.followers()[0]
    others = [node for node in cluster.up() if node is not damaged]
    for other in others:
        cluster.kill(other.number)
    damage(cluster, damaged.number, message(12))
    notice(damaged)
    cluster.step(300)
    assert not damaged.stream.closed
    assert damaged.stream.store.msgs == 30
    with pytest.raises(NotNow):
        damaged.stream.store.get(13)

    cluster.until(lambda: "S" in damaged.js.streams and damaged.stream.store.lost is not None, 3000)
    assert damaged.stream.store.msgs == 29
    assert damaged.stream.store.get(13) is None

    for other in others:
        cluster.start(other.number)

    cluster.until(lambda: is_healed(damaged), 1500)
    assert len(cluster.same()["messages"]) == 30


def test_two_damaged_replicas_copy_from_the_third(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    for number, node in enumerate(cluster.followers()):
        damage(cluster, node.number, message(12 + number))
        notice(node)

    cluster.until(lambda: sum(is_healed(node) for node in cluster.up()) == 2, 2000)

    assert len(cluster.same()["messages"]) == 30


def test_a_kill_in_the_middle_of_the_copy_leaves_a_replica_that_copies_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 300)
    cluster.settle()
    follower = cluster.followers()[0]
    damage(cluster, follower.number, message(12))
    notice(follower)
    cluster.until(lambda: "S" not in follower.js.streams)
    cluster.step(3)
    cluster.kill(follower.number)

    cluster.start(follower.number)

    cluster.until(lambda: len(cluster.same()["messages"]) == 300, 50)


def test_a_torn_write_that_the_log_repeats_is_no_reason_to_copy(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    path = max((cluster.directory / f"{follower.number}").rglob("*.seg"))
    data = path.read_bytes()
    end = data.rfind(message(29)) + 3
    path.write_bytes(data[:end] + bytes(len(data) - end))

    again = cluster.start(follower.number)

    assert len(cluster.same()["messages"]) == 30
    assert not any("copies it from" in text for _, text in again.log.lines)
