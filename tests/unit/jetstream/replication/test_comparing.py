"""The common part of the stores of two replicas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.replicated import Cluster

from pyjs.jetstream.replication.comparing import Common, common_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step


def compared(cluster: Cluster, *, is_up: bool = True) -> Common:
    """Compare the store of a follower with the leader's, or with a leader that is down."""
    follower = cluster.followers()[0]
    found: list[Common] = []
    (machine,) = follower.replicated.machines()
    node = cluster.leader().number if is_up else 9

    def steps() -> Generator[Step, None, None]:
        found.append((yield from common_steps(machine, follower.stream.store, node, machine.whole)))

    follower.stream.turn.go_on(steps())
    cluster.until(lambda: found)
    return found[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Return three nodes whose stream has 40 messages."""
    cluster = Cluster(tmp_path)
    cluster.create()
    cluster.publish(40)
    cluster.settle()
    return cluster


def test_equal_stores_have_everything_in_common(cluster: Cluster) -> None:
    assert compared(cluster) == Common(40, differs=False, is_everything=True)


def test_messages_that_one_store_has_removed_tell_nothing(cluster: Cluster) -> None:
    for seq in range(30, 41):
        cluster.leader().stream.store.drop_seq(seq)

    assert compared(cluster) == Common(29, differs=False, is_everything=False)


def test_different_messages_are_found(cluster: Cluster) -> None:
    for node in cluster.up():
        node.stream.store.store(b"s", b"", b"%d" % node.number, 1)

    assert compared(cluster) == Common(40, differs=True, is_everything=False)


def test_a_node_that_does_not_answer_tells_nothing(cluster: Cluster) -> None:
    assert compared(cluster, is_up=False) == Common(0, differs=False, is_everything=False)
