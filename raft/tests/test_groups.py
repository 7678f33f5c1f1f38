"""The interface: elections, proposals, membership, reads, snapshots, sleep, and every refusal."""

from __future__ import annotations

import pytest
from raft.tests.cluster import GROUP, Cluster, descriptor

from pyjs_raft import (
    Change,
    Conf,
    FrameError,
    Groups,
    Quarantined,
    RaftError,
    Refused,
    Role,
    UnknownGroup,
    node_of,
    payloads_of,
    peer_id,
)

FIRST, SECOND, THIRD, FOURTH = (peer_id(node) for node in (1, 2, 3, 4))


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_leader_is_elected_by_time_alone(count: int) -> None:
    cluster = Cluster(count)

    cluster.tick(41)

    assert len(cluster.leaders()) == 1


@pytest.mark.parametrize("count", [3, 5])
def test_a_proposal_is_committed_everywhere(count: int) -> None:
    cluster = Cluster(count)
    cluster.elect(1)

    assert cluster.propose(1, 17) == (3, 2)

    assert dict(cluster.committed) == {node: [17] for node in cluster.nodes}


def test_a_follower_does_not_take_a_proposal() -> None:
    cluster = Cluster()
    cluster.elect(1)

    assert cluster.propose(2, 17) is None


def test_payloads_are_named_beside_the_frames_and_before_the_step() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].propose([(GROUP, descriptor(17))])

    frames = cluster.nodes[1].ready().frames

    assert [payloads for _, _, payloads in frames] == [[(GROUP, 3, 2)], [(GROUP, 3, 2)]]
    assert payloads_of(frames[0][1]) == [(GROUP, 3, 2, descriptor(17))]


def test_one_turn_serves_all_groups_with_one_batch_a_node() -> None:
    cluster = Cluster(groups=50)
    cluster.elect(1)
    cluster.nodes[1].propose([(group, descriptor(group)) for group in cluster.groups])

    ready = cluster.nodes[1].ready()

    assert [node for node, _, _ in ready.frames] == [2, 3]
    assert [write.group for write in ready.writes] == list(cluster.groups)


def test_an_acknowledgement_waits_until_the_entry_is_durable() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].propose([(GROUP, descriptor(17))])
    ready = cluster.nodes[1].ready()
    ((_, frames, _),) = [one for one in ready.frames if one[0] == 2]
    cluster.nodes[2].step(frames)

    follower = cluster.nodes[2].ready()

    assert follower.must_sync
    assert follower.frames == []
    assert [node for node, _, _ in cluster.nodes[2].stored(follower.token)] == [1]


def test_a_turn_without_a_write_waits_for_nothing() -> None:
    cluster = Cluster()
    cluster.nodes[1].campaign(GROUP)

    ready = cluster.nodes[1].ready()  # pre-votes

    assert ready.token == 0
    assert len(ready.frames) == 2
    assert cluster.nodes[1].stored(0) == []


def test_the_lead_is_handed_over() -> None:
    cluster = Cluster()
    cluster.elect(1)

    cluster.nodes[1].transfer(GROUP, SECOND)
    cluster.settle()

    assert cluster.leaders() == [2]


def test_a_lost_leader_is_followed_by_one_candidate_at_once() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.cut_off = {1}

    for node in (2, 3):
        cluster.nodes[node].node_silent(1)
    cluster.settle()
    cluster.tick(13)

    assert cluster.leaders() in ([2], [3])
    assert cluster.propose(cluster.leaders()[0], 17) is not None


def test_a_leader_without_a_quorum_steps_down() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.tick(30)
    cluster.cut_off = {2, 3}

    for node in (2, 3):
        cluster.nodes[1].node_silent(node)
    cluster.tick(45)

    assert cluster.role(1) != Role.LEADER


def lost(cluster: Cluster, node: int) -> None:
    """Start a node again in doubt, without the entries that it has acknowledged."""
    cluster.start(node)
    cluster.nodes[node].set_doubtful(GROUP, True)


