"""The consensus of several nodes, without faults except nodes that stop and start."""

from __future__ import annotations

import pytest
from tests.sim.consensus.node import STEP_NS
from tests.support.consensus import GROUP, Hosts

from pyjs.consensus import batch, outbox
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.engine import Change, Conf, Refused, Role, peer_id


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


# -- proposals and reads -----------------------------------------------------------------------------------------


def test_a_proposal_is_applied_everywhere_and_comes_back_to_its_proposer(hosts: Hosts) -> None:
    hosts.publish(20)

    assert {node.machines[GROUP].state.count for node in hosts.nodes.values()} == {20}
    assert hosts.judge.counts["acked"] == 20


def test_a_node_that_does_not_lead_takes_no_proposal(hosts: Hosts) -> None:
    hosts.publish(1)

    assert not hosts.followers()[0].publish(GROUP, b"x")
    assert not hosts.leader().consensus.propose(99, b"x")


def test_a_payload_larger_than_a_batch_is_refused() -> None:
    leader = Hosts(1).leader()
    most = bytes(batch.PAYLOAD_MAX)

    assert not leader.consensus.propose(GROUP, most + b"x")
    assert leader.consensus.propose(GROUP, most)


def test_a_leader_that_is_cut_off_reports_its_proposals_as_dropped(hosts: Hosts) -> None:
    hosts.publish(1)
    leader = hosts.leader()
    hosts.net.cuts = {(leader.number, node) for node in leader.others}
    hosts.net.cuts |= {(node, leader.number) for node in leader.others}

    assert leader.publish(GROUP, b"lost")
    hosts.until(lambda: hosts.judge.outcomes[b"lost"] == 1)

    assert not leader.leads(GROUP)
    assert not leader.publish(GROUP, b"late")


def test_times_never_go_back_when_the_wall_clock_does(hosts: Hosts) -> None:
    hosts.publish(3)
    before = hosts.leader().machines[GROUP].state.time_ns
    hosts.leader().host.turn_state.skew = -3600 * 10**9

    hosts.publish(3)

    assert hosts.leader().machines[GROUP].state.time_ns == before + 3


def test_a_read_waits_for_what_was_committed_before_it(hosts: Hosts) -> None:
    hosts.publish(5)
    follower = hosts.followers()[0]

    follower.read(GROUP)
    hosts.until(lambda: hosts.judge.counts["reads"] == 1)


def test_a_read_without_a_leader_is_refused(hosts: Hosts) -> None:
    node = hosts.nodes[1]

    assert not node.consensus.read_index(GROUP, list)
    assert not node.consensus.read_index(99, list)


def test_a_read_that_nobody_answers_is_forgotten(hosts: Hosts) -> None:
    hosts.publish(1)
    follower = hosts.followers()[0]
    hosts.net.cuts = {(follower.number, node) for node in follower.others}
    follower.read(GROUP)

    hosts.step(1200)

    assert follower.consensus._reads.is_idle
    assert hosts.judge.counts["reads"] == 0


# -- failover ----------------------------------------------------------------------------------------------------


def test_another_node_leads_when_the_leader_dies(hosts: Hosts) -> None:
    hosts.publish(5)
    first = hosts.leader()
    first.end(power=True)
    hosts.until(lambda: any(node.is_up and node.leads(GROUP) for node in hosts.nodes.values()))
    hosts.publish(5)
    hosts.start(first.number)
    hosts.until(lambda: first.machines[GROUP].state.count == 10)


def test_the_lead_is_handed_over(hosts: Hosts) -> None:
    hosts.publish(1)
    heir = hosts.followers()[0]

    hosts.leader().consensus.transfer(GROUP, heir.number)
    hosts.until(lambda: heir.leads(GROUP))

    with pytest.raises(Refused, match="does not lead"):
        hosts.followers()[0].consensus.transfer(GROUP, heir.number)


def test_a_node_stands_for_election_when_it_is_asked_to(hosts: Hosts) -> None:
    hosts.nodes[2].consensus.campaign(GROUP)
    hosts.step(10)

    assert hosts.leader() is hosts.nodes[2]


def test_a_settled_group_sleeps_and_the_node_rests(hosts: Hosts) -> None:
    hosts.publish(5)
    hosts.step(200)
    sent = hosts.net.sent

    hosts.step(90)

    assert hosts.net.sent - sent == 3 * 2 * 30  # only the heartbeats between nodes
    node = hosts.leader()
    assert node.host.timers.next_deadline_ns() - node.host.turn_state.now > 10 * STEP_NS  # type: ignore[operator]


def test_a_sleeping_group_wakes_for_a_proposal(hosts: Hosts) -> None:
    hosts.publish(5)
    hosts.step(200)

    hosts.publish(5)

    assert hosts.judge.counts["acked"] == 10


# -- the turn ----------------------------------------------------------------------------------------------------


