"""The consensus of several nodes without trouble, and one trouble at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest
import xxhash
from tests.sim.consensus.node import STEP_NS, SimNode
from tests.support.consensus import GROUP, Hosts, MemoryNode

from pyjs.base.errors import CorruptRecord, NotNow
from pyjs.consensus import batch, outbox
from pyjs.consensus.consensus import Condition, Tuning
from pyjs.consensus.engine import Change, Conf, Refused, Role, Write, peer_id


def errors(node: SimNode) -> list[str]:
    return [text for level, text in node.host.log.lines if level == "ERR"]


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


def test_a_payload_larger_than_a_batch_is_refused(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = hosts.leader()
    monkeypatch.setattr(batch, "PAYLOAD_MAX", 100)

    assert not leader.publish(GROUP, bytes(101))
    assert leader.publish(GROUP, bytes(100))


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

    assert follower.consensus._reads == {}
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

    assert hosts.net.sent - sent == 3 * 2 * 30  # heartbeats of nodes alone
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
    hosts = Hosts(1)
    leader = hosts.leader()
    turns: list[int] = []
    step = leader.consensus._apply_some

    def counted() -> None:
        before = leader.machines[GROUP].state.count
        step()
        turns.append(leader.machines[GROUP].state.count - before)

    leader.consensus._apply_some = counted  # type: ignore[method-assign]
    for number in range(20):
        leader.publish(GROUP, b"%d" % number + bytes(100_000))
    hosts.until(lambda: leader.machines[GROUP].state.count == 20)

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
        """Hold what is for the log, from the snapshot on."""
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


# -- troubles ----------------------------------------------------------------------------------------------------


class Failing(MemoryNode):
    """A node whose machines can fail."""

    fails = ""

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        super().start(now, confs)
        for machine in self.machines.values():
            machine.apply = self._with_fault(machine.apply)  # type: ignore[method-assign, assignment]

    def _with_fault(self, apply: Callable[..., None]) -> Callable[..., None]:
        def failing(*given: object) -> None:
            if self.fails:
                raise ZeroDivisionError(self.fails)
            apply(*given)

        return failing

    def _expects(self, text: str) -> bool:
        return "ZeroDivisionError" in text


def test_a_machine_that_fails_stops_its_group_here_and_gives_the_lead_away() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = hosts.leader()
    assert isinstance(bad, Failing)
    bad.fails = "no"
    bad.publish(GROUP, b"x")

    hosts.until(lambda: any(node.leads(GROUP) for node in hosts.nodes.values() if node is not bad))

    assert bad.host.faults.counts == {"apply": 1}
    assert bad.machines[GROUP].state.count == 5
    assert bad.consensus.status(GROUP).is_stopped
    assert hosts.judge.outcomes[b"x"] == 1
    bad.fails = ""
    good = hosts.leader()
    good.publish(GROUP, b"y")
    hosts.until(lambda: good.machines[GROUP].state.count == 7)
    assert bad.machines[GROUP].state.count == 5


def heartbeat(group: int, source: int, target: int, term: int, commit: int) -> bytes:
    """Return the frame of a leader that claims to have committed too much."""
    rest = struct.pack(
        "<4BI11Q", 1, 7, 0, 0, 0, group, peer_id(source), peer_id(target), term, 0, 0, commit, 0, 0, 0, 0
    )
    return struct.pack("<II", len(rest) + 8, xxhash.xxh64_intdigest(rest) & 0xFFFFFFFF) + rest


def test_a_group_that_panics_is_named_once_and_closed_and_others_go_on() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad, leader = hosts.followers(5)[0], hosts.leader(5)
    term = leader.consensus.status(5).term
    frames = heartbeat(5, leader.number, bad.number, term, 10_000)

    bad.consensus.receive(leader.number, b"".join(batch.of_frames(frames, ())))
    hosts.step(3)

    assert [text for text in bad.seen if "(g5)" in text and 'group 5 ("g5") is closed on this server' in text]
    assert len(bad.seen) == 1
    assert 5 not in bad.consensus._members
    hosts.publish(3, 6)


class Forgiving(MemoryNode):
    """A node that may log errors."""

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        self.seen: list[str] = []
        super().start(now, confs)

    def _expects(self, text: str) -> bool:
        self.seen.append(text)
        return True


def test_a_log_that_fails_ends_the_part_of_the_node_and_acknowledges_nothing() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.leader()
    bad.log.is_broken = True
    bad.publish(GROUP, b"x")

    hosts.step(2)

    assert bad.consensus.condition is Condition.FAILED
    assert bad.stopped == "Replication Failed"
    assert hosts.judge.outcomes[b"x"] == 1  # dropped
    assert hosts.judge.counts["acked"] == 3
    assert bad.seen == [
        "This server takes no part in replicated groups until a restart, because the log of replicated groups"
        " cannot be written: /consensus: no space left on device"
    ]
    hosts.until(lambda: any(node.leads(GROUP) for node in hosts.nodes.values() if node is not bad))
    assert not bad.publish(GROUP, b"y")


def test_a_sync_that_fails_is_as_a_write_that_fails() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.leader()
    bad.consensus._sync_ended(OSError(5, "Input/output error"))

    assert bad.consensus.condition is Condition.FAILED
    assert "cannot be synced: [Errno 5] Input/output error" in errors(bad)[0]


def test_a_replica_that_lost_a_part_of_its_log_begins_again_as_another_one() -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    lost = hosts.followers()[0]
    lost.end(power=True)
    object.__setattr__(lost.log.groups[GROUP], "is_damaged", True)
    hosts.start(lost.number)

    hosts.step(20)

    assert lost.log.groups[GROUP].peer == peer_id(lost.number, 2)
    assert "as replica 2 of this server" in lost.seen[0]
    leader = hosts.leader()
    leader.consensus.change(GROUP, [(int(Change.REMOVE), peer_id(lost.number))])
    hosts.step(20)
    leader.consensus.change(GROUP, [(int(Change.ADD_VOTER), peer_id(lost.number, 2))])
    hosts.until(lambda: lost.machines[GROUP].state.count == 3)


def test_a_damaged_log_closes_its_group_and_acknowledges_nothing_of_it() -> None:
    hosts = Hosts(groups=(5, 6), node_class=Forgiving)
    hosts.publish(3, 5)
    hosts.publish(3, 6)
    bad = hosts.leader(5)
    write = bad.log.write

    def refuse(given: Write, payloads: Sequence[bytes]) -> None:
        if given.group == 5:
            raise CorruptRecord("/consensus/1", 4096, "the record of index 7 is damaged")
        write(given, payloads)

    bad.log.write = refuse
    bad.publish(5, b"x")
    hosts.step(3)

    assert bad.seen == [  # type: ignore[attr-defined]
        'The replica of group 5 ("g5") is closed on this server until a restart, other groups go on: its log is'
        " damaged: /consensus/1 at 4096: the record of index 7 is damaged"
    ]
    assert hosts.judge.outcomes[b"x"] == 1
    hosts.publish(3, 6)


def test_an_entry_that_is_damaged_closes_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(node_class=Forgiving)
    hosts.publish(3)
    bad = hosts.followers()[0]

    def get(key: object) -> bytes:
        raise CorruptRecord("/consensus/1", 4096, "the payload of index 7 is damaged")

    monkeypatch.setattr(bad.consensus._payloads, "get", get)
    hosts.leader().publish(GROUP, b"x")
    hosts.until(lambda: bad.consensus._members == {})

    assert "the payload of index 7 is damaged" in bad.seen[0]  # type: ignore[attr-defined]
    assert bad.machines[GROUP].state.count == 3


def test_a_log_whose_file_is_needed_again_is_cut(hosts: Hosts) -> None:
    hosts.publish(30)
    leader = hosts.leader()
    leader.log.crowding = lambda: [GROUP]
    leader.deaf = {hosts.followers()[0].number}

    hosts.until(lambda: leader.log.groups[GROUP].start > 30)


def test_a_group_that_is_closed_while_it_waits_to_begin_again_stays_closed(hosts: Hosts) -> None:
    hosts.publish(3)
    node = hosts.followers()[0]
    hosts.leader().publish(GROUP, b"x")
    hosts.step()
    node.consensus.close(GROUP)
    node.consensus.open(GROUP, "g5", node.machines[GROUP])
    node.consensus.close(GROUP)
    hosts.step(5)

    assert node.consensus._engine.counts() == (0, 0)


def test_a_peer_that_does_not_read_gets_its_entries_later(hosts: Hosts) -> None:
    hosts.publish(1)
    leader, deaf = hosts.leader(), hosts.followers()[0]
    leader.deaf = {deaf.number}
    for number in range(20):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.machines[GROUP].state.count == 21)
    assert deaf.machines[GROUP].state.count == 1
    assert leader.consensus._outbox.dropped > 0

    leader.deaf = set()
    hosts.until(lambda: deaf.machines[GROUP].state.count == 21)


def test_an_entry_that_cannot_be_read_now_is_applied_later(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.publish(1)
    follower = hosts.followers()[0]
    refusals = 3

    def get(key: object) -> bytes:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise NotNow("too many open files")
        return type(follower.consensus._payloads).get(follower.consensus._payloads, key)  # type: ignore[arg-type]

    monkeypatch.setattr(follower.consensus._payloads, "get", get)
    hosts.publish(5)

    assert refusals == 0
    assert follower.machines[GROUP].state.count == 6


def test_large_entries_leave_in_several_batches(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH_SIZE", 1000)
    hosts.publish(1)

    hosts.publish(10, size=900)

    assert hosts.judge.counts["acked"] == 11


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
    leader.consensus.turn()
    assert not leader.leads(GROUP)
