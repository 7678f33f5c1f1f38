"""Power cuts with a sync interval: a minority gets its lost entries back, a majority loses only unsynced ones."""

from __future__ import annotations

from random import Random

import pytest
from tests.sim.consensus.node import SimNode
from tests.support.consensus import GROUP, Hosts

from pyjs.consensus.consensus import Tuning
from pyjs.consensus.doubt import is_majority
from pyjs.consensus.engine import Conf, Refused, peer_id

NEVER_NS = 10**15


class Nothing(Random):
    """Random numbers with which no unsynced data is durable after a power loss."""

    def randrange(self, *limits: int) -> int:  # type: ignore[override]
        return 0


@pytest.fixture
def hosts() -> Hosts:
    """Return nodes that sync only votes."""
    hosts = Hosts(tuning=Tuning(sync_interval_ns=NEVER_NS))
    hosts.publish(20)
    return hosts


def cut_power(hosts: Hosts, node: SimNode) -> None:
    node.is_up = False
    node.store.lose_power(Nothing())
    hosts.net.forget(node.number)


def last(node: SimNode) -> int:
    return node.consensus.status(GROUP).last


def is_sure(node: SimNode) -> bool:
    return not node.log.is_doubtful and node.consensus.doubts.is_idle


def test_a_replica_gets_again_what_it_has_lost(hosts: Hosts) -> None:
    away = hosts.followers()[0]
    cut_power(hosts, away)
    hosts.start(away.number)
    assert (last(away), is_sure(away)) == (1, False)

    hosts.until(lambda: away.machines[GROUP].state.count == 20)
    hosts.until(lambda: is_sure(away))

    hosts.publish(5)
    assert hosts.judge.counts["leaders"] == 1


def test_a_replica_in_doubt_elects_nobody_who_may_lack_what_it_has_lost(hosts: Hosts) -> None:
    leader, (first, behind) = hosts.leader(), hosts.followers()
    hosts.net.cuts = {(leader.number, behind.number), (behind.number, leader.number)}
    leader.publish(GROUP, b"known to two")
    hosts.until(lambda: hosts.judge.counts["acked"] == 21)
    leader.end(power=False)
    cut_power(hosts, first)
    hosts.start(first.number)
    hosts.net.cuts = set()

    hosts.step(300)
    assert not first.leads(GROUP)
    assert not behind.leads(GROUP)
    with pytest.raises(Refused):
        first.consensus.campaign(GROUP)

    hosts.start(leader.number)
    hosts.until(lambda: all(node.machines[GROUP].state.count == 21 for node in hosts.nodes.values()))


def test_two_replicas_go_on_when_one_has_lost_its_end_and_the_other_does_not_lead() -> None:
    hosts = Hosts(2, tuning=Tuning(sync_interval_ns=NEVER_NS))
    hosts.publish(20)
    first, second = hosts.nodes.values()
    cut_power(hosts, first)
    second.end(power=False)
    hosts.start(1)
    hosts.step(300)
    assert not first.leads(GROUP)
    hosts.start(2)

    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in (first, second)))
    hosts.until(lambda: is_sure(first))


def test_a_leader_that_has_lost_its_end_follows(hosts: Hosts) -> None:
    leader = hosts.leader()
    cut_power(hosts, leader)
    hosts.start(leader.number)

    hosts.until(lambda: leader.machines[GROUP].state.count == 20)

    hosts.until(lambda: is_sure(leader))
    assert not leader.leads(GROUP)


def test_a_majority_goes_on_with_what_it_has(hosts: Hosts) -> None:
    for node in hosts.nodes.values():
        cut_power(hosts, node)
    hosts.judge.forget()
    for number in hosts.nodes:
        hosts.start(number)

    hosts.publish(5)
    hosts.until(lambda: all(is_sure(node) for node in hosts.nodes.values()))

    assert {node.machines[GROUP].state.count for node in hosts.nodes.values()} == {5}


class Everything(Random):
    """Random numbers with which all unsynced data is durable after a power loss."""

    def randrange(self, *limits: int) -> int:  # type: ignore[override]
        return limits[0] - 1


def test_a_replica_gives_up_what_the_majority_has_lost_though_it_was_committed(hosts: Hosts) -> None:
    last_one = hosts.leader()
    for node in hosts.followers():
        cut_power(hosts, node)
    last_one.is_up = False
    last_one.store.lose_power(Everything())
    assert last_one.store._durable[GROUP].hard[2] > 15
    hosts.judge.forget()
    for number in last_one.others:
        hosts.start(number)
    hosts.publish(3)

    hosts.start(last_one.number)
    hosts.until(lambda: is_sure(last_one))

    assert {node.machines[GROUP].state.count for node in hosts.nodes.values()} == {3}


def test_after_a_power_cut_of_all_the_replica_with_most_of_the_log_leads(hosts: Hosts) -> None:
    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in hosts.nodes.values()))
    whole = hosts.followers()[0]
    for node in hosts.nodes.values():
        if node is not whole:
            cut_power(hosts, node)
    whole.is_up = False
    whole.store.lose_power(Everything())
    for number in whole.others:
        hosts.start(number)
    hosts.step(100)

    hosts.start(whole.number)
    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in hosts.nodes.values()))
    hosts.until(lambda: all(is_sure(node) for node in hosts.nodes.values()))

    assert whole.leads(GROUP)


