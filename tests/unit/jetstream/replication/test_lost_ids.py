"""After damage, ids of removed messages that still count are restored, like messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.replicated import Cluster
from tests.unit.jetstream.replication.test_healing import cut, damage, is_whole, segments_of, store_of

from pyjs.jetstream.manage import segments
from pyjs.jetstream.replication import copying

SIZE = 3000  # bytes of a payload; 20 messages fill a segment
COUNT = 50


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 7)
    monkeypatch.setattr(segments, "SEGMENT_SIZE_MAX", segments.SEGMENT_SIZE_MIN)


def message(number: int) -> bytes:
    """Return the payload of a message."""
    return (b"%d" % number).ljust(SIZE, b".")


def publish(cluster: Cluster, *numbers: int) -> list[bytes]:
    """Publish messages with ids; return the answers."""
    client, found = cluster.leader().client(), list[bytes]()
    client.send(b"SUB _INBOX.> 1\r\n")
    for number in numbers:
        head = b"NATS/1.0\r\nNats-Msg-Id: id%d\r\n\r\n" % number
        client.send(
            b"HPUB s.a _INBOX.p %d %d\r\n%b%b\r\n" % (len(head), len(head) + SIZE, head, message(number))
        )
    cluster.until(lambda: found.extend(client.payloads()) or len(found) == len(numbers))
    client.session.close("done")
    return found


def filled(directory: Path) -> Cluster:
    """Return three nodes with messages in several segments, the first of which have index files."""
    cluster = Cluster(directory)
    cluster.create()
    publish(cluster, *range(COUNT))
    cluster.settle()
    for node in cluster.up():
        store_of(node).sync_now()
    return cluster


def has_healed(cluster: Cluster, number: int) -> None:
    """Wait until all replicas are equal and a leader that had lost ids accepts no message twice."""
    node = cluster.nodes[number]
    machines = node.replicated.machines
    cluster.until(lambda: is_whole(node) and not any(each.is_damaged for each in machines()), 2000)
    cluster.same()
    cluster.leader().consensus.transfer(1, number)
    cluster.until(lambda: node.leads)
    assert [json.loads(each).get("duplicate") for each in publish(cluster, 3, 12, 30)] == [True] * 3


@pytest.mark.parametrize("harm", [Path.unlink, cut])
def test_a_missing_file_of_purged_messages(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    first, *_ = segments_of(cluster, follower.number)
    cluster.leader().ask("$JS.API.STREAM.PURGE.S", {"seq": 16})
    cluster.settle()
    cluster.kill(follower.number)
    harm(first)

    cluster.start(follower.number)

    has_healed(cluster, follower.number)


def test_a_removed_message_in_a_repaired_segment(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.leader().ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 4, "no_erase": True})
    cluster.settle()
    cluster.kill(follower.number)
    damage(cluster, follower.number, b"id3\r\n", at=1)
    damage(cluster, follower.number, message(3), message(5))

    cluster.start(follower.number)

    has_healed(cluster, follower.number)


def test_ids_in_a_segment_that_is_written_again(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    follower = cluster.followers()[0]
    cluster.leader().ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 4, "no_erase": True})
    cluster.leader().ask("$JS.API.STREAM.PURGE.S", {"seq": 14})
    cluster.settle()
    cluster.kill(follower.number)
    first, *_ = segments_of(cluster, follower.number)
    first.with_suffix(".idx").unlink()
    data = first.read_bytes()
    first.write_bytes(data[: data.find(message(16))])

    cluster.start(follower.number)

    has_healed(cluster, follower.number)
