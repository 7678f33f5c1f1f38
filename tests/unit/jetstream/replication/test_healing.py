"""A replica with damaged messages does not lead as long as there is an undamaged one."""

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


def notice(node: ReplicaNode) -> None:
    """Examine the first segment, as the scrub does when it finds damage."""
    store = node.stream.store
    assert isinstance(store, FileStore)
    assert store.examiner.confirm(1) == 1


def test_a_replica_whose_file_was_damaged_while_it_was_down_does_not_lead(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    follower = cluster.followers()[0]
    cluster.kill(follower.number)
    damage(cluster, follower.number, message(27))
    again = cluster.start(follower.number)
    cluster.settle()
    assert again.stream.store.lost is not None

    leader = cluster.leader()
    leader.consensus.transfer(1, again.number)

    cluster.until(lambda: not leader.leads)
    while not any(node.leads for node in cluster.up()):
        cluster.step()
    assert not again.leads
    publish(cluster, 3, first=30)


def test_a_leader_that_reads_a_damaged_message_hands_over(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    first = cluster.leader()
    damage(cluster, first.number, message(12))
    notice(first)
    assert "error" in first.ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})

    cluster.until(lambda: not first.leads)

    answer = cluster.leader().ask("$JS.API.STREAM.MSG.GET.S", {"seq": 13})
    assert answer["message"]["seq"] == 13
    publish(cluster, 3, first=30)
    cluster.settle()
    assert {node.stream.store.msgs for node in cluster.up()} == {33}


def test_the_only_undamaged_replica_leads(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    whole = cluster.followers()[0]
    for number, node in enumerate(node for node in cluster.up() if node is not whole):
        damage(cluster, node.number, message(12 + number))
        notice(node)

    cluster.until(lambda: whole.leads, 1500)

    cluster.step(1500)
    assert whole.leads


def test_a_damaged_replica_leads_when_no_undamaged_one_answers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    publish(cluster, 30)
    cluster.settle()
    for number, node in enumerate(cluster.up()):
        damage(cluster, node.number, message(12 + number))
        notice(node)
    cluster.step(300)
    assert all(node.stream.store.msgs == 30 for node in cluster.up())
    with pytest.raises(NotNow):
        cluster.nodes[1].stream.store.get(13)

    cluster.until(
        lambda: any(node.leads and node.stream.store.lost is not None for node in cluster.up()), 8000
    )

    leader = next(node for node in cluster.up() if node.leads)
    assert leader.stream.store.msgs == 29
    publish(cluster, 3, first=30)


def test_a_torn_write_that_the_log_repeats_is_no_damage(tmp_path: Path) -> None:
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
    assert again.stream.store.lost is None
