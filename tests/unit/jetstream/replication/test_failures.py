"""A replica whose store fails transfers its leadership, and recovers when the disk works again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated import Cluster, ReplicaNode

from pyjs.base.disk import OsDisk
from pyjs.consensus.engine import peer_id
from pyjs.jetstream.cluster.assignments import Replica
from pyjs.jetstream.manage import streams


class FullDisk(OsDisk):
    """Refuses to write messages while `is_full` is set."""

    def __init__(self) -> None:
        self.is_full = False
        self._paths: dict[int, str] = {}

    def open_file(self, path: str, *, create: bool = False) -> int:
        fd = super().open_file(path, create=create)
        self._paths[fd] = path
        return fd

    def _check(self, fd: int) -> None:
        if self.is_full and "/msgs/" in self._paths.get(fd, ""):
            raise OSError(errno.ENOSPC, "no space left on device")

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._check(fd)
        super().write_at(fd, data, offset)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        self._check(fd)
        super().allocate(fd, offset, size)


def works_again(node: ReplicaNode) -> bool:
    """Return whether the node has opened its replica."""
    stream = node.js.streams.get("S")
    return stream is not None and stream.replica is not None and stream.replica.stopped is None


def test_a_leader_with_a_full_disk_hands_over_and_comes_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.disks = {number: FullDisk() for number in cluster.numbers}
    for number in cluster.numbers:
        cluster.kill(number)
        cluster.start(number)
    cluster.create()
    cluster.publish(3)
    first = cluster.leader()
    disk = cluster.disks[first.number]
    assert isinstance(disk, FullDisk)
    disk.is_full = True
    client = first.client()
    client.send(b"SUB _INBOX.a 1\r\nPUB s.a _INBOX.a 1\r\nx\r\n")

    cluster.until(lambda: any(node.leads and node is not first for node in cluster.up()))

    assert cluster.publish(2)[-1]["seq"] == 6
    assert client.payloads() == []
    cluster.step(1000)
    disk.is_full = False
    cluster.until(lambda: works_again(first), 1500)
    assert cluster.same()["range"][1] == 6


def test_a_replica_with_a_fault_is_opened_again_from_its_files(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(3)
    follower = cluster.followers()[0]

    follower.node.turn_state.faulted.append((follower.stream, ValueError("a fault")))
    cluster.step()
    assert not works_again(follower)
    cluster.publish(2)

    cluster.until(lambda: works_again(follower), 1000)
    assert cluster.same()["range"][1] == 5
    assert any("has failed and is opened again" in text for _, text in follower.log.lines)


def test_a_replica_whose_log_was_dropped_never_votes_as_the_one_before(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(3)
    follower = cluster.followers()[0]
    follower.consensus._lose(follower.consensus._members[1], "too large")
    for _ in range(2):  # the second turn writes the change to the disk
        follower.consensus._round.turn()
    cluster.kill(follower.number)

    again = cluster.start(follower.number)
    cluster.step(100)

    assert again.node_log.groups[1].peer == peer_id(follower.number, 2)
    assert again.node_log.groups[1].conf.voters == ()
    assert cluster.publish(1)[0]["seq"] == 4


def without_files(*_: object, **__: object) -> Iterator[Any]:
    """Refuse to open a replica, as if file descriptors had run out."""
    raise OSError(errno.EMFILE, "too many open files")
    yield


def test_replicas_that_could_not_be_opened_at_first_have_their_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    made = cluster.create()
    cluster.publish(5)
    cluster.settle()
    for number in cluster.numbers:
        cluster.kill(number)
    cluster.assignments.clear()
    for number in cluster.numbers:
        cluster.start(number)
    with monkeypatch.context() as short:
        short.setattr(streams, "open_replica", without_files)
        for node in cluster.up():
            with pytest.raises(OSError, match="too many"):
                list(node.replicated.open_steps(node.js, made))

    cluster.assignments["S"] = made
    for node in cluster.up():
        node.do(partial(node.replicated.open_steps, node.js, made))

    assert cluster.publish(1)[0]["seq"] == 6
    assert len(cluster.same()["messages"]) == 6
    assert not list(tmp_path.glob("**/.damaged*"))


def test_a_failed_replica_is_opened_as_soon_as_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(5)
    follower = cluster.followers()[0]
    with monkeypatch.context() as short:
        short.setattr(streams, "open_replica", without_files)
        follower.replicated.fail(follower.stream)
        cluster.step(600)

    cluster.until(lambda: works_again(follower), 1000)
    assert len(cluster.same()["messages"]) == 5
    cluster.delete()
    assert not list(tmp_path.glob("**/streams/S"))


@pytest.mark.parametrize("leads", [False, True])
def test_a_replica_whose_log_is_dropped_returns_with_its_messages(tmp_path: Path, leads: bool) -> None:
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(20)
    bad = cluster.leader() if leads else cluster.followers()[0]
    member = bad.consensus._members[1]
    bad.consensus._lose(member, "its log is damaged")
    bad.consensus._round.mark()

    cluster.until(lambda: bad.node_log.groups[1].peer == peer_id(bad.number, 2))
    cluster.until(lambda: bad.replicated.lost_replicas, 1000)

    old = cluster.assignments["S"]
    replicas = tuple(Replica(each.node, 1 + (each.node == bad.number)) for each in old.replicas)
    cluster.change(replace(old, replicas=replicas))
    cluster.publish(5)
    cluster.until(lambda: "S" in bad.js.streams, 1500)
    assert len(cluster.same()["messages"]) == 25
    assert peer_id(bad.number, 2) in [each.peer for each in cluster.leader().consensus.status(1).replicas]