def test_a_replica_that_leads_after_a_power_cut_of_all_may_be_lost_at_once(hosts: Hosts) -> None:
    best = hosts.followers()[0]
    for node in hosts.nodes.values():
        if node is not best:
            cut_power(hosts, node)
    best.is_up = False
    best.store.lose_power(Everything())
    hosts.judge.forget()
    for number in hosts.nodes:
        hosts.start(number)
    hosts.step(30)
    best.end(power=False)

    hosts.publish(3)
    hosts.start(best.number)
    hosts.until(lambda: len({node.machines[GROUP].state for node in hosts.nodes.values()}) == 1)


def test_a_replica_that_was_cut_off_while_the_majority_lost_its_entries_is_dropped(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in hosts.nodes.values()))
    alone, *others = hosts.followers()[0], *hosts.nodes.values()
    others.remove(alone)
    hosts.net.cuts = {
        cut for node in others for cut in ((node.number, alone.number), (alone.number, node.number))
    }
    for node in others:
        cut_power(hosts, node)
    hosts.judge.forget()
    for node in others:
        hosts.start(node.number)
    hosts.until(lambda: any(node.leads(GROUP) for node in others))
    leader = next(node for node in others if node.leads(GROUP))
    errors: list[str] = []
    monkeypatch.setattr(alone, "_expects", lambda text: errors.append(text) or True)

    hosts.net.cuts = set()
    hosts.step(100)  # it has a higher commit index than its leader
    for number in range(30):
        leader.publish(GROUP, b"new %d" % number)
        hosts.step(10)
    hosts.until(lambda: all(node.machines[GROUP].state.count == 30 for node in others))
    assert alone.machines[GROUP].state.count == 0
    assert "the group has lost entries that are committed here" in errors[0]
    assert "returns empty, as replica 2" in errors[1]
    assert alone.peer(GROUP) == peer_id(alone.number, 2)


def test_entries_older_than_the_interval_survive_a_power_cut_everywhere() -> None:
    hosts = Hosts(tuning=Tuning(sync_interval_ns=100_000_000))
    hosts.publish(20)
    hosts.step(15)
    for node in hosts.nodes.values():
        cut_power(hosts, node)
    for number in hosts.nodes:
        hosts.start(number)

    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in hosts.nodes.values()))


def test_a_single_replica_is_its_own_majority() -> None:
    hosts = Hosts(1, tuning=Tuning(sync_interval_ns=NEVER_NS))
    hosts.publish(5)
    cut_power(hosts, hosts.nodes[1])
    hosts.judge.forget()
    hosts.start(1)

    hosts.publish(5)
    hosts.until(lambda: is_sure(hosts.nodes[1]))


def test_a_kill_loses_nothing_and_raises_no_doubt(hosts: Hosts) -> None:
    away = hosts.followers()[0]
    away.end(power=False)
    hosts.start(away.number)

    assert is_sure(away)


def test_a_new_replica_is_not_in_doubt(hosts: Hosts) -> None:
    away = hosts.followers()[0]
    cut_power(hosts, away)
    away.store.groups.clear()
    away.store._written.clear()
    away.store._durable.clear()
    hosts.start(away.number)
    hosts.step(2)

    assert is_sure(away)


def test_a_replica_that_is_closed_in_doubt_is_in_doubt_when_it_opens_again(hosts: Hosts) -> None:
    away = hosts.followers()[0]
    cut_power(hosts, away)
    hosts.net.cuts = {(node, away.number) for node in away.others}
    hosts.start(away.number)
    away.consensus.close(GROUP)
    assert away.consensus.doubts.is_idle
    away.machines[GROUP] = type(away.machines[GROUP])(away, GROUP)
    away.consensus.open(GROUP, "g5", away.machines[GROUP])
    assert not away.consensus.doubts.is_idle

    hosts.net.cuts = set()
    hosts.until(lambda: away.machines[GROUP].state.count == 20)
    away.consensus.remove(GROUP)
    hosts.step(2)
    assert is_sure(away)


def test_a_majority_is_one_of_each_half_of_a_joint_membership() -> None:
    assert is_majority({1, 2}, Conf([1, 2, 3]))
    assert not is_majority({1}, Conf([1, 2]))
    assert not is_majority({1, 2}, Conf([1, 2, 3], outgoing=[3, 4, 5]))
    assert is_majority({1, 3, 4}, Conf([1, 2, 3], outgoing=[3, 4, 5]))


def test_a_group_that_lacks_a_lost_replica_goes_on_when_an_operator_accepts_the_loss(hosts: Hosts) -> None:
    leader, (first, other) = hosts.leader(), hosts.followers()
    hosts.until(lambda: all(node.machines[GROUP].state.count == 20 for node in hosts.nodes.values()))
    leader.end(power=False)  # permanently
    cut_power(hosts, first)
    hosts.start(first.number)
    doubts, turn = first.consensus.doubts, first.consensus._turn
    assert not doubts.accept(GROUP, turn.now)

    hosts.step(700)
    assert not any(node.leads(GROUP) for node in (first, other))
    assert doubts.missing(GROUP, turn.now) == [leader.number]
    assert not other.consensus.doubts.accept(GROUP, turn.now)
    assert doubts.accept(GROUP, turn.now)
    assert not doubts.accept(GROUP, turn.now)

    hosts.until(lambda: other.leads(GROUP))
    hosts.until(lambda: first.machines[GROUP].state.count >= 20)
    hosts.until(lambda: is_sure(first))