def test_many_committed_entries_are_applied_over_several_turns_in_fair_order() -> None:
    hosts = Hosts(1, groups=(5, 6))
    leader = hosts.leader(5)
    hosts.until(lambda: leader.leads(6))
    for number in range(1000):
        leader.publish(5, b"5/%d" % number)
    leader.publish(6, b"6/0")
    most, before = 0, 0
    machines = leader.machines
    while machines[5].state.count < 1000:
        hosts.step()
        most = max(most, machines[5].state.count - before)
        before = machines[5].state.count
        if machines[6].state.count == 0:
            assert before <= 64

    assert most <= 8 * 64  # a step has 8 turns


def test_a_turn_applies_no_more_than_its_share_of_bytes() -> None:
    hosts = Hosts(1, tuning=Tuning(sync_interval_ns=10**12))
    leader = hosts.leader()
    turns = [0]
    for number in range(20):
        leader.publish(GROUP, b"%d" % number + bytes(100_000))
    while (waiting := leader.host.turn_state.take("consensus")) and sum(turns) < 20:
        for each in waiting:
            each.turn()  # type: ignore[attr-defined]
        turns.append(leader.machines[GROUP].state.count - sum(turns))

    assert sum(turns) == 20
    assert max(turns) == 3


def test_votes_are_synced_and_entries_are_not_within_the_interval() -> None:
    hosts = Hosts(tuning=Tuning(sync_interval_ns=10**12))
    hosts.publish(3)
    leader = hosts.leader()
    voted = leader.log._durable[GROUP].hard

    assert voted[:2] == leader.log._written[GROUP].hard[:2]
    assert len(leader.log._durable[GROUP].rows) < len(leader.log._written[GROUP].rows)
    hosts.step(1)


def test_entries_are_synced_when_the_interval_is_over() -> None:
    hosts = Hosts(tuning=Tuning(sync_interval_ns=20 * STEP_NS))
    hosts.publish(3)

    hosts.step(25)

    for node in hosts.nodes.values():
        assert len(node.log._durable[GROUP].rows) == len(node.log._written[GROUP].rows)


# -- snapshots and the log ---------------------------------------------------------------------------------------


def test_a_full_log_is_cut_and_a_node_that_was_away_gets_the_state() -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    away = hosts.followers()[0]
    away.end(power=False)
    hosts.publish(200)
    hosts.step(5)
    assert hosts.leader().log.groups[GROUP].start > 50

    hosts.start(away.number)
    hosts.until(lambda: away.machines[GROUP].state.count == 205)

    assert hosts.judge.counts["installed"] >= 1


def test_a_restart_begins_with_the_state_of_the_start_of_the_log() -> None:
    hosts = Hosts(1, tuning=Tuning(log_size_max=2000))
    hosts.publish(200)
    hosts.step(5)
    node = hosts.nodes[1]
    node.end(power=True)
    hosts.start(1)

    assert node.machines[GROUP].state.count > 50
    hosts.until(lambda: node.machines[GROUP].state.count == 200)


def test_a_log_waits_for_a_replica_that_is_a_little_behind() -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    hosts.publish(1)
    leader, deaf = hosts.leader(), hosts.followers()[0]
    leader.deaf = {deaf.number}
    for number in range(30):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.machines[GROUP].state.count == 31)

    assert leader.log.groups[GROUP].start == 1
    leader.deaf = set()
    hosts.until(lambda: deaf.machines[GROUP].state.count == 31)
    assert hosts.judge.counts["installed"] == 0


APPEND, SNAPSHOT = 1, 9  # kinds of frames


def kinds(data: bytes) -> set[int]:
    """Return the kinds of the frames in a batch."""
    frames = data[8 : 8 + int.from_bytes(data[4:8], "little")]
    return {frame[9] for frame, _ in outbox.split(frames, ())}


