"""Linearizable reads, from the request to the engine until its confirmation."""

from __future__ import annotations

from raft.tests.cluster import GROUP, Cluster

from pyjs.consensus.reads import READ_NS, Reads


def nothing() -> None:
    """Do nothing."""


def asked(*groups: int) -> tuple[Reads, Cluster]:
    cluster = Cluster(1, groups=2)
    reads = Reads(cluster.nodes[1])
    for group in cluster.groups:
        cluster.nodes[1].campaign(group)
    cluster.settle()
    for group in groups:
        assert reads.ask(group, nothing, 0)
    return reads, cluster


def test_a_read_is_answered_once_under_its_number() -> None:
    reads, cluster = asked(GROUP)
    ((_, number, _),) = cluster.nodes[1].ready().reads

    assert reads.take(GROUP, number) is not None
    assert reads.take(GROUP, number) is None
    assert reads.is_idle


def test_a_read_of_a_group_that_is_not_here_is_refused() -> None:
    reads, _ = asked()

    assert not reads.ask(99, nothing, 0)
    assert reads.is_idle


def test_a_read_is_forgotten_with_its_group_or_after_a_time() -> None:
    reads, _ = asked(GROUP, GROUP + 1)

    reads.forget(GROUP)
    reads.expire(READ_NS - 1)
    assert not reads.is_idle
    reads.expire(READ_NS)
    assert reads.is_idle


def test_all_reads_are_forgotten_at_the_end() -> None:
    reads, _ = asked(GROUP, GROUP + 1)

    reads.clear()

    assert reads.is_idle
