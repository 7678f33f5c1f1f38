"""Faults of state machines: when a group stops, which node then leads it, and what happens to its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.support.consensus import GROUP, Hosts, MemoryNode

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import CorruptRecord, NotNow
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.engine import Change, Conf, Groups, Refused, Role, peer_id
from pyjs.consensus.status import Condition


class Failing(MemoryNode):
    """A node whose machines can fail."""

    fails = ""
    error: type[Exception] = ZeroDivisionError
    errors: Sequence[str] = ()  # messages of errors that it may log, besides `error`

    def start(self, now: int, confs: dict[int, Conf]) -> None:
        super().start(now, confs)
        for machine in self.machines.values():
            machine.apply = self._with_fault(machine.apply)  # type: ignore[method-assign, assignment]

    def _with_fault(self, apply: Callable[..., None]) -> Callable[..., None]:
        def failing(*given: object) -> None:
            if self.fails:
                raise self.error(self.fails)
            apply(*given)

        return failing

    def _expects(self, text: str) -> bool:
        return self.error.__name__ in text or any(each in text for each in self.errors)


class Refusal(CorruptRecord):
    """A machine has found damage in its own files, not in the log."""

    def __init__(self, text: str) -> None:
        super().__init__("/stream", 7, text)


@pytest.mark.parametrize("error", [ZeroDivisionError, NotNow, Refusal])
def test_a_machine_that_fails_stops_its_group_here_and_gives_the_lead_away(error: type[Exception]) -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = hosts.leader()
    assert isinstance(bad, Failing)
    bad.fails, bad.error = "no", error
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


def stopped_follower(hosts: Hosts) -> Failing:
    """Return a follower whose machine has failed; the leader's machine has applied one more entry."""
    bad = hosts.followers()[0]
    assert isinstance(bad, Failing)
    bad.fails = "no"
    leader = hosts.leader()
    leader.publish(GROUP, b"x")
    hosts.until(lambda: bad.consensus.status(GROUP).is_stopped)
    return bad


def test_a_stopped_replica_that_is_elected_gives_the_lead_away() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = stopped_follower(hosts)
    hosts.leader().consensus.transfer(GROUP, bad.number)
    hosts.until(lambda: bad.consensus.status(GROUP).role == Role.LEADER)

    hosts.until(lambda: any(node.leads(GROUP) for node in hosts.nodes.values() if node is not bad), 30)


def test_a_stopped_replica_takes_no_reads() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = stopped_follower(hosts)

    assert not bad.consensus.read_index(GROUP, list)
    assert bad.consensus._reads.is_idle


def test_a_stopped_leader_tries_one_replica_after_the_other() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = stopped_follower(hosts)
    hosts.leader().consensus.transfer(GROUP, bad.number)
    asked: list[int] = []
    bad.consensus._faults._engine = Refusing(bad.consensus._engine, asked)  # type: ignore[assignment]
    hosts.until(lambda: len(asked) >= 3)

    assert set(asked) == {peer_id(node) for node in bad.others}
    assert asked[0] != asked[1]


