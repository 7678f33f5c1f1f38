"""The last replica of a stream continues without its group, whatever its log contains about the others."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_consumers import consumer
from tests.unit.jetstream.replication.test_failures import without_files

from pyjs.base.clock import NS_PER_MS
from pyjs.base.errors import StoreFailed
from pyjs.consensus.log.durability import LogSync
from pyjs.core.job import Job
from pyjs.jetstream.cluster.assignments import Assignment, Replica, stored_config
from pyjs.jetstream.manage import streams
from pyjs.jetstream.replication import single
from pyjs.jetstream.replication import streams as streams_of_node
from pyjs.server.threads.io_thread import result_of


def left_alone(cluster: Cluster, old: Assignment) -> tuple[ReplicaNode, Assignment]:
    """Kill all nodes, whose logs lack the removal of the other replicas; start the former leader, which remains."""
    kept = cluster.leader().number
    for number in cluster.numbers:
        cluster.kill(number)
    del cluster.assignments["S"]
    config = stored_config(replace(old.config, num_replicas=1))
    alone = replace(old, group=2, revision=2, ended=1, replicas=(Replica(kept, 1),), stored=config)
    cluster.state.put(alone, old)
    return cluster.start(kept), alone


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "LEAD_NS", 500 * NS_PER_MS)


def test_a_replica_that_cannot_be_elected_goes_on_with_its_whole_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(20)
    node, alone = left_alone(cluster, old)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert node.ask("s.a", b"x")["seq"] == 21
    assert node.stream.config.num_replicas == 1
    assert node.stream.store.msgs == 21
    assert not node.node_log.groups


def test_an_attempt_that_fails_is_made_again_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(20)
    node, alone = left_alone(cluster, old)
    with monkeypatch.context() as short:
        short.setattr(streams, "open_replica", without_files)
        with pytest.raises(OSError, match="too many"):
            list(node.replicated.single_steps(node.js, alone))

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert node.ask("s.a", b"x")["seq"] == 21


def test_a_group_that_is_left_in_the_log_is_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)
    with pytest.MonkeyPatch.context() as short:
        # the server ends before it removes the group
        short.setattr(node.consensus, "remove", node.consensus.close)
        node.do(partial(node.replicated.single_steps, node.js, alone))
    assert list(node.node_log.groups) == [1]
    cluster.kill(node.number)
    node = cluster.start(node.number)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert not node.node_log.groups
    assert node.stream.store.msgs == 3


def test_an_earlier_replica_is_not_taken_for_the_last_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)
    moved = replace(alone, group=3, ended=2)

    node.do(partial(node.replicated.single_steps, node.js, moved))

    assert not node.js.streams


def test_messages_in_memory_are_lost_with_the_last_replica_and_nothing_is_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, storage="memory")
    old = cluster.create()
    cluster.publish(3)
    node, alone = left_alone(cluster, old)

    node.do(partial(node.replicated.single_steps, node.js, alone))

    assert not node.js.streams
    assert not node.node_log.groups


def test_an_ack_on_its_way_when_the_group_ends_counts_if_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create(on=(1,))
    consumer(cluster, ack_wait=1_000_000_000)
    cluster.publish(2)
    node, client = cluster.leader(), cluster.leader().client()
    client.send(b"SUB in.> 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in.m 1\r\n2\r\n")
    replies = [frame.reply for frame in client.frames()]
    late = Late(node)
    monkeypatch.setattr(node, "run_jobs", late.run_jobs)
    client.send(b"PUB %b in.ack 0\r\n\r\n" % replies[0])  # proposed, but not yet durable
    changed = node.js.files.change
    monkeypatch.setattr(
        node.js.files, "change", lambda *parts: (late.let_go(), (yield from changed(*parts)))[1]
    )
    alone = replace(
        old, group=2, revision=2, ended=1, stored=stored_config(replace(old.config, num_replicas=1))
    )
    monkeypatch.setattr(streams_of_node, "finish_steps", lambda *_: iter(()))

    node.do(partial(node.replicated.single_steps, node.js, alone))

    is_confirmed = any(frame.subject == b"in.ack" for frame in client.frames())
    cluster.step(300)
    client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c in.m 1\r\n2\r\n")
    again = [frame.reply.split(b".")[5] for frame in client.frames()]
    assert again == ([b"2"] if is_confirmed else [b"1", b"2"])
    assert is_confirmed


class Late:
    """Holds all syncs of a node's log back, until they are released."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._held: list[Job] | None = []
        self._idle = 0  # number of calls that found no job

    def run_jobs(self) -> bool:
        """Run the jobs that are not held back."""
        turn = self._node.node.turn_state
        found = turn.take("jobs")
        if self._held is not None:
            self._held += [job for job in found if isinstance(job, LogSync)]
            found = [job for job in found if not isinstance(job, LogSync)]
        self._idle = 0 if found else self._idle + 1
        if self._idle > 50:
            self.let_go()
        for job in found:
            turn.finished.append((job, result_of(job.run)))
        return bool(found)

    def let_go(self) -> None:
        """Perform the held syncs."""
        if self._held is not None:
            self._node.node.turn_state.jobs.extend(self._held)
            self._held = None


def test_a_replica_whose_log_is_lost_waits_and_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = cluster.create()
    cluster.publish(20)
    node, alone = left_alone(cluster, old)
    cluster.kill(node.number)
    shutil.rmtree(tmp_path / f"{node.number}" / ".raft")
    node = cluster.start(node.number)

    for _ in range(2):
        with pytest.raises(StoreFailed, match="is lost or damaged"):
            list(node.replicated.single_steps(node.js, alone))

    assert "S" in node.js.parked
