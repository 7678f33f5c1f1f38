"""When followers learn of the commit index, and when a turn has nothing to do."""

from __future__ import annotations

from raft.tests.cluster import GROUP, Cluster, descriptor


def test_followers_are_told_at_once_what_is_committed_and_answer_nothing() -> None:
    cluster = Cluster()
    cluster.elect(1)
    sent: list[int] = []
    deliver = cluster.deliver
    cluster.deliver = lambda source, frames: sent.extend([source] * len(frames)) or deliver(source, frames)  # type: ignore

    cluster.propose(1, 17)

    assert dict(cluster.committed) == {1: [17], 2: [17], 3: [17]}
    # entry and commit index to both followers; one answer from each
    assert sorted(sent) == [1, 1, 1, 1, 2, 3]


def test_followers_of_a_leader_that_is_not_prompt_are_told_by_the_next_append() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].set_prompt(GROUP, False)

    cluster.propose(1, 17)
    assert dict(cluster.committed) == {1: [17], 2: [], 3: []}
    cluster.propose(1, 18)
    assert dict(cluster.committed) == {1: [17, 18], 2: [17], 3: [17]}


def test_followers_of_a_leader_that_is_not_prompt_are_told_within_two_ticks() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.tick(1)  # the next heartbeat is due in four ticks
    cluster.nodes[1].set_prompt(GROUP, False)
    cluster.propose(1, 17)

    cluster.tick(1)
    assert dict(cluster.committed) == {1: [17], 2: [], 3: []}
    cluster.tick(1)
    assert dict(cluster.committed) == {1: [17], 2: [17], 3: [17]}


def test_a_leader_that_becomes_prompt_tells_from_the_next_commit_on() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].set_prompt(GROUP, False)
    cluster.nodes[1].set_prompt(GROUP, True)

    cluster.propose(1, 17)

    assert dict(cluster.committed) == {1: [17], 2: [17], 3: [17]}


def test_a_turn_without_work_is_known_before_it() -> None:
    cluster = Cluster()
    cluster.elect(1)

    assert not cluster.nodes[1].has_ready()
    cluster.nodes[1].propose([(GROUP, descriptor(17))])
    assert cluster.nodes[1].has_ready()