class Refusing:
    """An engine whose leadership transfers fail."""

    def __init__(self, engine: Groups, asked: list[int]) -> None:
        self._engine = engine
        self._asked = asked

    def transfer(self, group: int, peer: int) -> None:
        self._asked.append(peer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


# -- the log of a stopped replica --------------------------------------------------------------------------------


def test_a_stopped_replica_takes_a_snapshot_for_its_next_opening() -> None:
    hosts = Hosts(node_class=Failing, tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    bad = stopped_follower(hosts)
    hosts.net.cuts = {(node, bad.number) for node in bad.others}
    leader = hosts.leader()
    for number in range(200):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.log.groups[GROUP].start > 50)
    hosts.net.cuts = set()

    hosts.until(lambda: bad.log.groups[GROUP].start > 50)
    hosts.step(20)

    status = bad.consensus.status(GROUP)
    assert status.is_stopped
    assert (bad.machines[GROUP].state.count, status.applied) == (5, 7)
    assert status.last == leader.consensus.status(GROUP).last
    bad.end(power=False)
    bad.fails = ""
    hosts.start(bad.number)
    hosts.until(lambda: bad.machines[GROUP].state.count == 206)


def test_the_log_of_a_stopped_replica_is_dropped_when_it_is_too_large() -> None:
    hosts = Hosts(node_class=Failing, tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    bad, leader = stopped_follower(hosts), hosts.leader()
    bad.errors = ["ZeroDivisionError", "its log has become too large", "as replica 2 of this server"]
    for number in range(200):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: leader.machines[GROUP].state.count == 206)

    hosts.step(20)

    stored = bad.log.groups[GROUP]
    assert (stored.peer, stored.start, stored.rows) == (peer_id(bad.number, 2), 0, ())
    assert bad.log._written[GROUP] == stored
    comes_back(hosts, bad)


def test_a_machine_that_cannot_say_what_is_durable_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(node_class=Failing, tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    bad = next(node for node in hosts.nodes.values() if not node.leads(GROUP))
    assert isinstance(bad, Failing)
    bad.errors = ["ZeroDivisionError"]

    def durable() -> int:
        raise ZeroDivisionError("durable")

    monkeypatch.setattr(bad.machines[GROUP], "durable", durable)
    leader = hosts.leader()
    for number in range(50):
        leader.publish(GROUP, b"%d" % number)
    hosts.until(lambda: bad.consensus.status(GROUP).is_stopped)

    assert bad.consensus.condition is Condition.RUNNING


def comes_back(hosts: Hosts, bad: Failing) -> None:
    """Restart a node, and let its new replica join."""
    bad.end(power=False)
    bad.fails = ""
    hosts.start(bad.number)
    joins(hosts, bad)


def joins(hosts: Hosts, bad: Failing) -> None:
    """Add the second replica of a node to the group."""
    leader = hosts.leader()
    leader.consensus.change(GROUP, [(int(Change.REMOVE), peer_id(bad.number))])
    hosts.step(20)
    leader.consensus.change(GROUP, [(int(Change.ADD_VOTER), peer_id(bad.number, 2))])
    hosts.until(lambda: bad.machines[GROUP].state == leader.machines[GROUP].state)


def test_the_log_of_a_stopped_replica_is_dropped_when_others_need_its_files() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = stopped_follower(hosts)
    bad.errors = ["ZeroDivisionError", "its log has become too large", "as replica 2 of this server"]
    bad.log.crowding = lambda: [GROUP]

    hosts.until(lambda: bad.log.groups[GROUP].peer == peer_id(bad.number, 2))


def test_a_replica_that_a_fault_has_closed_returns_as_a_new_one() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = hosts.followers()[0]
    assert isinstance(bad, Failing)
    bad.errors = ["its log is bad", "as replica 2 of this server"]
    bad.consensus._lose(bad.consensus._members[GROUP], "its log is bad")

    hosts.until(lambda: bad.log.groups[GROUP].peer == peer_id(bad.number, 2))

    joins(hosts, bad)


def test_a_replica_that_a_fault_has_closed_can_be_removed() -> None:
    hosts = Hosts(node_class=Failing)
    hosts.publish(5)
    bad = hosts.followers()[0]
    assert isinstance(bad, Failing)
    bad.errors = ["panicked"]
    bad.consensus._lose(bad.consensus._members[GROUP], "panicked")

    bad.consensus.close(GROUP)
    bad.consensus.remove(GROUP)
    hosts.step(3)

    assert bad.log._written == {}


# -- groups that their leader closes in their sleep ----------------------------------------------------------------


def damage(node: Failing) -> None:
    """Let a node close its group, as when it finds its log damaged."""
    node.consensus.lose_damaged(node.consensus._members[GROUP], Refusal("damaged"))


def panic(node: Failing) -> None:
    """Let a node close its group for a second, as after a panic in the engine."""
    node.consensus._faults._panics[GROUP] = 6
    node.consensus._panicked(node.consensus._members[GROUP], "a panic")


def close(node: Failing) -> None:
    """Let the owner of a group close it."""
    node.consensus.close(GROUP)


def asleep(count: int = 3) -> tuple[Hosts, Failing]:
    """Return nodes whose group sleeps, and the leader."""
    hosts = Hosts(count, node_class=Failing)
    hosts.publish(3)
    hosts.step(200)
    bad = hosts.leader()
    assert isinstance(bad, Failing)
    bad.errors = ("is closed on this server", "is dropped", "is opened again")
    assert all(node.consensus._engine.status(GROUP).asleep for node in hosts.nodes.values())
    return hosts, bad


def others_lead(hosts: Hosts, bad: Failing) -> bool:
    return any(node.leads(GROUP) for node in hosts.nodes.values() if node is not bad)


@pytest.mark.parametrize("closes", [damage, panic, close])
def test_sleeping_voters_of_a_leader_that_closes_its_group_elect_another_at_once(
    closes: Callable[[Failing], None],
) -> None:
    hosts, bad = asleep()

    closes(bad)

    hosts.until(lambda: others_lead(hosts, bad), 10)
    hosts.until(lambda: bad.consensus._successions.is_idle, 10)


def test_the_request_for_an_election_is_repeated_until_one_begins() -> None:
    hosts, bad = asleep()
    cuts = {(bad.number, number) for number in bad.others}
    hosts.net.cuts |= cuts

    damage(bad)
    hosts.step(6)  # less than a silence of the node
    hosts.net.cuts -= cuts

    assert not others_lead(hosts, bad)
    hosts.until(lambda: others_lead(hosts, bad), 40)
    hosts.until(lambda: bad.consensus._successions.is_idle, 10)


def test_a_voter_that_does_not_answer_is_asked_last() -> None:
    hosts, bad = asleep()
    first = bad.others[GROUP % 2]
    hosts.nodes[first].end(power=False)
    hosts.step(200)

    damage(bad)

    other = next(hosts.nodes[number] for number in bad.others if number != first)
    hosts.until(lambda: other.consensus.status(GROUP).term > bad.consensus._successions.open[GROUP].term, 10)
    hosts.step(100)
    assert not bad.consensus._successions.is_idle  # the other one cannot win alone
    hosts.start(first)
    hosts.until(lambda: bad.consensus._successions.is_idle)


def test_without_an_answer_the_requests_end_when_no_voter_can_sleep_any_more() -> None:
    hosts, bad = asleep()
    for number in bad.others:
        hosts.nodes[number].end(power=False)
    damage(bad)
    hosts.step(100)
    assert not bad.consensus._successions.is_idle

    hosts.step(20_000)

    assert bad.consensus._successions.is_idle


def test_a_group_that_is_removed_by_its_leader_has_no_other_one() -> None:
    hosts, bad = asleep()

    bad.consensus.remove(GROUP)

    assert bad.consensus._successions.is_idle
    hosts.step(100)
    assert not others_lead(hosts, bad)


def test_a_follower_that_closes_its_group_asks_nobody() -> None:
    hosts, bad = asleep()
    follower = hosts.followers()[0]
    assert isinstance(follower, Failing)
    follower.errors = bad.errors

    damage(follower)

    assert follower.consensus._successions.is_idle
    hosts.step(100)
    assert hosts.leader() is bad


def test_the_requests_end_when_the_node_that_closed_its_group_leads_it_again() -> None:
    hosts, bad = asleep()
    bad.consensus.close(GROUP)
    hosts.net.forget(bad.number)  # the first request is lost
    bad.consensus._successions.open[GROUP].at_ns += 60 * NS_PER_S  # and the next ones
    bad._open(GROUP, Conf())
    while not bad.leads(GROUP):  # the voters vote only when they have not heard from a leader for a while
        with suppress(Refused):
            bad.consensus.campaign(GROUP)
        hosts.step(8)

    assert bad.consensus._successions.is_idle
    hosts.step(200)
    assert all(node.consensus._engine.status(GROUP).asleep for node in hosts.nodes.values())


def test_voters_that_a_candidate_has_not_reached_are_asked_when_it_is_lost() -> None:
    hosts, bad = asleep(5)
    first = bad.others[GROUP % 4]
    others = [number for number in bad.others if number != first]
    hosts.net.cuts |= {(first, number) for number in others}
    damage(bad)
    hosts.step(2)
    # the candidate has reached only the node that has closed its group
    hosts.nodes[first].end(power=False)

    hosts.until(lambda: any(hosts.nodes[number].leads(GROUP) for number in others), 100)