def test_a_peer_in_doubt_gets_again_what_its_leader_knows_to_be_there() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.propose(1, 17)
    lost(cluster, 3)

    cluster.tick(30)
    assert cluster.nodes[3].status(GROUP).last == 1
    cluster.nodes[1].forget_answers(GROUP, peer_id(3))
    cluster.tick(30)

    assert cluster.nodes[3].status(GROUP).last == 3
    assert cluster.leaders() == [1]


def test_a_peer_in_doubt_does_not_vote() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.propose(1, 17)
    lost(cluster, 3)
    cluster.cut_off = {1}
    with pytest.raises(Refused, match="may be lost"):
        cluster.nodes[3].campaign(GROUP)
    for node in (2, 3):
        cluster.nodes[node].node_silent(1)
    cluster.tick(200)
    assert cluster.leaders() == []

    cluster.nodes[3].set_doubtful(GROUP, False)
    cluster.tick(200)
    assert cluster.leaders() == [2]


def test_a_peer_in_doubt_votes_for_who_has_as_much_as_all_others() -> None:
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.propose(1, 17)
    last = cluster.nodes[1].status(GROUP).last
    cluster.start(1)
    lost(cluster, 1)
    cluster.nodes[2].node_silent(1)
    cluster.nodes[2].node_heard(1)
    cluster.tick(200)
    assert cluster.leaders() == []

    cluster.nodes[1].set_floor(GROUP, 2, last + 1)
    cluster.tick(200)
    assert cluster.leaders() == []
    cluster.nodes[1].set_floor(GROUP, 2, last)
    cluster.tick(200)
    assert cluster.leaders() == [2]
    assert cluster.nodes[1].status(GROUP).last == last + 1


def test_a_peer_in_doubt_stands_if_it_has_as_much_as_all_others() -> None:
    cluster = Cluster(2)
    cluster.nodes[1].set_doubtful(GROUP, True)
    cluster.nodes[1].set_floor(GROUP, 1, 1)

    cluster.elect(1)


def test_answers_are_forgotten_by_a_leader_about_a_member() -> None:
    cluster = Cluster()
    cluster.elect(1)

    with pytest.raises(Refused, match="does not lead"):
        cluster.nodes[2].forget_answers(GROUP, peer_id(3))
    with pytest.raises(Refused, match="is not a member"):
        cluster.nodes[1].forget_answers(GROUP, peer_id(9))


def test_a_read_gets_its_index_on_leader_and_follower() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.propose(1, 17)

    here, there = (cluster.nodes[node].read_index(GROUP) for node in (1, 2))
    cluster.settle()

    assert sorted(cluster.reads) == sorted([(1, here, 3), (2, there, 3)])


def test_a_read_of_a_leader_that_is_cut_off_never_comes() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.cut_off = {1}

    cluster.nodes[1].read_index(GROUP)
    cluster.settle()

    assert cluster.reads == []


def test_numbers_of_reads_differ_between_starts() -> None:
    numbers = set()
    for boot in (1, 2):
        engine = Groups(1, seed=7, boot=boot)
        engine.open(GROUP, "orders", FIRST, Conf([FIRST]))
        engine.campaign(GROUP)
        engine.stored(engine.ready().token)
        engine.stored(engine.ready().token)
        numbers.add(engine.read_index(GROUP))

    assert len(numbers) == 2


def test_a_settled_group_sleeps_and_wakes_for_work() -> None:
    cluster = Cluster()
    cluster.elect(1)

    cluster.tick(30)
    assert cluster.asleep() == [1, 2, 3]
    assert cluster.nodes[1].counts() == (1, 0)
    cluster.tick(500)
    assert cluster.leaders() == [1]
    cluster.propose(1, 17)

    assert cluster.asleep() == []
    assert cluster.committed[3] == [17]


def test_a_node_that_comes_back_is_caught_up_by_sleeping_groups() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.cut_off = {3}
    for node in (1, 2):
        cluster.nodes[node].node_silent(3)
    cluster.propose(1, 17)
    cluster.tick(40)
    assert 1 in cluster.asleep()

    cluster.cut_off = set()
    for node in (1, 2):
        cluster.nodes[node].node_heard(3)
    cluster.settle()

    assert cluster.committed[3] == [17]