def test_entries_that_come_with_a_snapshot_are_written_after_it() -> None:
    hosts = Hosts(tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    leader, away = hosts.leader(), hosts.followers()[0]
    away.end(power=False)
    hosts.publish(200)
    hosts.step(5)
    hosts.start(away.number)
    held: list[tuple[int, bytes]] = []
    receive = away.receive

    def hold(source: int, data: bytes, *, is_damaged: bool) -> None:
        """Hold the snapshot back, and entries after it."""
        if SNAPSHOT in kinds(data) or (held and APPEND in kinds(data)):
            held.append((source, data))
        else:
            receive(source, data, is_damaged=is_damaged)

    away.receive = hold  # type: ignore[method-assign]
    hosts.until(lambda: held)
    leader.consensus._engine.report_snapshot(GROUP, peer_id(away.number), True)
    leader.publish(GROUP, b"later")
    hosts.until(lambda: len(held) > 1)

    away.receive = receive  # type: ignore[method-assign]
    for source, data in held:
        away.receive(source, data, is_damaged=False)
    away.step(hosts.now)

    assert list(away.consensus._after_snapshot) == [GROUP]
    hosts.until(lambda: away.machines[GROUP].state.count == 206)
    assert away.consensus._after_snapshot == {}


def test_a_new_node_joins_by_a_snapshot() -> None:
    hosts = Hosts(4)
    conf = Conf([peer_id(number) for number in (1, 2, 3)])
    for node in hosts.nodes.values():
        node.store = type(node.store)()
        node.start(0, {GROUP: conf if node.number < 4 else Conf()})
    hosts.until(lambda: any(node.leads(GROUP) for node in hosts.nodes.values()))
    leader = hosts.leader()
    leader.publish(GROUP, b"a")
    leader.consensus.change(GROUP, [(int(Change.ADD_VOTER), peer_id(4))])

    hosts.until(lambda: hosts.nodes[4].machines[GROUP].state.count == 1)

    assert [one.node for one in leader.consensus.status(GROUP).replicas] == [1, 2, 3, 4]


# -- closing -----------------------------------------------------------------------------------------------------


def test_a_closed_group_opens_again_with_what_is_written(hosts: Hosts) -> None:
    hosts.publish(5)
    node = hosts.followers()[0]
    machine = node.machines[GROUP]
    node.consensus.close(GROUP)
    hosts.step(20)

    node.machines[GROUP] = machine = type(machine)(node, GROUP)
    node.consensus.open(GROUP, "g5", machine)
    hosts.publish(5)

    assert machine.state.count == 10


def test_a_removed_group_leaves_nothing(hosts: Hosts) -> None:
    hosts.publish(5)
    node = hosts.followers()[0]
    node.consensus.remove(GROUP)
    hosts.step(3)

    assert node.log._written == {}


def test_a_status_says_who_leads_and_who_lags(hosts: Hosts) -> None:
    hosts.publish(5)
    leader, follower = hosts.leader(), hosts.followers()[0]
    hosts.step(5)

    found = leader.consensus.status(GROUP)

    assert (found.name, found.role, found.leader) == ("g5", Role.LEADER, leader.number)
    assert found.applied == found.committed == found.last
    assert [(one.node, one.is_voter, one.lag) for one in found.replicas] == [(n, True, 0) for n in (1, 2, 3)]
    assert [one.lag for one in follower.consensus.status(GROUP).replicas] == [None] * 3


def test_a_stopped_consensus_does_nothing_more(hosts: Hosts) -> None:
    hosts.publish(1)
    leader = hosts.leader()
    leader.consensus.stop()

    assert leader.stopped == "Server Shutdown"
    assert not leader.publish(GROUP, b"x")
    leader.consensus.receive(2, b"anything")
    leader.consensus._round.turn()
    assert not leader.leads(GROUP)


def lengths_of_queue(hosts: Hosts, size: int) -> set[int]:
    """Return how many committed entries a follower had in its queue after each step, while it applied one more."""
    for node in hosts.nodes.values():
        node.consensus.set_prompt(GROUP, False)
    hosts.publish(1)
    leader, follower = hosts.leader(), hosts.followers()[0]
    before = follower.machines[GROUP].state.count
    found: set[int] = set()

    def is_applied() -> bool:
        found.add(len(follower.consensus._members[GROUP].queue))
        return follower.machines[GROUP].state.count > before

    assert leader.publish(GROUP, bytes(size))
    hosts.until(is_applied)
    return found


def test_a_follower_applies_a_small_entry_that_nothing_waits_for_at_the_next_tick(hosts: Hosts) -> None:
    assert lengths_of_queue(hosts, 100) == {0, 1}


def test_a_follower_applies_a_large_entry_at_once(hosts: Hosts) -> None:
    assert lengths_of_queue(hosts, 5000) == {0}


def test_a_follower_applies_many_small_entries_at_once(hosts: Hosts) -> None:
    for node in hosts.nodes.values():
        node.consensus.set_prompt(GROUP, False)
    hosts.publish(1)
    leader, follower = hosts.leader(), hosts.followers()[0]
    for number in range(20):
        assert leader.publish(GROUP, b"%d" % number)
    queued: list[int] = []
    hosts.until(
        lambda: (
            queued.append(len(follower.consensus._members[GROUP].queue))
            or follower.machines[GROUP].state.count == 21
        )
    )
    assert max(queued) < 16


def test_a_read_of_a_follower_does_not_wait_for_the_next_tick(hosts: Hosts) -> None:
    for node in hosts.nodes.values():
        node.consensus.set_prompt(GROUP, False)
    hosts.publish(1)
    leader, follower = hosts.leader(), hosts.followers()[0]
    counts: list[int] = []
    assert leader.publish(GROUP, b"x")
    hosts.until(lambda: leader.machines[GROUP].state.count == 2)
    machine = follower.machines[GROUP]
    assert follower.consensus.read_index(GROUP, lambda: counts.append(machine.state.count))
    hosts.until(lambda: counts)
    assert counts == [2]
