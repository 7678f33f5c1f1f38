"""A replica whose process ends at any call of the disk during a copy starts over, and is finally equal."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.disk import Crash
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.stream.replicated.test_crash import DyingDisk

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.replication import copying

STRIDE = 3


SHORT = Tuning(log_size_max=2000)


class Behind:
    """The files of three nodes; the replica of one of them is behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        cluster = Cluster(directory / "kept", tuning=SHORT, max_msgs_per_subject=60)
        self.assignment = cluster.create()
        cluster.publish(10)
        self.away = cluster.followers()[0].number
        cluster.kill(self.away)
        for first in range(10, 190, 30):
            cluster.publish(30, f"s.{first % 4}", size=900, first=first)
            cluster.step(5)
        leader = cluster.leader()
        cluster.until(lambda: leader.node_log.groups[1].start > 20)
        leader.ask("$JS.API.STREAM.PURGE.S", {"filter": "s.2", "keep": 3})
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 100})
        for node in cluster.up():
            cluster.stop(node.number)

    def begin(self, name: str) -> Cluster:
        """Start the two other nodes on a copy of the files."""
        directory = self.directory / name
        shutil.copytree(self.directory / "kept", directory)
        cluster = Cluster(directory, tuning=SHORT, assignment=self.assignment, without=self.away)
        cluster.leader()
        return cluster


def has_caught_up(node: ReplicaNode) -> bool:
    return any("has caught up" in text for _, text in node.log.lines)


def copies(cluster: Cluster, number: int, at: int = -1) -> DyingDisk:
    """Start a node whose disk fails at a call after its start; return the disk when the node has copied or failed."""
    disk = DyingDisk()
    cluster.disks[number] = disk
    node = cluster.start(number)
    disk.calls, disk.at = 0, at
    with suppress(Crash):
        cluster.until(lambda: disk.dead or has_caught_up(node))
        cluster.step(3)
    return disk


@pytest.mark.parametrize("power", [False, True])
def test_a_replica_that_dies_during_a_copy_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: bool
) -> None:
    monkeypatch.setattr(copying, "PART_MSGS", 40)
    files = Behind(tmp_path)
    never = files.begin("never")
    calls = copies(never, files.away).calls
    wanted, deaths = never.same(), 0
    for at in range(STRIDE // 2, calls, STRIDE):
        cluster = files.begin(f"{at}")
        dying = copies(cluster, files.away, at)
        if dying.dead:
            deaths += 1
            cluster.kill(files.away)
            if power:
                dying.lose_power()
            cluster.disks[files.away] = DyingDisk()
            cluster.start(files.away)
        assert cluster.same() == wanted, at
    assert deaths > 3