def test_a_peer_joins_by_a_snapshot_and_replaces_another() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.propose(1, 17)
    cluster.start(4, empty=True)
    leader = cluster.nodes[1]
    leader.change(GROUP, [(Change.ADD_LEARNER, FOURTH)])
    cluster.settle()
    cluster.tick(6)
    assert cluster.wanted[-1] == (1, FOURTH)

    leader.offer_snapshot(GROUP, 4, descriptor(99))
    cluster.tick(6)
    assert cluster.sent == [(1, 4)]
    point = cluster.snapshots[4]
    assert (point.index, point.term, point.descriptor) == (4, 2, descriptor(99))
    assert point.conf == Conf([FIRST, SECOND, THIRD], [FOURTH])
    cluster.deliver(4, cluster.nodes[4].installed(GROUP, 4))
    leader.report_snapshot(GROUP, FOURTH, True)
    leader.change(GROUP, [(Change.ADD_VOTER, FOURTH), (Change.REMOVE, THIRD)])
    cluster.settle()
    cluster.tick(6)
    cluster.propose(1, 18)

    assert cluster.committed[4] == [18]
    assert cluster.nodes[4].status(GROUP).conf == Conf([FIRST, SECOND, FOURTH])


def test_the_answer_to_a_snapshot_waits_for_its_data() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.start(4, empty=True)
    cluster.nodes[1].change(GROUP, [(Change.ADD_LEARNER, FOURTH)])
    cluster.settle()
    cluster.tick(6)
    cluster.nodes[1].offer_snapshot(GROUP, 3, descriptor(99))

    cluster.tick(30)

    assert dict(cluster.nodes[1].status(GROUP).matched)[FOURTH] == 0
    votes = [write.hard for write in cluster.writes[4] if write.hard]
    assert votes[-1] == (2, 0, 0)  # after a restart, no entry of the log before the snapshot is committed
    cluster.deliver(4, cluster.nodes[4].installed(GROUP, 3))
    cluster.settle()
    assert dict(cluster.nodes[1].status(GROUP).matched)[FOURTH] == 3


def test_a_snapshot_from_before_a_peer_was_a_member_is_not_sent_to_it() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].compact(GROUP, 2)
    cluster.nodes[1].offer_snapshot(GROUP, 2, descriptor(99))
    cluster.start(4, empty=True)

    cluster.nodes[1].change(GROUP, [(Change.ADD_LEARNER, FOURTH)])
    cluster.settle()
    cluster.tick(6)

    assert cluster.sent == []
    assert cluster.wanted[-1] == (1, FOURTH)


def test_a_snapshot_is_given_up_by_opening_the_group_again() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.start(4, empty=True)
    cluster.nodes[1].change(GROUP, [(Change.ADD_LEARNER, FOURTH)])
    cluster.settle()
    cluster.tick(6)
    cluster.nodes[1].offer_snapshot(GROUP, 3, descriptor(99))
    cluster.tick(6)

    cluster.nodes[4].close(GROUP)
    cluster.nodes[4].open(GROUP, "orders", FOURTH, Conf(), start=0, start_term=0, term=2)
    cluster.nodes[1].report_snapshot(GROUP, FOURTH, False)
    del cluster.snapshots[4]
    cluster.wanted.clear()
    cluster.tick(12)
    assert cluster.wanted[-1] == (1, FOURTH)  # the data of the first offer may no longer exist
    assert 4 not in cluster.snapshots
    cluster.nodes[1].offer_snapshot(GROUP, 3, descriptor(98))
    cluster.tick(12)

    assert cluster.snapshots[4].descriptor == descriptor(98)


def test_compaction_gives_the_start_for_the_next_opening() -> None:
    cluster = Cluster(1)
    cluster.elect(1)
    for number in range(10):
        cluster.propose(1, number)
    engine = cluster.nodes[1]

    start, term, conf = engine.compact(GROUP, 8)
    rest = [engine.entry(GROUP, index) for index in range(9, 13)]
    again = Groups(1, seed=7, boot=2)
    entries = [entry for entry in rest if entry]
    again.open(
        GROUP,
        "orders",
        FIRST,
        conf,
        term=2,
        vote=FIRST,
        commit=99,
        start=start,
        start_term=term,
        entries=entries,
    )

    assert engine.term_at(GROUP, 7) is None
    assert (start, term, conf, len(entries)) == (8, 2, Conf([FIRST]), 4)
    assert [(index, body) for _, index, _, _, body in again.ready().committed] == [
        (index, descriptor(index - 3)) for index in range(9, 13)
    ]


