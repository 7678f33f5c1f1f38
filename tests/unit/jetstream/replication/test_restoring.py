"""Replicas that have copied only a part of their lost messages when the only undamaged replica is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.disk import LossyDisk
from tests.support.replicated import Cluster, ReplicaNode
from tests.unit.jetstream.replication.test_healing import (
    COUNT,
    _small_parts,
    damage,
    filled,
    healed,
    message,
    publish,
)
from tests.unit.jetstream.replication.test_power_cuts import cut_power, sync_log

from pyjs.consensus.consensus import Tuning
from pyjs.jetstream.replication import catch_up, restoring
from pyjs.store.format.layout import COPIED

ALL = 4 * COUNT
__all__ = ["_small_parts"]  # a fixture for every test here


def read_upto(node: ReplicaNode) -> int:
    """Return the last message that a replica has, which copies."""
    (machine,) = node.replicated.machines()
    store = None if machine.catch_up is None else machine.catch_up.store
    return 0 if store is None else store.last_seq


def copy_a_part(cluster: Cluster) -> tuple[int, int]:
    """Let a damaged replica that was away copy a part; return the nodes of the undamaged one and the other one."""
    late, source = (node.number for node in cluster.followers())
    other = ({1, 2, 3} - {late, source}).pop()
    cluster.kill(late)
    publish(cluster, ALL - COUNT, first=COUNT)
    cluster.settle()
    for node in cluster.up():
        cluster.kill(node.number)
    for number in (late, other):
        damage(cluster, number, message(3))
    again = cluster.start(late)
    cluster.start(source)
    cluster.until(lambda: read_upto(again) >= ALL - COUNT, 3000)  # several segments
    cluster.kill(source)
    return source, other


@pytest.fixture(autouse=True)
def _slow_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "RATE", 200_000)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_resort_does_not_add_copied_messages_again(tmp_path: Path, *, restarts: bool) -> None:
    cluster = filled(tmp_path)
    source, other = copy_a_part(cluster)
    (late,) = cluster.up()
    if restarts:
        cluster.kill(late.number)
        late = cluster.start(late.number)
    cluster.start(other)
    cluster.until(lambda: any(node.consensus.status(1).role == 2 for node in cluster.up()))
    cluster.nodes[other].replicated.hand_over(cluster.nodes[other].replicated.machines()[0], late.number)

    cluster.until(lambda: late.leads, 3000)

    assert late.stream.store.last_seq == ALL
    publish(cluster, 1, first=ALL)
    cluster.start(source)
    state = healed(cluster, 6000)
    assert [each[4] for each in state["messages"]] == [message(number) for number in range(ALL + 1)]
    assert not list(tmp_path.rglob(COPIED))


def test_a_replica_whose_log_lacks_entries_does_not_lead_as_the_last_resort(tmp_path: Path) -> None:
    cluster = filled(tmp_path, tuning=Tuning(log_size_max=2000))
    source, other = copy_a_part(cluster)
    (late,) = cluster.up()
    assert late.node_log.groups[1].start > COUNT
    cluster.start(other)

    cluster.until(lambda: cluster.nodes[other].leads, 6000)  # it has them

    assert read_upto(late) > COUNT
    cluster.start(source)
    state = healed(cluster, 6000)
    assert [each[4] for each in state["messages"]] == [message(number) for number in range(ALL)]


def test_a_note_about_another_copy_does_not_count(tmp_path: Path) -> None:
    cluster = filled(tmp_path)
    copy_a_part(cluster)
    (late,) = cluster.up()
    (note,) = tmp_path.rglob(COPIED)
    group, index, _ = note.read_text().split()
    cluster.kill(late.number)
    again = cluster.start(late.number)
    store = again.replicated.machines()[0].stream.store

    cut = f"{group} {index} 2"
    for text in ("", "what\n", f"{group} {index}\n", f"{cut}x\n", f"9 {index} 2\n", f"{group} 9 2\n", cut):
        note.write_text(text)
        restoring.drop_copy(store)
        assert len(list(note.parent.glob("*.seg"))) > 3
    note.write_text(f"{group} {index} 3\n")
    restoring.drop_copy(store)
    assert sorted(each.name for each in note.parent.glob("*.seg")) == ["00000001.seg", "00000002.seg"]


def test_damaged_replicas_whose_stores_are_ahead_of_their_logs_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tuning=Tuning(sync_interval_ns=10**15))
    for number in cluster.numbers:
        cluster.disks[number] = LossyDisk()
        cluster.kill(number)
        cluster.start(number)
    cluster.create()
    publish(cluster, COUNT)
    cluster.same()
    for node in cluster.up():
        sync_log(node)
    publish(cluster, 5, first=COUNT)
    cluster.same()
    for node in cluster.up():
        node.stream.store.sync_now()
    cut_power(cluster)
    for number in cluster.numbers:
        damage(cluster, number, message(3))
        cluster.start(number)

    cluster.until(lambda: any(node.leads for node in cluster.up()), 8000)

    leader = cluster.leader()
    assert leader.replicated.resigned == {1}
    assert (leader.stream.store.msgs, leader.stream.store.last_seq) == (COUNT + 4, COUNT + 5)