def test_what_is_not_applied_is_not_compacted() -> None:
    cluster = Cluster()
    cluster.elect(1)

    with pytest.raises(Refused, match="group 5: index 9 has not been applied, 2 has"):
        cluster.nodes[1].compact(GROUP, 9)
    with pytest.raises(Refused, match="group 5: index 9 has not been applied, 2 has"):
        cluster.nodes[1].offer_snapshot(GROUP, 9, descriptor(1))


def test_changes_are_refused_where_they_cannot_be_done() -> None:
    cluster = Cluster()
    cluster.elect(1)
    leader = cluster.nodes[1]

    with pytest.raises(Refused, match="peer 8589934593 does not lead"):
        cluster.nodes[2].change(GROUP, [(Change.REMOVE, FIRST)])
    with pytest.raises(Refused, match="it is removed after a transfer of the lead"):
        leader.change(GROUP, [(Change.REMOVE, FIRST)])
    with pytest.raises(Refused, match="no changes"):
        leader.change(GROUP, [])
    with pytest.raises(Refused, match="5 changes, 4 is the limit"):
        leader.change(GROUP, [(Change.REMOVE, SECOND)] * 5)
    with pytest.raises(Refused, match="change 9 is not known"):
        leader.change(GROUP, [(9, SECOND)])
    leader.change(GROUP, [(Change.REMOVE, THIRD)])
    with pytest.raises(Refused, match="another change of the membership is under way"):
        leader.change(GROUP, [(Change.REMOVE, SECOND)])


def test_leads_and_reads_are_refused_where_they_cannot_be() -> None:
    cluster = Cluster()

    with pytest.raises(Refused, match="no leader is known"):
        cluster.nodes[1].read_index(GROUP)
    with pytest.raises(Refused, match="does not lead"):
        cluster.nodes[1].transfer(GROUP, SECOND)
    cluster.elect(1)
    with pytest.raises(Refused, match="peer 17179869185 is not another voter"):
        cluster.nodes[1].transfer(GROUP, FOURTH)


def heartbeat_beyond_the_log() -> bytes:
    """Return a valid frame that commits an entry that its receiver has lost."""
    cluster = Cluster()
    cluster.elect(1)
    for number in range(5):
        cluster.propose(1, number)
    for _ in range(5):
        cluster.nodes[1].tick()
    ((_, frames, _),) = [one for one in cluster.nodes[1].ready().frames if one[0] == 2]
    return frames


def test_a_panic_quarantines_its_group_by_name_and_leaves_the_others() -> None:
    engine = Groups(2, seed=7, boot=1)
    engine.open(GROUP, "orders", SECOND, Conf([FIRST, SECOND, THIRD]))
    engine.open(6, "bills", SECOND, Conf([SECOND]))

    engine.step(heartbeat_beyond_the_log())

    ((group, text),) = engine.quarantined()
    assert group == GROUP
    assert text.startswith("group 5 (orders): to_commit 7 is out of range [last_index 1]")
    with pytest.raises(Quarantined, match=r"group 5 \(orders\)"):
        engine.status(GROUP)
    engine.campaign(6)
    engine.stored(engine.ready().token)
    assert engine.status(6).role == Role.LEADER
    engine.close(GROUP)
    assert engine.quarantined() == []


def test_a_group_that_is_not_open_is_named() -> None:
    engine = Groups(2, seed=7, boot=1)

    assert engine.step(heartbeat_beyond_the_log()) == [(GROUP, FIRST)]
    with pytest.raises(UnknownGroup, match="group 5 is not open"):
        engine.status(GROUP)
    with pytest.raises(UnknownGroup, match="group 5 is not open"):
        engine.close(GROUP)
    assert engine.propose([(GROUP, descriptor(1))]) == [None]


def test_a_damaged_batch_is_refused_as_a_whole() -> None:
    good = heartbeat_beyond_the_log()
    engine = Groups(2, seed=7, boot=1)
    engine.open(GROUP, "orders", SECOND, Conf([FIRST, SECOND, THIRD]))

    with pytest.raises(FrameError, match=f"frame at byte {len(good)}: 3 bytes, a header has 104"):
        engine.step(good + b"abc")

    assert engine.quarantined() == []
    assert issubclass(FrameError, RaftError)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"group": 0}, "group 0"),
        ({"peer": FIRST}, "peer 4294967297 is of node 1, this is node 2"),
        ({"conf": Conf()}, "start 1 with 0 voters"),
        ({"conf": Conf([SECOND, SECOND])}, "voters name 8589934593 twice"),
        ({"conf": Conf([SECOND], [SECOND])}, "peer 8589934593 is a voter and a learner"),
        ({"start": 4, "start_term": 0}, "start 4 of term 0"),
        ({"entries": [(1, 7, bytes(40))]}, "entry 2: kind 7 of an entry is not known"),
        ({"entries": [(3, 0, bytes(40))]}, "the log has term 3, the vote is of term 1"),
        ({"entries": [(3, 0, bytes(40)), (2, 0, bytes(40))], "term": 3}, "entry 3: term 2 after 3"),
        ({"entries": [(1, 1, bytes(39))]}, "a descriptor of 39 bytes, it has 40"),
    ],
)
def test_what_cannot_be_a_groups_is_refused_at_its_opening(given: dict[str, object], text: str) -> None:
    engine = Groups(2, seed=7, boot=1)
    valid: dict[str, object] = {"group": GROUP, "name": "orders", "peer": SECOND, "conf": Conf([SECOND])}

    with pytest.raises(ValueError, match=text):
        engine.open(**{**valid, **given})  # type: ignore[arg-type]


def test_a_group_is_opened_once() -> None:
    cluster = Cluster(1)

    with pytest.raises(ValueError, match="group 5 is open"):
        cluster.nodes[1].open(GROUP, "orders", FIRST, cluster.conf)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"node": 0}, "numbers of nodes start at 1"),
        ({"boot": 1 << 24}, "boot 16777216, 16777216 is the limit"),
        ({"watch_ticks": 0}, "a look at sleeping groups every 0 ticks"),
        ({"election_ticks": 5}, "an election timeout of 5 ticks with a heartbeat every 5"),
    ],
)
def test_an_engine_with_impossible_numbers_is_not_made(given: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Groups(**{"node": 1, "seed": 7, "boot": 1, **given})


def test_node_0_cannot_be_silent() -> None:
    cluster = Cluster()

    with pytest.raises(ValueError, match="node 0: numbers of nodes start at 1"):
        cluster.nodes[1].node_silent(0)


def test_tokens_come_back_in_their_order() -> None:
    cluster = Cluster(1)
    engine = cluster.nodes[1]
    engine.campaign(GROUP)
    token = engine.ready().token

    with pytest.raises(ValueError, match="token 2 is stored, token 1 comes first"):
        engine.stored(token + 1)
    engine.stored(token)
    with pytest.raises(ValueError, match="token 1 is stored, none is waited for"):
        engine.stored(token)


def test_equal_seeds_give_equal_runs_and_others_differ() -> None:
    def first_leader(seed: int) -> tuple[int, int]:
        engine = Groups(1, seed=seed, boot=1)
        engine.open(GROUP, "orders", FIRST, Conf([FIRST, SECOND]))
        for tick in range(50):
            engine.tick()
            if engine.ready().frames:
                return seed, tick
        raise AssertionError("never stands for election")

    ticks = [first_leader(seed)[1] for seed in range(20)]

    assert ticks == [first_leader(seed)[1] for seed in range(20)]
    assert len(set(ticks)) > 5
    assert all(19 <= tick < 40 for tick in ticks)


def test_a_peer_is_its_node_and_its_incarnation() -> None:
    assert peer_id(3, 2) == (3 << 32) + 2
    assert node_of(peer_id(3, 2)) == 3
    with pytest.raises(ValueError, match="node 0, incarnation 1"):
        peer_id(0)


def test_a_membership_shows_itself() -> None:
    assert repr(Conf([FIRST], auto_leave=True)) == "Conf([4294967297], [], [], [], True)"
